"""Runs one row of an experiment: trains, then measures."""

import dataclasses
import errno
import gc
import json
import math
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax

from t2t_jax.io.atomic import keep_earlier, write_atomically
from t2t_jax.io.errors import UserError, did_you_mean
from t2t_jax.io.messages import say
from t2t_jax.model.model import build
from t2t_jax.parallel.machine import describe_machine
from t2t_jax.run.train import train
from t2t_jax.tools.experiment.context import Context
from t2t_jax.tools.experiment.experiment import Measure, Row, Run
from t2t_jax.tools.experiment.measures import MEASURES
from t2t_jax.tools.experiment.results import (
    FAILURE,
    MEASURED,
    OUTCOME,
    TRAINING,
    RunResult,
    read_json,
)
from t2t_jax.workdir import Workdir

# These errors of a disk would fail every row, so they end the process instead.
_DISK = {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO, errno.ESTALE}


def run(
    row: Row,
    run: Run,
    workdir: Path,
    needs: Mapping[str, Sequence[Path]],
    check_owner: Callable[[], None],
) -> None:
    """Trains and measures what is not done yet; records an error as `failure.json`.

    Args:
      workdir: of the run, maybe of an interrupted one, which then continues.
      needs: the workdirs of the rows that the row needs.
      check_owner: raises an error once the run belongs to another process.

    Raises:
      KeyboardInterrupt: Ctrl-C or SIGTERM; everything trained so far is saved.
      OSError: an error of the disk.
    """
    keep_earlier(workdir / FAILURE)
    step = TRAINING
    try:
        if run.config is not None and not (workdir / OUTCOME).exists():
            started = time.monotonic()
            train(run.config, workdir)
            check_owner()
            seconds = time.monotonic() - started
            _write(workdir / OUTCOME, totals(workdir) | {"seconds": seconds})
        for measure in row.measures:
            step = measure.name
            if not is_measured(measure, workdir, needs):
                say(f"measuring {measure.name}")
                content = _measured(measure, Context(workdir, run.config, needs))
                check_owner()
                keep_earlier(_file(measure, workdir))  # of other arguments or needs
                _write(_file(measure, workdir), content)
    except Exception as e:
        if isinstance(e, OSError) and e.errno in _DISK:
            raise
        check_owner()
        say(f"failed: {e}")
        _write(workdir / FAILURE, {"step": step} | _failure(e))
    finally:
        # The next row has other programs: free the memory of these.
        jax.clear_caches()
        gc.collect()


def is_done(row: Row, workdir: Path, needs: Mapping[str, Sequence[Path]]) -> bool:
    """True once the row is trained and measured in a workdir; arguments as of `run`."""
    trained = row.config is None or (workdir / OUTCOME).exists()
    return trained and all(
        is_measured(measure, workdir, needs) for measure in row.measures
    )


def is_measured(
    measure: Measure, workdir: Path, needs: Mapping[str, Sequence[Path]]
) -> bool:
    """True if a workdir has the result of a measure, of the same arguments and runs."""
    stored = read_json(_file(measure, workdir))
    wanted = dataclasses.asdict(measure) | {"needs": _names(needs)}
    wanted = json.loads(json.dumps(wanted))  # tuples are lists
    return wanted.items() <= ({"needs": {}} | stored).items()


def _names(needs: Mapping[str, Sequence[Path]]) -> dict[str, list[str]]:
    return {row: [path.name for path in paths] for row, paths in needs.items()}


def totals(workdir: Path) -> dict[str, Any]:
    """Sums over a finished training run, from its config and `metrics.jsonl`.

    Returns:
      `parameters`; `steps`; `tokens` (real ones of both sides), `flops` (of the matrix
      products of all steps; None if they cannot be counted) and `minutes`, all of
      training alone, without validation, translation, and steps that a killed process
      repeated; `machine`.
    """
    opened = Workdir.open(workdir)
    model = build(opened.config().model, *opened.vocabulary().sizes)
    run = RunResult(None, workdir)
    entries = [entry for entry in run.metrics if entry["kind"] == "train"]
    steps = [0, *(entry["step"] for entry in entries)]

    def total(name: str) -> float | None:
        values = [entry[name] for entry in entries]
        return None if None in values else math.fsum(values)

    # Not their `seconds`, which leave out what a restart finds trained already.
    seconds = [
        (last - first) * entry["seconds_per_step"]
        for first, last, entry in zip(steps, steps[1:], entries, strict=False)
    ]

    return {
        "parameters": model.count(),
        "steps": steps[-1],
        "tokens": total("tokens"),
        "flops": total("flops"),
        "minutes": math.fsum(seconds) / 60,
        "machine": describe_machine(),
    }


def _measured(measure: Measure, context: Context) -> dict[str, Any]:
    """Computes a measure; returns the content of its file."""
    if measure.function not in MEASURES:
        raise UserError(
            f"no measure {measure.function!r}"
            f"{did_you_mean(measure.function, MEASURES)}; add it to MEASURES of "
            "t2t_jax/tools/experiment/measures.py"
        )
    started = time.monotonic()
    result = MEASURES[measure.function](context, **measure.arguments)
    return dataclasses.asdict(measure) | {
        "needs": _names(context.needs),
        "result": result,
        "seconds": time.monotonic() - started,
        "machine": describe_machine(),
    }


def _failure(error: Exception) -> dict[str, Any]:
    return {
        "error": f"{error}" if isinstance(error, UserError) else repr(error),
        "traceback": "".join(traceback.format_exception(error)),
        "unix_time": time.time(),
        "machine": describe_machine(),
    }


def _file(measure: Measure, workdir: Path) -> Path:
    return workdir / MEASURED / f"{measure.name}.json"


def _write(file: Path, content: Mapping[str, Any]) -> None:
    write_atomically(file, json.dumps(content, indent=1).encode() + b"\n")
