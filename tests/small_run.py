"""A run that takes seconds, for the tests of whole runs."""

import fcntl
import json
import shutil
import time
from pathlib import Path

import jax
import numpy as np

from t2t_jax import load_config
from t2t_jax.config import from_config_dict
from t2t_jax.data.tokenizers.vocabulary import Vocabulary
from t2t_jax.io.atomic import checked_json, read_checked_json
from t2t_jax.model.model import build
from t2t_jax.run.differences import workdir_differences
from t2t_jax.tools.verify.child_runs import config_flags
from t2t_jax.tools.verify.random_models import random_parameters
from t2t_jax.training.averaging import parameter_steps, read_parameters
from t2t_jax.training.checkpoint import Checkpoints
from t2t_jax.workdir import Workdir

ROOT = Path(__file__).parent.parent
FIELDS = {
    "model": {"layers": 1, "width": 32, "heads": 2, "hidden": 32},
    "data": {
        "train": "train",
        "dev": "dev",
        "test": "test",
        "vocab_size": 400,
        "batching": "packed",
        "row_length": 64,
        "batch_tokens": 1_024,
        "feeder": "numpy",
    },
    "train": {
        "steps": 12,
        "warmup": 6,
        "log_every": 3,
        "eval_every": 6,
        "save_every": 4,
        "dev_lines": 4,
    },
    "decode": {"beam": 2, "average": 2, "extra_length": 6},
}


def until(condition, seconds=60):
    """Waits for what another thread or process does."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"it did not happen within {seconds} s"
        time.sleep(0.01)


def write_pairs(folder, **texts):
    """Writes NAME.en and NAME.de of each text, a line for each pair."""
    for name, pairs in texts.items():
        for side, language in enumerate(("en", "de")):
            lines = "".join(f"{pair[side]}\n" for pair in pairs)
            (folder / f"{name}.{language}").write_text(lines, encoding="utf-8")


def config_for(text, **sections):
    fields = {name: dict(values) for name, values in FIELDS.items()}
    fields["data"]["dir"] = str(text)
    for name, values in sections.items():
        fields.setdefault(name, {}).update(values)
    return load_config(ROOT / "configs/tiny.py", **fields)


def flags_for(text, workdir, **sections):
    """The command line of a small run."""
    flags = [f"--config={ROOT}/configs/tiny.py", f"--workdir={workdir}"]
    return [*flags, *config_flags(config_for(text, **sections).to_dict())]


def made_once(folder, make):
    """A folder that the first worker fills who wants it, while the others wait."""
    with open(folder.with_suffix(".lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            half = folder.with_suffix(".half")
            shutil.rmtree(half, ignore_errors=True)
            half.mkdir()
            make(half)
            half.rename(folder)
    return folder


def copy_with(workdir, folder, **decode):
    """A copy of a workdir whose `config.decode` has other fields."""
    shutil.copytree(workdir, folder)
    config = read_checked_json(folder / "config.json")
    config["decode"].update(decode)
    (folder / "config.json").write_bytes(checked_json(config))
    return folder


def contents(folder):
    return {name: content for name, (_, content) in files(folder).items()}


def files(folder):
    return {
        str(p.relative_to(folder)): (p.stat().st_mtime_ns, p.read_bytes())
        for p in sorted(folder.rglob("*"))
        if p.is_file()
    }


def logged(workdir, kind):
    """The entries of one kind in the log of a run."""
    lines = (Path(workdir) / "metrics.jsonl").read_text().splitlines()
    return [entry for entry in map(json.loads, lines) if entry["kind"] == kind]


def final_parameters(workdir, text):
    config = from_config_dict(config_for(text))
    shapes = build(
        config.model, len(Vocabulary.load(workdir / "tokenizer.model"))
    ).shapes
    return parameters_of(workdir, parameter_steps(workdir)[-1], shapes)


def parameters_of(workdir, step, shapes, kind="parameters"):
    return read_parameters(Workdir(workdir).checkpoints / kind / str(step), shapes)


def stored(folder, config, vocabulary, seed=0):
    """A workdir with random parameters of one step; its model, and the parameters."""
    model, workdir = build(config.model, *vocabulary.sizes), Workdir(folder)
    parameters = random_parameters(model, seed)
    checkpoints = Checkpoints(workdir, keep_parameters=1, keep_best=1)
    checkpoints.save_parameters(parameters, 3)
    checkpoints.close()
    workdir.store(config, vocabulary, {})
    return workdir, model, parameters


def assert_same(a, b):
    jax.tree.map(np.testing.assert_array_equal, a, b)


def assert_same_run(reference, workdir, *excluded):
    """All that two runs leave is equal to the bit, but for times and what `but` names.

    Names are those of `t2t_jax.run.differences.COMPARED`.
    """
    differences = workdir_differences(reference, workdir)
    assert not any(
        lines for name, lines in differences.items() if name not in excluded
    ), differences
