"""`t2t_jax explain` as a user runs it, and as one mistypes it."""

import base64
import gzip
import json
import re

import pytest

from t2t_jax import Translator

LINE = "The cat sees 3 dogs."


def content_of(page):
    packed = re.search(r'id="payload">([^<]*)<', page.read_text("utf-8"))[1]
    return json.loads(gzip.decompress(base64.b64decode(packed)))


def test_a_page_with_two_workdirs_side_by_side(trained, commands, tmp_path):
    page, lines = tmp_path / "page.html", tmp_path / "in.en"
    lines.write_text(f"{LINE}\r\n", encoding="utf-8")
    page.write_text("earlier")
    (tmp_path / "in.de").write_text("Die Katze\n", encoding="utf-8")
    done = commands(
        "explain",
        f"--workdir={trained[0]},{trained[0]}",
        f"--input={lines}",
        f"--targets={tmp_path / 'in.de'}",
        f"--output={page}",
        *("--beam=2", "--alternatives=0", "--title=A <title>"),
    )
    assert done.returncode == 0, done.stderr
    assert "1 sentence, " in done.stderr
    assert (tmp_path / "page.1.html").read_text() == "earlier"
    content = content_of(page)
    assert content["title"] == "A <title>"
    assert [m["name"] for m in content["models"]] == [
        f"{trained[0].name} ({number})" for number in (1, 2)
    ]
    names = {name for name, _ in content["models"][0]["passport"]}
    assert {"checkpoint", "SHA-256 of the parameters", "code"} <= names
    (entry, other) = content["sentences"][0]["of"]
    assert entry["search"] == other["search"]
    wanted = Translator.load(trained[0]).translate([LINE], beam=2, warn=False)[0]
    found, target = entry["readings"]
    assert found["text"] == wanted.text
    assert found["score"] == pytest.approx(wanted.score, rel=1e-4)
    assert target["text"] == "Die Katze"


def test_mistakes_are_named_before_anything_is_loaded(commands, tmp_path):
    page, lines = f"--output={tmp_path / 'page.html'}", tmp_path / "lines"
    lines.write_text("a\nb\n")
    (tmp_path / "empty").write_text("")
    (tmp_path / "latin").write_bytes(b"caf\xe9\n")
    workdir = "--workdir=nowhere"
    for arguments, message in (
        ([workdir, page], "want either a sentence in quotes or --input=FILE"),
        ([workdir, page, LINE, f"--input={lines}"], "one of them"),
        (
            [workdir, page, "The", "cat"],
            "'cat' is not a flag; flags are written --name=value; put a S",
        ),
        (
            [workdir, page, LINE, LINE],
            "got 2 times SENTENCE, want one; several go into",
        ),
        ([workdir, LINE], "--output is missing; give it as --output=VALUE"),
        ([workdir, LINE, "--output=page.png"], "ends in .html"),
        ([workdir, LINE, "--output=no/folder/page.html"], "is not an existing folder"),
        ([workdir, page, f"--input={lines}", "--target=x"], "want --targets=FILE"),
        ([workdir, page, LINE, f"--targets={lines}"], "goes with --input"),
        ([workdir, page, "--input=nothing"], "there is no such file"),
        ([workdir, page, f"--input={tmp_path / 'empty'}"], "is empty"),
        (
            [workdir, page, f"--input={tmp_path / 'latin'}"],
            "byte 4 (0xe9) is not UTF-8",
        ),
        (["--workdir=a,b,c", page, LINE], "names 3 workdirs"),
        ([workdir, page, LINE], "nowhere"),
    ):
        done = commands("explain", *arguments)
        assert done.returncode == 2, done.stdout
        assert message in done.stderr
        assert "Traceback" not in done.stderr
    assert not (tmp_path / "page.html").exists()
