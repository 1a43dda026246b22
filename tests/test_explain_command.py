"""`t2t_jax explain` as a user runs it, and as one mistypes it."""

import base64
import gzip
import json
import re
import shlex

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


REFUSED = [  # with --workdir=nowhere, if none is given
    ("{page}", "want either a sentence in quotes or --input=FILE"),
    ("{page} line --input={in}", "one of them"),
    ("{page} The cat", "'cat' is not a flag; flags are written --name=value; put a S"),
    ("{page} 'a line' 'a line'", "got 2 times SENTENCE, want one"),
    ("line", "--output is missing; give it as --output=VALUE"),
    ("line --output=page.png", "ends in .html"),
    ("line --output=no/folder/page.html", "is not an existing folder"),
    ("{page} --input={in} --target=x", "want --targets=FILE"),
    ("{page} line --targets={in}", "goes with --input"),
    ("{page} --input=nothing", "there is no such file"),
    ("{page} --input={empty}", "is empty"),
    ("{page} --input={latin}", "byte 4 (0xe9) is not UTF-8"),
    ("{page} line --workdir=a,b,c", "names 3 workdirs"),
    ("{page} line", "nowhere"),
]


def test_mistakes_are_named_before_anything_is_loaded(commands, tmp_path):
    places = {"page": f"--output={tmp_path / 'page.html'}"}
    for name, content in (("in", b"a\nb\n"), ("empty", b""), ("latin", b"caf\xe9\n")):
        places[name] = tmp_path / name
        places[name].write_bytes(content)
    for words, message in REFUSED:
        arguments = ["--workdir=nowhere", *shlex.split(words.format(**places))]
        done = commands("explain", *arguments)
        assert done.returncode == 2, words
        assert message in done.stderr, words
        assert "Traceback" not in done.stderr
    assert not (tmp_path / "page.html").exists()
