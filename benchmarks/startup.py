"""Measures the time to start: imports, answers of commands, the first training step.

    python -m benchmarks.startup
    python -m benchmarks.startup --config=configs/tiny.py --rounds=5 --output=PATH
    python -m benchmarks.startup --parts=answer --workdir=runs/tiny

Every measurement, in seconds, runs in new processes. The limit of an import is `import
jax`; `import t2t_jax` alone imports nothing, so it is timed together with JAX. An
answer is --help, the refusal of a preset and, with --workdir, one translated line. The
first step is timed from the start of `python -m t2t_jax.main` until the message that it
is done, with tokenizer and token arrays prepared by an earlier run. A cold start has an
empty folder of compiled programs (JAX_COMPILATION_CACHE_DIR); a warm one has the
programs of the cold one before it. The text is generated; batches are small (--tokens),
as their size adds to the step and not to the start.
"""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from absl import flags

from benchmarks import measuring, run
from benchmarks.made_up import write_text
from t2t_jax.commands import config_files
from t2t_jax.commands.flags import define_config_flag

SAID = "the first step took"  # from the message of training that ends the measurement

KINDS = "cold", "warm"
# The package alone, and with everything that translating needs.
IMPORTS = {
    "import t2t_jax": "import t2t_jax, jax",
    "import Translator": "from t2t_jax import Translator",
}


def imported(statement: str) -> float:
    """Seconds of an import, without the start of the interpreter."""
    code = (
        "import time; began = time.perf_counter(); "
        f"{statement}; print(time.perf_counter() - began)"
    )
    process = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    return float(process.stdout)


ANSWERS = {
    "train --help": ["train", "--help"],
    "a refused preset": ["train", "--config=tinny"],
}


def answered(arguments: list[str], programs: Path) -> float:
    """Seconds of a command, which reads one line.

    Args:
      programs: the folder of compiled programs.
    """
    began = time.perf_counter()
    process = subprocess.run(
        [sys.executable, "-m", "t2t_jax", *arguments],
        env=os.environ | {"JAX_COMPILATION_CACHE_DIR": str(programs)},
        input="A dog.\n",
        capture_output=True,
        text=True,
    )
    seconds = time.perf_counter() - began
    if process.returncode not in (0, 2) or "Traceback" in process.stderr:
        raise RuntimeError(f"{arguments} failed:\n{process.stderr[-3000:]}")
    return seconds


def answers(workdir: str | None, rounds: int, folder: Path) -> dict[str, list[float]]:
    """Seconds of each answer, in alternating rounds."""
    seconds = {}
    for number in range(rounds):
        programs = folder / f"answers{number}"  # empty at first, so cold
        named = {name: (words, programs) for name, words in ANSWERS.items()}
        if workdir:
            translate = ["translate", f"--workdir={workdir}"], programs
            named |= {f"a translated line, {kind}": translate for kind in KINDS}
        for name, command in named.items():
            seconds.setdefault(name, []).append(answered(*command))
    return seconds


class FirstSteps:
    """Starts training repeatedly, each time until its first step is done."""

    def __init__(self, arguments: list[str], folder: Path):
        self.arguments, self.folder, self.runs = arguments, folder, 0
        self.programs = folder / "programs0"

    def cold(self) -> float:
        """Seconds of a start without compiled programs; keeps them for `warm`."""
        self.programs = self.folder / f"programs{self.runs + 1}"
        return self._seconds()

    def warm(self) -> float:
        """Seconds of a start with the compiled programs of the last one."""
        return self._seconds()

    def _seconds(self) -> float:
        self.runs += 1
        workdir = self.folder / f"run{self.runs}"
        environment = os.environ | {
            "JAX_COMPILATION_CACHE_DIR": str(self.programs),
            "T2T_JAX_CACHE": str(self.folder / "cache"),
            "PYTHONUNBUFFERED": "1",
        }
        began, lines = time.perf_counter(), []
        process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "t2t_jax.main",
                f"--workdir={workdir}",
                *self.arguments,
            ],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        try:
            for line in process.stdout:
                lines.append(line)
                if SAID in line:
                    return time.perf_counter() - began
        finally:
            process.kill()
            process.wait()
        raise RuntimeError("training ended before a step:\n" + "".join(lines[-30:]))


def first_steps(config: str, args, folder: Path) -> FirstSteps:
    """Prepares text, tokenizer and token arrays, so that they are not measured."""
    prefix = write_text(folder, args.pairs)
    arguments = [
        f"--config={config}",
        f"--config.data.train={prefix}",
        "--config.data.dev=",
        "--config.data.test=",
        f"--config.data.vocab_size={args.vocab}",
        f"--config.data.batch_tokens={args.tokens}",
        "--config.data.source=en",
        "--config.data.target=de",
        "--config.data.feeder=numpy",
    ]
    starts = FirstSteps(arguments, folder)
    starts.warm()
    return starts


PARTS = ["import", "answer", "step"]


def define_flags():
    define_config_flag()
    measuring.define_flags(rounds=3)
    flags.DEFINE_list("parts", PARTS, "Parts to measure.")
    flags.DEFINE_string("workdir", None, "Workdir that translates a line.")
    flags.DEFINE_integer("pairs", 20_000, "Pairs of generated text.", lower_bound=1000)
    flags.DEFINE_integer("vocab", 16_000, "Pieces of the vocabulary.")
    flags.DEFINE_integer("tokens", 1_024, "Tokens of one side of a batch.")


def main(_):
    args = flags.FLAGS
    measuring.begin(args)
    parts = measuring.chosen(args.parts, PARTS, "parts")
    config = args["config"].config_filename
    with tempfile.TemporaryDirectory() as folder:
        rows = []
        if "import" in parts:
            statements = IMPORTS | {"import jax": "import jax"}
            seconds = measuring.alternate(
                {s: lambda code=code: imported(code) for s, code in statements.items()},
                args.rounds,
            )
            limit = seconds.pop("import jax")
            beside = {"peer": limit, "peer_name": "import jax", "more_is_better": False}
            rows += [
                measuring.Row(
                    name,
                    "s",
                    spent,
                    share_of_limit=limit / spent,
                    **beside,
                )
                for name, spent in seconds.items()
            ]
        if "answer" in parts:
            seconds = answers(args.workdir, args.rounds, Path(folder))
            rows += [_alone(n, measuring.median(s)) for n, s in seconds.items()]
        if "step" in parts:
            starts = first_steps(config, args, Path(folder))
            seconds = {"cold": [], "warm": []}
            for _ in range(args.rounds):  # a warm start uses the cold one's programs
                seconds["cold"].append(starts.cold())
                seconds["warm"].append(starts.warm())
            name = config_files.config_name(config)
            rows += [
                _alone(f"{name} first step, {kind}", measuring.median(values))
                for kind, values in seconds.items()
            ]
        measuring.publish(rows, args.output)


def _alone(work: str, seconds: float) -> measuring.Row:
    """A row without a peer."""
    return measuring.Row(work, "s", seconds, more_is_better=False)


if __name__ == "__main__":
    run(main, define_flags, config="base")
