"""What a user mistypes is told in a line, before anything is loaded or written."""

import json
import os
import shlex
import subprocess
import sys

import pytest

from t2t_jax.commands.launch import commands as all_commands
from tests.small_run import ROOT

# Of each command: its flags, and words of the error.
MISTAKES = {
    "translate": {
        "": "--workdir",
        "--workdir=/nowhere": "is not a workdir",
        "--workdir=WORK --beem=3": "Did you mean: beam ?",
        "--workdir=WORK in.txt": "'in.txt' is not a flag",
        "--workdir=WORK --flagfile=TMP/flags": "not on the command line itself",
        "--workdir=WORK --temperature=0.5": "an option of sampling; add --sample",
        "--workdir=WORK --sample --must=a": "--must: an option of beam search",
        "--workdir=WORK --choose=mbr:samples=x": "samples='x'; want int",
        "--workdir=WORK --shard=3/2 --input=TMP/in": "--part='3/2'; want I/N",
        "--workdir=WORK --part=1/2": "--part goes with --input; name a file",
        "--merge": "want either --output=FILE or --pairs=PREFIX",
        "--merge --output=a --workdir=WORK --beam=3": "without --beam, --workdir",
        "--merge --output=TMP/in": "in already exists",
        "--merge --pairs=TMP/in": "in: no part is there",
        "--workdir=WORK --resume": "--resume goes with --output; name a file",
        "--workdir=WORK --checkpoint=3,12": "no checkpoint of step 3; it has steps",
        "--workdir=WORK --beam=0": "--beam=0 is too small; want at least 1",
        "--workdir=WORK --alpha=nan": "--alpha=nan; want a finite number",
        "--workdir=WORK --alpha=x": "--alpha=x; want float",
        "--workdir=WORK --beam=1.5": "--beam=1.5; want int",
        "--workdir=WORK --scores=perhaps": "--scores=perhaps; want bool",
        "--workdir=WORK --split=x": "there are: sentences",
        "--workdir=WORK --extra_length=0": "--extra_length=0 is too small; want at le",
        "--workdir=WORK --nbest=5": "nbest=5 with beam=2; want 1 <= nbest <= beam",
        "--workdir=WORK --input=TMP/in --output=TMP/in": "in already exists",
        "--workdir=WORK --input=TMP/in --output=TMP/in --format=whole": "already exist",
        "--workdir=WORK --input=TMP/in --format=srt": "line 1",
        "--workdir=WORK --input=TMP/in --format=whole --nbest=2": "--nbest does not wo",
        "--workdir=WORK --markup=html --alignments": "--alignments does not work with",
        "--workdir=WORK --placeholders --sample": "an option of beam search",
        "--workdir=WORK --markup=htm": "did you mean 'html'",
        "--workdir=WORK --terms=TMP/in --term_mode=hart": "did you mean 'hard'",
        "--workdir=WORK --terms=TMP/in": "in, line 1: got 0 tabs",
        "--workdir=WORK --input=TMP": "is not a regular file",
        "--workdir=WORK --input=TMP/latin": "latin, line 2: byte 1",
        "--workdir=WORK --pairs=x": "--pairs needs --input=FILE",
        "--workdir=WORK --pairs=x --input=TMP/in --scores": "does not go with --pairs",
        "--workdir=WORK --pairs=x --input=TMP/in --noise=dorp@0.1": "did you mean 'dro",
    },
    "evaluate": {
        "--workdir= --test=nix": "names no workdir; want a folder",
        "--workdir=WORK --test=nix": "nix.en does not exist",
        "--workdir=WORK --test=grammar:test --baseline=nix": "nix is not a file",
        "--workdir=WORK --test=grammar:test --baseline=TMP/in": "in has 2 lines, but",
        "--workdir=WORK --test=grammar:test --baseline=TMP/latin": "line 2: byte 1",
    },
    "whatwas": {
        "--workdir=WORK --step=99": "from 1 to 12",
        "--workdir=WORK --step=x": "want a step, such as 600, or a stretch",
        "--workdir=WORK --step=3-4-5": "want a step, such as 600, or a stretch",
        "--workdir=WORK --rerun --step=5-4": "from 1 to 12, or a stretch",
    },
    "main": {
        "--config=configs/tny.py": "did you mean 'configs/tiny.py'?",
        "--config.model.layrs=3": "did you mean 'model.layers'?",
        "--config.model.layers=two": "want int, such as 6",
        "--config.data.train=": "config.data.train is empty",
        "--profile=1-3": "want steps N-M with 1 < N <= M <=",
        "--profile=all": "--profile='all'; want a step",
        "--config=tiny --config.model.attention=mine": "--ideas=MODULE",
    },
    "prepare": {
        "--stage=hash": "--stage and --part go together; add --part=I/N",
        "--part=1/2": "add --stage=hash or encode",
        "--stage=hash --part=3/2": "--part='3/2'; want I/N",
        "--merge --status": "--merge and --status are two things; give one",
        "--merge=hsh": "merge",
        "--merge=hash --folder=TMP/no": "no part is there",
        "--stage=encode --part=1/2 --folder=TMP/no": "run --merge=hash first",
        "--folder=s3://x": "want a folder or gs://BUCKET/FOLDER",
    },
    "describe": {"--workdir=WORK --config=tiny": "leave out one of them"},
    "experiment": {
        "table4 --workdir=TMP/w": "table4: no such experiment; did you mean 'table",
        "--workdir=TMP/w": "name an experiment (ablate, back_translation, ",
        "table3 --workdir=TMP/w --config.model.layer=3": "'model.layers'",
        "TMP/mine.py --workdir=TMP/w": "it has no function get_experiment",
    },
    "plan": {
        "--slice=v5e:3x5": "the nearest are v5e:4x4",
        "--slice=h100:8 --mesh=dat:2": "did you mean 'data'",
    },
    "plot": {
        "--workdir=TMP/no": "does not exist",
        "--workdir=WORK --output=TMP/plot.jpg": "ends in .svg",
        "--workdir=WORK --output=TMP/no/plot.png": "not an existing folder",
    },
    "compare": {
        "": "want --test=PREFIX",
        "--test=x": "0 systems given; want two",
        "--test=x WORK nothing": "nothing is neither a folder nor a file",
        "--test=x WORK x=": "names no system",
        "--test=x a=WORK a=TMP/in": "two systems are called 'a'",
        "--test=x TMP/in TMP/latin": "want --direction=en-de",
    },
    "doctor": {
        "--limit=ratio.y=1": "--limit=ratio.y=1: no such limit",
        "--limit=ratio.z=much": "want a number, such as ratio.z=6",
        "--drop=number": "did you mean 'numbers'",
        "--reverse=WORK": "name that one by --workdir",
    },
    "explain": {
        "--workdir=no --output=TMP/page.html": "want either a sentence in quotes or",
        "--workdir=no --output=TMP/page.html The cat": "'cat' is not a flag",
        "--workdir=no line": "--output is missing; give it as --output=VALUE",
        "--workdir=no line --output=page.png": "ends in .html",
        "--workdir=no --output=TMP/page.html --input=TMP/in --target=x": "--targets=",
    },
    "serve": {
        "": "want either --workdir=DIR or --model=NAME=DIR",
        "--workdir=/nowhere": "is not a workdir",
        "--workdir=WORK --model=en-de=WORK": "one of them",
        "--model=WORK": "want NAME=DIR, such as en-de=runs/ende",
        "--model=a-b=WORK --model=a-b=WORK": "a-b is there before, too",
        "--workdir=WORK --beams=4,x": "--beams=4,x; want at most 8 numbers from 1 to",
        "--workdir=WORK --beams=4,1000": "--beams=4,1000; want at most 8 numbers",
        "--workdir=WORK --longest=1000000": "--longest=1000000: 1000000 is not an int",
        "--workdir=WORK --longest=9999": "reads at most 1024 tokens (config.",
        "--workdir=WORK --extra_length=65536": "=65536; want at most 4,096",
        "--workdir=WORK --max_seconds=inf": "--max_seconds=inf: inf is not a number",
        "--workdir=WORK --max_seconds=nan": "--max_seconds=nan; want a number",
        "--workdir=WORK --port=70000": "port",
        "--workdir=WORK --api_keys=TMP/no": "--api_keys: TMP/no: No such file",
        "--workdir=WORK --terms=TMP/in": "want NAME=FILE",
        "--workdir=WORK --terms=t=TMP/in": "in, line 1: got 0 tabs, want 1",
        "--workdir=WORK --terms=t:x-y=TMP/in": "no direction 'x-y'; there are: en-de",
        "--workdir=WORK --dev=x-y=TMP/in": "no direction 'x-y'; there are: en-de",
        "--workdir=WORK --dev=TMP/no": "TMP/no",
    },
    "tranlsate": {"": "did you mean 'translate'"},
}


