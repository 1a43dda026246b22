"""`t2t_jax translate` and `t2t_jax score` as a hostile user runs them."""

import os
import signal
import subprocess
import sys
import textwrap
import time

import jax
import numpy as np
import pytest

from t2t_jax import Translator, UserError
from t2t_jax.io import atomic
from tests.small_run import ROOT, assert_same, copy_with

LINES = [f"The cat sees {n} dogs." for n in range(40)]


def start(module, *arguments, **options):
    return subprocess.Popen(
        [sys.executable, "-m", "t2t_jax", module, *map(str, arguments)],
        cwd=ROOT,
        env=os.environ | {"JAX_PLATFORMS": "cpu"},
        **options,
    )


def run(module, *arguments, source=b""):
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    with start(module, *arguments, **pipes) as process:
        output, told = process.communicate(source)
    return process.returncode, output.decode(), told.decode()


def test_a_job_killed_in_the_middle_is_continued(trained, tmp_path):
    source, target = tmp_path / "in.en", tmp_path / "out.de"
    source.write_text("\n".join(LINES))
    arguments = (f"--workdir={trained[0]}", f"--input={source}", f"--output={target}")
    note = tmp_path / "out.de.partial.json"
    with start("translate", *arguments, "--batch_size=1", "--scores") as process:
        end = time.monotonic() + 120
        while not note.exists() or atomic.read_checked_json(note)["lines"] < 3:
            assert process.poll() is None
            assert time.monotonic() < end
            time.sleep(0.001)
        os.kill(process.pid, signal.SIGKILL)
    assert process.returncode == -signal.SIGKILL
    assert not target.exists()
    assert atomic.read_checked_json(note)["lines"] < len(LINES)
    code, _, told = run("translate", *arguments, "--resume", "--scores")
    assert code == 0, told
    assert "lines; resuming" in told
    found = Translator.load(trained[0]).translate(LINES, warn=False)
    rows = [line.split(" ||| ") for line in target.read_text().split("\n")[:-1]]
    assert [text for text, _ in rows] == [t.text for t in found]
    assert [float(score) for _, score in rows] == pytest.approx(
        [t.score for t in found], abs=1e-4
    )
    assert sorted(p.name for p in tmp_path.iterdir()) == ["in.en", "out.de"]


def test_lines_go_through_one_by_one(trained, tmp_path):
    """The first are answered before the last are asked; whatever they are."""
    workdir = copy_with(trained[0], tmp_path / "work", max_source=32)
    nasty = ["a\x00b", "one\u2028two", "👩‍👩‍👧", "x " * 50_000, "", "\ufeff", "last"]
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    arguments = (f"--workdir={workdir}", "--batch_size=2", "--beam=1")
    with start("translate", *arguments, **pipes) as process:
        process.stdin.write("The cat.\r\nA dog.\n".encode("utf-8-sig"))
        process.stdin.flush()
        first = [process.stdout.readline(), process.stdout.readline()]
        assert process.poll() is None
        output, told = process.communicate("\n".join(nasty).encode())
    assert process.returncode == 0, told
    output = b"".join([*first, output]).decode().split("\n")
    assert output.pop() == ""
    found = Translator.load(workdir).translate(
        ["The cat.", "A dog.", *nasty], beam=1, warn=False
    )
    assert output == [t.text for t in found]
    cut = [line for line in told.decode().split("\n") if "only the first" in line]
    assert len(cut) == 1
    assert cut[0].startswith("warning: line 6 has ")


def test_a_reader_may_have_seen_enough(trained):
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    arguments = (f"--workdir={trained[0]}", "--batch_size=1", "--beam=1")
    with start("translate", *arguments, **pipes) as process:
        process.stdin.write("\n".join(LINES).encode())
        process.stdin.close()
        assert process.stdout.readline()
        process.stdout.close()
        told = process.stderr.read().decode()
    assert process.returncode == 141
    assert "Traceback" not in told


def test_what_is_printed_beside_translations(trained):
    both = f"--workdir={trained[0]},{trained[0]}"
    arguments = (both, "--nbest=2", "--alignments", "--scores", "--must=Hund")
    code, output, told = run("translate", *arguments, source=b"The cat.\n\nA dog.")
    assert code == 0, told
    rows = [line.split(" ||| ") for line in output.split("\n")[:-1]]
    assert [row[0] for row in rows if row[0] == "1"] == ["1"]  # the empty line
    assert rows[[row[0] for row in rows].index("1")] == ["1", "", "", "0.000000"]
    translator = Translator.load([trained[0]] * 2)
    found = translator.translate(
        ["The cat.", "", "A dog."], nbest=2, must="Hund", warn=False
    )
    wanted = [
        [str(n), h.text, str(translator.align([(t.source, h)])[0])]
        for n, t in enumerate(found)
        for h in t.hypotheses
    ]
    assert [row[:3] for row in rows] == wanted
    assert [float(row[3]) for row in rows] == pytest.approx(
        [h.score for t in found for h in t.hypotheses], abs=1e-4
    )


