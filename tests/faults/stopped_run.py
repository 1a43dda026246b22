"""A run that was stopped and goes on, for the tests that damage it in between."""

import json

from t2t_jax import train
from tests.faults.damage import same_arrays
from tests.small_run import config_for


def go_on(workdir, text, steps=12, data=None, model=None, **fields):
    """Trains on the same text to a step; saved after 4, 8 and 12."""
    fields = {"steps": steps, "log_every": 2} | fields
    data = {"test": "", "dev": ""} | (data or {})
    train(config_for(text, train=fields, data=data, model=model or {}), workdir)


def metrics_of(workdir):
    """The lines of `metrics.jsonl`, without what a clock says."""
    return [
        {k: v for k, v in json.loads(line).items() if "second" not in k}
        for line in (workdir / "metrics.jsonl").read_bytes().splitlines()
    ]


def assert_same_end(workdir, whole):
    """The last state, to the bit, what is averaged, and the metrics."""
    for place in ("state/12", "parameters/12", "parameters/8"):
        ours, theirs = (w / "checkpoints" / place for w in (workdir, whole))
        assert same_arrays(ours, theirs), place
    assert metrics_of(workdir) == metrics_of(whole)
