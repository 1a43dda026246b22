"""A trace of some steps, made while they are trained."""

import gzip
import json

import jax
import jax.numpy as jnp
import pytest

from t2t_jax.io.errors import UserError
from t2t_jax.run.profiling import Profiler


def test_only_the_steps_asked_for_are_recorded(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    after_step = Profiler(3, 4, steps=6)

    def train(step):
        return jnp.ones((4, 4)) @ jnp.ones((4, 4)) * step

    for step in (1, 2, 3, 1, 2, 3, 4, 5, 2, 3):  # with rollbacks
        with jax.profiler.TraceAnnotation(f"step {step}"):
            state = train(step)
        after_step(step, None, {}, state)
    (file,) = tmp_path.glob("profiles/3-4/**/perfetto_trace.json.gz")
    assert str(file.relative_to(tmp_path)) in capsys.readouterr().err
    events = json.loads(gzip.decompress(file.read_bytes()))["traceEvents"]
    names = {event.get("name", "") for event in events}
    trained = {f"step {i}" for i in (1, 2, 3, 4)}  # from the first 2 to the 4
    assert {f"step {i}" for i in range(1, 7)} & names == trained
    with pytest.raises(UserError, match="3-4 exists; remove it first"):
        Profiler(3, 4, steps=6)
    with Profiler(5, 6, steps=6):
        pass
    assert "step 5 was not trained" in capsys.readouterr().err
    with Profiler(5, 6, steps=6) as after_step:
        after_step(4, None, {}, jnp.ones(1))
    assert "are recorded" in capsys.readouterr().err