@pytest.mark.parametrize("command", MISTAKES)
def test_they_are_told_without_a_traceback(command, trained, commands, tmp_path):
    (tmp_path / "in").write_bytes(b"a\nb\n")
    (tmp_path / "latin").write_bytes(b"a\n\xff\n")
    (tmp_path / "flags").write_text("--ideas=mine.py\n")
    (tmp_path / "mine.py").touch()
    before = {*tmp_path.glob("[!_]*")}  # but for bytecode
    for flags, message in MISTAKES[command].items():
        words = flags.replace("WORK", str(trained[0])).replace("TMP", str(tmp_path))
        status, printed, error = commands(command, *shlex.split(words))
        assert (status, printed) == (2, ""), (flags, error)
        assert message.replace("TMP", str(tmp_path)) in error, flags
        assert len(error.strip().splitlines()) == 1, error  # no traceback
    assert {*tmp_path.glob("[!_]*")} == before


# Of a single mistake each, the rest being right.
QUICK = (
    *("tranlsate", "train --config=tinny", "train --confg=tiny"),
    *("train --config.model.layrs=3", "train --config.model.layers=two"),
    *("train --config.model.layers=0", "train --config.model.attention=mine"),
    *("train --config.data.train=nix", "translate --workdir=nix"),
    *("translate --workdir=WORK --input=nix", "translate --workdir=WORK --beam=0"),
    *("evaluate --workdir=WORK --test=nix", "score --workdir=WORK --test=nix"),
    *("compare WORK nix --test=nix", "whatwas --workdir=nix --step=1"),
    *("describe --workdir=nix", "plan --slice=v5e:3x5", "doctor --config=tinny"),
    *("distill --teacher=nix --input=a --workdir=b", "experiment table4 --workdir=b"),
    *("explain --workdir=nix --output=a.html line", "plot --workdir=nix"),
    "export --workdir=nix --to=stablehlo --output=a",
    "import --model=nix --workdir=b",
    *("verify --quick --full", "serve --workdir=nix", "serve --workdir=WORK --port=x"),
)
# Prints (exit status, heavy libraries that were imported) of each command.
WITHOUT_JAX = """
import json, os, sys
from t2t_jax.commands import launch, runner

for name in launch.commands():
    launch.module_of(name)
for words in json.loads(sys.argv[1]):
    child = os.fork()
    if not child:
        os.dup2(os.open(os.devnull, os.O_RDWR), 2)
        out = os.dup(1)
        os.dup2(2, 1)
        sys.argv, status = ["t2t_jax", *words], 0
        try:
            launch.main()
        except SystemExit as end:
            status = end.code
        heavy = {"jax", "flax", "orbax", "optax", "tensorflow", "torch", "sacremoses"}
        result = [status, sorted(heavy & {*sys.modules})]
        os.write(out, (json.dumps(result) + os.linesep).encode())
        os._exit(0)
    os.waitpid(child, 0)
"""


def test_help_and_refusals_import_nothing_that_computes(trained, tmp_path):
    command_lines = [[name, "--help"] for name in all_commands()]
    command_lines += [
        shlex.split(words.replace("WORK", str(trained[0]))) for words in QUICK
    ]
    ended = subprocess.run(
        [sys.executable, "-c", WITHOUT_JAX, json.dumps(command_lines)],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT), "T2T_JAX_HUGE_PAGES": "0"},
        capture_output=True,
        text=True,
        check=True,
    )
    results = [json.loads(line) for line in ended.stdout.splitlines()]
    expected = [[2 * (words[-1] != "--help"), []] for words in command_lines]
    assert dict(zip(map(str, command_lines), results, strict=True)) == dict(
        zip(map(str, command_lines), expected, strict=True)
    )
