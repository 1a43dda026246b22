"""Trees of arrays compared byte by byte; who executed a step of a run."""

import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import given, settings

from t2t_jax.run.differences import compare_trees
from t2t_jax.training.averaging import parameters_sha256
from t2t_jax.training.provenance_log import Start, starts_of_steps

TREE = {
    "b": {"x": np.arange(6.0).reshape(2, 3)},
    "a": np.zeros(4, np.int32),
    "n": np.array([np.nan]),
}


@settings(max_examples=20)
@given(st.data())
def test_one_flipped_bit_is_found_where_it_is(data):
    dtype = data.draw(st.sampled_from(["float32", "bfloat16", "int32"]))
    x = np.asarray(jnp.arange(12).astype(dtype)).reshape(3, 4)
    octets = bytearray(x.tobytes())
    bit = data.draw(st.integers(0, 8 * len(octets) - 1))
    octets[bit // 8] ^= 1 << bit % 8
    flipped = np.frombuffer(bytes(octets), x.dtype).reshape(3, 4)
    differences = compare_trees({"a": x, "z": x}, {"a": x, "z": flipped})
    (only,) = differences.differing
    assert (only.name, only.count) == ("z", 1)
    assert parameters_sha256({"z": x}) != parameters_sha256({"z": flipped})


def test_other_names_shapes_and_signs_are_differences_and_copies_are_not():
    copy = {name: jax.tree.map(np.copy, x) for name, x in reversed(TREE.items())}
    copies = compare_trees(TREE, copy)
    assert (copies.same, copies.arrays, copies.differing) == (True, 3, ())
    assert parameters_sha256(TREE) == parameters_sha256(copy)
    signs = compare_trees({"x": np.array([0.0])}, {"x": np.array([-0.0])})
    assert signs.differing[0].count == 1
    differences = compare_trees(
        {"x": np.zeros(2), "y": np.zeros(1)}, {"x": np.zeros(3)}
    )
    assert not differences.same
    assert differences.unmatched == ("y",)
    assert differences.differing[0].shape == (2,)


@settings(max_examples=50)
@given(
    st.lists(st.tuples(st.integers(0, 20), st.integers(1, 12)), min_size=1, max_size=5),
    st.integers(1, 30),
    st.integers(0, 30),
)
def test_a_start_is_found_as_by_replaying_the_run(lives, first_step, length):
    """Each start continues somewhere up to the end so far, and trains some steps."""
    starts, executed_by, end = [], {}, 0
    for step_before, steps in lives:
        step_before = min(step_before, end)
        starts.append(Start(step_before, {"cores": len(starts)}, {}))
        for step in range(step_before + 1, step_before + steps + 1):
            executed_by[step] = starts[-1]
        end = step_before + steps
    first_step, last_step = min(first_step, end), min(first_step + length, end)
    expected = {
        executed_by[s].machine["cores"] for s in range(first_step, last_step + 1)
    }
    selected = starts_of_steps(starts, first_step, last_step)
    assert [s.machine["cores"] for s in selected] == sorted(expected)
    # After a rollback later starts count, too.
    assert starts_of_steps(starts, first_step, last_step, True)[-1] is starts[-1]
