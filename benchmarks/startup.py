"""How long it takes to begin: imports, a command's help, the first training step.

    python -m benchmarks.startup
    python -m benchmarks.startup --config=configs/tiny.py --rounds=5 --json=PATH

Seconds, each measured in new processes. The floor of an import is JAX's own
(`import t2t_jax` alone imports nothing, so it is timed with JAX). The first
step is timed from the start of `python -m t2t_jax.main` until it says that the step is
made, tokenizer and token arrays being there from an earlier run: cold with an empty
folder of compiled programs (JAX_COMPILATION_CACHE_DIR), warm with what the cold one
left there. The text is made up; batches are small (--tokens), since their size is the
step's cost, not the start's.
"""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from absl import flags

from benchmarks import measuring, run
from benchmarks.prepare import write_text
from t2t_jax.commands import config_files
from t2t_jax.commands.flags import define_config_flag

COMMANDS = ("main", "translate", "score", "describe")
SAID = "the first step took"


IMPORTS = {  # what is there before anything is used, and with what translating needs
    "import t2t_jax": "import t2t_jax, jax",
    "import Translator": "from t2t_jax import Translator",
}


def imported(statement: str) -> float:
    """Seconds of an import, the interpreter's start left out."""
    code = (
        "import time; began = time.perf_counter(); "
        f"{statement}; print(time.perf_counter() - began)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    return float(done.stdout)


def helped(name: str) -> float:
    """Seconds of a command that only tells its flags."""
    began = time.perf_counter()
    # absl leaves with status 1 after telling
    done = subprocess.run(
        [sys.executable, "-m", f"t2t_jax.{name}", "--help"],
        capture_output=True,
        text=True,
    )
    if "--" not in done.stdout:
        raise RuntimeError(f"t2t_jax.{name} --help: {done.stderr[-2000:]}")
    return time.perf_counter() - began


class FirstSteps:
    """Starts training again and again, until the first step is made.

    Args:
      arguments: of `t2t_jax.main`, all but --workdir.
      folder: where runs and caches go.
    """

    def __init__(self, arguments: list[str], folder: Path):
        self.arguments, self.folder, self.runs = arguments, folder, 0
        self.programs = folder / "programs0"

    def cold(self) -> float:
        """Seconds without compiled programs; they are left for `warm`."""
        self.programs = self.folder / f"programs{self.runs + 1}"
        return self._seconds()

    def warm(self) -> float:
        """Seconds with the programs of the start before."""
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
                *(sys.executable, "-m", "t2t_jax.main"),
                *(f"--workdir={workdir}", *self.arguments),
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
        raise RuntimeError("no first step was made:\n" + "".join(lines[-30:]))


def first_steps(config: str, given, folder: Path) -> FirstSteps:
    """Makes text, tokenizer and token arrays; what is measured then is not that."""
    prefix = write_text(folder, given.pairs)
    arguments = [
        f"--config={config}",
        f"--config.data.train={prefix}",
        "--config.data.dev=",
        "--config.data.test=",
        f"--config.data.vocab_size={given.vocab}",
        f"--config.data.batch_tokens={given.tokens}",
        "--config.data.source=en",
        "--config.data.target=de",
        "--config.data.feeder=numpy",
    ]
    starts = FirstSteps(arguments, folder)
    starts.warm()
    return starts


def define_flags():
    define_config_flag()
    measuring.define_flags(rounds=3)
    flags.DEFINE_list("parts", ["import", "help", "step"], "What is measured.")
    flags.DEFINE_integer("pairs", 20_000, "Of the made-up text.", lower_bound=1000)
    flags.DEFINE_integer("vocab", 16_000, "Its pieces.")
    flags.DEFINE_integer("tokens", 1_024, "Of a batch, a side.")


def main(_):
    given = flags.FLAGS
    measuring.begin(given)
    parts = measuring.chosen(given.parts, ["import", "help", "step"], "parts")
    config = given["config"].config_filename
    with tempfile.TemporaryDirectory() as folder:
        rows = []
        if "import" in parts:
            statements = IMPORTS | {"import jax": "import jax"}
            seconds = measuring.alternate(
                {s: lambda code=code: imported(code) for s, code in statements.items()},
                given.rounds,
            )
            floor = seconds.pop("import jax")
            beside = {"peer": floor, "peer_name": "import jax", "more_is_better": False}
            rows += [
                measuring.Row(name, "s", own, floor_share=floor / own, **beside)
                for name, own in seconds.items()
            ]
        if "help" in parts:
            seconds = measuring.alternate(
                {name: lambda name=name: helped(name) for name in COMMANDS},
                given.rounds,
            )
            rows += [_alone(f"{name} --help", s) for name, s in seconds.items()]
        if "step" in parts:
            starts = first_steps(config, given, Path(folder))
            seconds = {"cold": [], "warm": []}
            for _ in range(given.rounds):  # a warm one follows its cold one
                seconds["cold"].append(starts.cold())
                seconds["warm"].append(starts.warm())
            name = config_files.config_name(config)
            rows += [
                _alone(f"{name} first step, {how}", measuring.median(found))
                for how, found in seconds.items()
            ]
        measuring.publish(rows, given.json)


def _alone(work: str, seconds: float) -> measuring.Row:
    return measuring.Row(work, "s", seconds, more_is_better=False)


if __name__ == "__main__":
    run(main, define_flags, config="base")
