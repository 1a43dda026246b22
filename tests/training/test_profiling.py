"""A trace of some steps, made while they are trained."""

import gzip
import json

import jax
import jax.numpy as jnp
import pytest

from t2t_jax.io.errors import UserError
from t2t_jax.run.profiling import profiler


def test_only_the_steps_asked_for_are_recorded(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    after_step = profiler(3, 4)

    def train(step):
        return jnp.ones((4, 4)) @ jnp.ones((4, 4)) * step

    for step in range(1, 7):
        with jax.profiler.TraceAnnotation(f"step {step}"):
            state = train(step)
        after_step(step, state)
    (file,) = tmp_path.glob("profiles/3-4/**/perfetto_trace.json.gz")
    assert str(file.relative_to(tmp_path)) in capsys.readouterr().err
    events = json.loads(gzip.decompress(file.read_bytes()))["traceEvents"]
    names = {event.get("name", "") for event in events}
    assert {f"step {i}" for i in range(1, 7)} & names == {"step 3", "step 4"}
    with pytest.raises(UserError, match="3-4 exists; remove it first"):
        profiler(3, 4)