WRONG = {
    "--temperature=0.5": "--temperature: an option of sampling; add --sample",
    "--seed=0 --top_k=0": "--top_k, --seed: an option of sampling",
    "--sample --beam=4": "--beam: an option of beam search, which --sample replaces",
    "--sample --must=a --stop=best": "--stop, --must: an option of beam search",
    "--epsilon=0.02": "--epsilon: an option of sampling; add --sample",
    "--sample --choose=mbr": "--choose: an option of beam search, which --sample",
    "--choose=mbr:samples=x": "samples='x'; want int",
    "--choose=rerank:reverse=/nowhere --input=README.md": "/nowhere is not a workdir",
    "--sample --groups=2 --diversity=0": "--groups, --diversity: an option of beam",
    "--shard=1/2": "--shard goes with --input; name a file",
    "--resume": "--resume goes with --output; name a file",
    "--shard=3/2 --input=README.md": "--shard='3/2'; want I/N",
    "--input=/nowhere": "--input=/nowhere does not exist",
    "--input=docs": "--input=docs is not a regular file",
    "--workdir=,": "--workdir=',' names no workdir",
    "--workdir=/nowhere": "/nowhere is not a workdir",
    "--checkpoint=3,12": "has no checkpoint of step 3; it has steps [6, 8, 12]",
    "--checkpoint=8,x": "checkpoint='8,x'; want 'average'",
    # Before the input is read, which here has no line.
    "--beam=0": "--beam=0 is too small; want at least 1",
    "--alpha=nan": "--alpha=nan; want a finite number",
    "--diversity=0.5": "diversity=0.5 acts between groups",
    "--nbest=5": "nbest=5 with beam=2; want 1 <= nbest <= beam",
    "--must=": "must has ''; want phrases",
    "--sample --temperature=nan": "temperature=nan; want a finite number",
    "--sample --nbest=0": "samples=0; want at least 1",
    "--nbest=5 --input=README.md": "nbest=5 with beam=2; want 1 <= nbest <= beam",
    "--must= --input=README.md": "must has ''; want phrases",
    "--input=README.md --output=README.md": "README.md already exists",
    "--input=README.md --output=docs": "docs already exists",
    "--input=README.md --output=/nowhere/x": "/nowhere is not an existing folder",
    "--pairs=x": "--pairs needs --input=FILE",
    "--pairs=x --input=/nowhere": "--input=/nowhere does not exist",
    "--pairs=/nowhere/x --input=README.md": "/nowhere is not an existing folder",
    "--pairs=docs/ --input=README.md": "--pairs='docs/' names no files",
    "--pairs=x --input=README.md --output=y": "--output does not go with --pairs",
    "--pairs=x --input=README.md --scores": "--scores does not go with --pairs",
    "--pairs=x --input=README.md --alignments": "--alignments does not go with",
    "--pairs=x --input=README.md --sample --nbest=2": "--nbest=2 does not go with",
    "--pairs=x --input=README.md --noise=dorp@0.1": "did you mean 'drop'",
    "--pairs=x --input=README.md --tag=a,b": "--tag='a,b' cannot be a symbol",
    "--tag=<bt> --noise=swap@3": "--noise: an option of --pairs; add --pairs=PREFIX",
}


def test_what_makes_no_sense_is_told_in_a_line(trained):
    """All in one process, for starting one takes long."""
    program = textwrap.dedent(
        """
        import sys
        from absl import flags
        from absl.testing import flagsaver
        from t2t_jax import UserError
        from t2t_jax.commands import runner, translate
        from t2t_jax.commands.flags import define_ideas_flag
        define_ideas_flag()
        translate.define_flags()
        for line in sys.stdin.read().splitlines():
            with flagsaver.flagsaver():
                runner._parse(["translate", *sys.argv[1:], *line.split()])
                for name in line.split():
                    assert flags.FLAGS[name[2:].partition("=")[0]].present
                try:
                    translate.main([])
                except UserError as e:
                    print(e)
                else:
                    print("fine")
                for flag in flags.FLAGS.flag_values_dict():
                    flags.FLAGS[flag].present = 0
        """
    )
    done = subprocess.run(
        [sys.executable, "-c", program, f"--workdir={trained[0]}"],
        **{"input": "\n".join(WRONG), "cwd": ROOT, "text": True},
        env=os.environ | {"JAX_PLATFORMS": "cpu"},
        capture_output=True,
        check=False,
    )
    told = done.stdout.splitlines()
    assert len(told) == len(WRONG), done.stderr
    for (arguments, wanted), line in zip(WRONG.items(), told, strict=True):
        assert wanted in line, arguments


def test_scores_are_those_of_evaluate(trained, text):
    workdir, scores = trained
    place = f"--test={text / 'test'}"
    code, output, told = run("score", f"--workdir={workdir}", place)
    assert code == 0, told
    rows = [line.split("\t") for line in output.split("\n")[:-1]]
    assert len(rows) == 10
    log_prob = sum(float(row[0]) for row in rows)
    pieces = sum(int(row[1]) for row in rows)
    wanted = scores["test"]["perplexity"]
    assert np.exp(-log_prob / pieces) == pytest.approx(wanted, rel=1e-4)
    assert f"10 pairs, {pieces} tokens" in told
    assert f"perplexity {wanted:.3f} " in told


def test_steps_to_average(trained):
    workdir, _ = trained
    both, eight, twelve = (
        Translator.load(workdir, choice) for choice in ("8, 12", "8", 12)
    )
    assert (both.steps, eight.steps, twelve.steps) == ((8, 12), (8,), (12,))
    mean = jax.tree.map(
        lambda a, b: ((np.float64(a) + np.float64(b)) / 2).astype(np.float32),
        *jax.device_get([eight.parameters, twelve.parameters]),
    )
    assert_same(jax.device_get(both.parameters), mean)
    assert Translator.load(workdir, "12,8,8").steps == (8, 12)
    with pytest.raises(UserError, match=r"of step 3; it has steps \[6, 8, 12\]"):
        Translator.load(workdir, "3,12")
