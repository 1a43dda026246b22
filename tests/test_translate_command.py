"""`t2t_jax translate` and `t2t_jax score` as a hostile user runs them."""

import os
import subprocess
import sys
import textwrap
import time

import jax
import numpy as np
import pytest

from t2t_jax import Translator
from t2t_jax.io import atomic
from tests.small_run import ROOT, assert_same

LINES = [f"The cat sees {n} dogs." for n in range(40)]


PIPES = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)


def start(*arguments):
    """A command as a process of its own."""
    return subprocess.Popen(
        [sys.executable, "-m", "t2t_jax", "translate", *map(str, arguments)],
        cwd=ROOT,
        env=os.environ | {"JAX_PLATFORMS": "cpu"},
        **PIPES,
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
    code, _, told = commands("translate", *arguments, "--resume")
    assert code == 0, told
    assert "lines; resuming" in told
    found = Translator.load(trained[0]).translate(LINES, warn=False)
    rows = [line.split(" ||| ") for line in target.read_text().split("\n")[:-1]]
    assert [text for text, _ in rows] == [t.text for t in found]
    scores = [float(score) for _, score in rows]
    assert scores == pytest.approx([t.score for t in found], abs=1e-4)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["in.en", "out.de"]


def test_lines_go_through_one_by_one_until_the_reader_has_seen_enough(trained):
    """The first are answered before the last are asked."""
    arguments = (f"--workdir={trained[0]}", "--batch_size=2", "--beam=1")
    with start(*arguments) as process:
        process.stdin.write("The cat.\r\nA dog.\n".encode("utf-8-sig"))
        process.stdin.flush()
        first = [process.stdout.readline().decode() for _ in range(2)]
        assert process.poll() is None
        process.stdout.close()
        process.stdin.write("\n".join(LINES).encode())
        process.stdin.close()
        told = process.stderr.read().decode()
    assert process.returncode == 141
    assert "Traceback" not in told
    translator = Translator.load(trained[0])
    found = translator.translate(["The cat.", "A dog."], beam=1, warn=False)
    assert first == [f"{t.text}\n" for t in found]


def test_what_is_printed_beside_translations(trained, commands):
    both = f"--workdir={trained[0]},{trained[0]}"
    arguments = (both, "--nbest=2", "--alignments", "--scores", "--must=Hund")
    lines = ["The cat.", "", "A dog."]
    code, output, told = commands(
        "translate", *arguments, source="\n".join(lines).encode()
    )
    assert code == 0, told
    rows = [line.split(" ||| ") for line in output.split("\n")[:-1]]
    assert [row for row in rows if row[0] == "1"] == [["1", "", "", "0.000000"]]
    translator = Translator.load([trained[0]] * 2)
    found = translator.translate(lines, nbest=2, must="Hund", warn=False)
    pairs = [(n, t.source, h) for n, t in enumerate(found) for h in t.hypotheses]
    links = translator.align([(source, h) for _, source, h in pairs])
    assert [row[:3] for row in rows] == [
        [str(n), h.text, str(of)] for (n, _, h), of in zip(pairs, links, strict=True)
    ]
    scores = [h.score for *_, h in pairs]
    assert [float(row[3]) for row in rows] == pytest.approx(scores, abs=1e-4)


WRONG = {
    "--temperature=0.5": "--temperature: an option of sampling; add --sample",
    "--seed=0 --top_k=0": "--top_k, --seed: an option of sampling",
    "--sample --must=a --stop=best": "--stop, --must: an option of beam search",
    "--sample --choose=mbr": "--choose: an option of beam search, which --sample",
    "--choose=mbr:samples=x": "samples='x'; want int",
    "--choose=rerank:reverse=/nowhere --input=README.md": "/nowhere is not a workdir",
    "--shard=1/2": "--shard goes with --input; name a file",
    "--resume": "--resume goes with --output; name a file",
    "--shard=3/2 --input=README.md": "--shard='3/2'; want I/N",
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
    "--input=README.md --output=README.md": "README.md already exists",
    "--input=README.md --output=docs": "docs already exists",
    "--input=README.md --output=/nowhere/x": "/nowhere is not an existing folder",
    "--pairs=x": "--pairs needs --input=FILE",
    "--pairs=x --input=/nowhere": "--input=/nowhere does not exist",
    "--confidence=dropout_mean": "config.model.dropout=0.0",
    "--confidence=best": "--confidence='best'",
    "--min_confidence=0 --pairs=x --input=README.md": "does not go with --pairs",
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


def test_scores_are_those_of_evaluate(trained, text, commands):
    workdir, scores = trained
    place = f"--test={text / 'test'}"
    code, output, told = commands("score", f"--workdir={workdir}", place)
    assert code == 0, told
    rows = [line.split("\t") for line in output.split("\n")[:-1]]
    assert len(rows) == 10
    log_prob = sum(float(row[0]) for row in rows)
    count = sum(int(row[1]) for row in rows)
    wanted = scores["test"]["perplexity"]
    assert np.exp(-log_prob / count) == pytest.approx(wanted, rel=1e-4)
    assert f"10 pairs, {count} " in told
    assert f"perplexity {wanted:.3f} " in told


def test_steps_to_average(trained):
    workdir, _ = trained
    choices = {"8, 12": (8, 12), "8": (8,), 12: (12,), "12,8,8": (8, 12)}
    loaded = [Translator.load(workdir, choice) for choice in choices]
    assert [translator.steps for translator in loaded] == [*choices.values()]
    both, eight, twelve, _ = jax.device_get([t.parameters for t in loaded])
    mean = jax.tree.map(
        lambda a, b: ((np.float64(a) + np.float64(b)) / 2).astype(np.float32),
        *(eight, twelve),
    )
    assert_same(both, mean)
