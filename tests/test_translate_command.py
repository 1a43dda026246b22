"""The commands translate, score and explain as a hostile user runs them."""

import json
import os
import re
import subprocess
import sys
import time

import numpy as np
import pytest

from t2t_jax import Translator
from t2t_jax.io import atomic
from tests.small_run import ROOT, contents
from tests.viewing.pages import blobs_of

LINES = [f"The cat sees {n} dogs." for n in range(40)]


def start(*arguments):
    """A command as a process of its own."""
    return subprocess.Popen(
        [sys.executable, "-m", "t2t_jax", "translate", *map(str, arguments)],
        cwd=ROOT,
        env=os.environ | {"JAX_PLATFORMS": "cpu"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def test_a_job_killed_in_the_middle_is_continued(trained, commands, tmp_path):
    source, target = tmp_path / "in.en", tmp_path / "out.de"
    source.write_text("\n".join(LINES))
    arguments = [f"--workdir={trained[0]}", f"--input={source}", f"--output={target}"]
    arguments.append("--scores")
    note = tmp_path / "out.de.partial.json"
    with start(*arguments, "--batch_size=1") as process:
        end = time.monotonic() + 600
        while not note.exists() or atomic.read_checked_json(note)["lines"] < 3:
            assert process.poll() is None
            assert time.monotonic() < end
            time.sleep(0.001)
        process.kill()
    assert not target.exists()
    assert atomic.read_checked_json(note)["lines"] < len(LINES)
    code, _, stderr = commands("translate", *arguments, "--resume")
    assert code == 0, stderr
    assert "lines; resuming" in stderr
    translations = Translator.load(trained[0]).translate(LINES, warn=False)
    rows = [line.split(" ||| ") for line in target.read_text().split("\n")[:-1]]
    assert [text for text, _ in rows] == [t.text for t in translations]
    scores = [float(score) for _, score in rows]
    assert scores == pytest.approx([t.score for t in translations], abs=1e-4)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["in.en", "out.de"]


def test_lines_go_through_one_by_one_until_the_reader_has_seen_enough(trained):
    """The first are answered before the last are asked."""
    arguments = (f"--workdir={trained[0]}", "--batch_size=2", "--beam=1")
    with start(*arguments) as process:
        process.stdin.write("The cat.\r\nA dog.\n".encode("utf-8-sig"))
        process.stdin.flush()
        first_answers = [process.stdout.readline().decode() for _ in range(2)]
        assert process.poll() is None
        process.stdout.close()
        process.stdin.write("\n".join(LINES).encode())
        process.stdin.close()
        stderr = process.stderr.read().decode()
    assert process.returncode == 141
    assert "Traceback" not in stderr
    translator = Translator.load(trained[0])
    lines = ["The cat.", "A dog."]
    translations = translator.translate(lines, beam=1, batch_size=2, warn=False)
    assert first_answers == [f"{t.text}\n" for t in translations]


def test_what_is_printed_beside_translations(trained, commands):
    arguments = f"--workdir={trained[0]}", "--nbest=2", "--alignments", "--scores"
    arguments += ("--extra_length=9",)
    lines = ["The cat.", "", "A dog."]
    code, output, stderr = commands(
        "translate", *arguments, source="\n".join(lines).encode()
    )
    assert code == 0, stderr
    rows = [line.split(" ||| ") for line in output.split("\n")[:-1]]
    assert [row for row in rows if row[0] == "1"] == [["1", "", "", "0.000000"]]
    translator = Translator.load(trained[0])
    translations = translator.translate(lines, nbest=2, extra_length=9, warn=False)
    pairs = [(n, t.source, h) for n, t in enumerate(translations) for h in t.hypotheses]
    links = translator.align([(source, h) for _, source, h in pairs])
    assert [row[:3] for row in rows] == [
        [str(n), h.text, str(alignment)]
        for (n, _, h), alignment in zip(pairs, links, strict=True)
    ]
    scores = [h.score for *_, h in pairs]
    assert [float(row[3]) for row in rows] == pytest.approx(scores, abs=1e-4)


def test_scores_are_those_of_evaluate(trained, text, commands):
    workdir, scores = trained
    place = f"--test={text / 'test'}"
    code, output, stderr = commands("score", f"--workdir={workdir}", place)
    assert code == 0, stderr
    rows = [line.split("\t") for line in output.split("\n")[:-1]]
    assert len(rows) == 10
    log_prob = sum(float(row[0]) for row in rows)
    count = sum(int(row[1]) for row in rows)
    perplexity = scores["test"]["perplexity"]
    assert np.exp(-log_prob / count) == pytest.approx(perplexity, rel=1e-4)
    assert f"10 pairs, {count} " in stderr
    assert f"perplexity {perplexity:.3f} " in stderr


def test_explain_writes_a_page_of_the_search_and_of_a_target(
    trained, commands, tmp_path
):
    line, page = "The cat sees 3 dogs.", tmp_path / "page.html"
    page.write_text("earlier")
    (tmp_path / "in.en").write_text(f"{line}\r\n", encoding="utf-8")
    (tmp_path / "in.de").write_text("Die Katze\n", encoding="utf-8")
    flags = [f"--workdir={trained[0]}", f"--output={page}", "--alternatives=0"]
    flags += [f"--input={tmp_path}/in.en", f"--targets={tmp_path}/in.de"]
    ended = commands("explain", *flags, "--title=A <title>")
    assert ended.returncode == 0, ended.stderr
    assert (tmp_path / "page.1.html").read_text() == "earlier"
    content = json.loads(blobs_of(page.read_text("utf-8"))["payload"])
    assert content["title"] == "A <title>"
    translation = Translator.load(trained[0]).translate([line], warn=False)[0]
    (entry,) = content["sentences"][0]["of"]
    reading, target = entry["readings"]
    assert (reading["text"], target["text"]) == (translation.text, "Die Katze")
    assert reading["score"] == pytest.approx(translation.score, rel=1e-4)
    assert f"{line}\n  " in ended.stdout
    assert re.search(r"  target: Die Katze\n  (model|search) error: ", ended.stdout)


def test_a_page_is_translated_as_one_text(trained, commands, tmp_path):
    page, output = tmp_path / "page.html", tmp_path / "page.de.html"
    content = "\ufeff<h1>The cat</h1>\r\n<p>The <b>dog</b> sees %s.\r\n<!-- end -->"
    page.write_bytes(content.encode())
    (terms := tmp_path / "terms.tsv").write_text("dog\tHund\n")
    words = ["translate", f"--workdir={trained[0]}", f"--input={page}"]
    words += ["--markup=html", "--placeholders", f"--terms={terms}"]
    code, printed, stderr = commands(*words, "--format=whole", f"--output={output}")
    assert (code, printed) == (0, ""), stderr
    written = output.read_bytes().decode()
    tags = re.findall("<.*?>", content)
    assert sorted(re.findall("<.*?>", written)) == sorted(tags)
    assert written.startswith("\ufeff<h1>")
    assert written.endswith("\r\n<!-- end -->")
    assert "markup: 1 elements" in stderr
    assert re.search(r"dog +Hund +1 ", stderr)
    assert re.search(r"placeholders: .*1 asked", stderr)


def test_a_finished_part_is_left_as_it_is(trained, commands, tmp_path):
    """As when all tasks of an array are started again."""
    (tmp_path / "in").write_text("The cat sleeps.\nA dog sees it.\n")
    words = f"--workdir={trained[0]}", f"--input={tmp_path}/in", "--resume"
    for name, last_ending in (("output", ""), ("pairs", ".hashes")):
        command = "translate", *words, f"--{name}={tmp_path}/{name}", "--part=2/2"
        assert commands(*command)[0] == 0
        before = contents(tmp_path)
        code, _, stderr = commands(*command)
        assert (code, stderr.startswith("part 2/2 is finished; ")) == (0, True)
        assert contents(tmp_path) == before
        (tmp_path / f"{name}.2-of-2{last_ending}").unlink()
        assert "is finished;" not in commands(*command)[2]
