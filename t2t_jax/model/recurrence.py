"""Long short-term memory over the sentences of a row.

Shape suffixes: b batch, t length, d width, g the four gates, h width of the state.
"""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from flax import nnx
from jax import Array

from t2t_jax.model.layers import constant
from t2t_jax.parallel.mesh import constrain


class State(NamedTuple):
    """The cell and the output of a layer after some tokens, [..., d]."""

    cell: Array  # float32
    hidden: Array


class LSTMLayer(nnx.Module):
    """Long short-term memory (Hochreiter and Schmidhuber 1997; Gers et al. 2000)."""

    def __init__(self, inputs: int, width: int, rng: Array):
        input_rng, recurrent_rng = jax.random.split(rng)
        gates = {"gates": 4, "hidden": width}  # input, forget, cell, output
        # These names are part of the checkpoint format.
        self.input = uniform(input_rng, width, {"width": inputs, **gates})
        self.recurrent = uniform(recurrent_rng, width, {"width": width, **gates})
        self.bias = constant(0.0, gates)
        # The forget gate is open at first: the cell remembers (Jozefowicz et al. 2015).
        self.bias[...] = self.bias[...].at[1].set(1.0)

    def project(self, x_btd: Array, rows: slice = slice(None)) -> Array:
        """Projects inputs to the gates, [b, t, g, h], with these rows of `input`."""
        matrix_dgh = self.input[...][rows].astype(x_btd.dtype)
        return jnp.einsum("btd,dgh->btgh", x_btd, matrix_dgh)

    def step(self, state: State, projected: Array) -> State:
        """Computes one step from the projected input, [..., g, h]."""
        matrix_dgh, bias_gh = self._recurrent_and_bias(projected.dtype)
        from_state = jnp.einsum("...d,dgh->...gh", state.hidden, matrix_dgh)
        return _next(state.cell, projected + bias_gh + from_state)

    def _recurrent_and_bias(self, dtype) -> tuple[Array, Array]:
        return self.recurrent[...].astype(dtype), self.bias[...].astype(dtype)

    def __call__(
        self,
        x_btd: Array,
        segment_bt: Array,
        initial: State | None = None,
        reverse: bool = False,
    ) -> State:
        """Returns the states after each token, [b, t, d].

        Args:
          initial: [b, t, d], those before each token that begins a sentence; None: 0.
          reverse: reads each sentence from its end.
        """
        matrix_dgh, bias_gh = self._recurrent_and_bias(x_btd.dtype)
        begins_bt = beginnings(segment_bt, reverse)
        # Transposed before the projection, which makes them four times as large.
        x_tbd, begins_tb, initial = by_time((x_btd, begins_bt, initial))
        projected_tbgh = self.project(x_tbd) + bias_gh
        states = recur(reverse, matrix_dgh, projected_tbgh, begins_tb, initial)
        return jax.tree.map(
            lambda x: constrain(x, "batch", "length", "features"), by_time(states)
        )


def _next(cell: Array, gates: Array) -> State:
    """The state after a token, from the cell before it and the sums of the gates."""
    i, f, g, o = (gates[..., k, :].astype(jnp.float32) for k in range(4))
    cell = jax.nn.sigmoid(f) * cell + jax.nn.sigmoid(i) * jnp.tanh(g)
    return State(cell, (jax.nn.sigmoid(o) * jnp.tanh(cell)).astype(gates.dtype))


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def recur(
    reverse: bool,
    matrix_dgh: Array,
    projected_tbgh: Array,
    begins_tb: Array,
    initial: State | None,
) -> State:
    """Returns the states after each token, [t, b, d]; all arrays begin with time.

    The gradient of the matrix is one product after the scan. JAX would sum it up inside
    the scan, and read and write the sum at every step.
    """
    return _recur(reverse, matrix_dgh, projected_tbgh, begins_tb, initial)[0]


def _recur(reverse, matrix_dgh, projected_tbgh, begins_tb, initial):
    """Returns the states, and what their gradients need."""

    def step(state, now):
        projected_bgh, begins_b, initial = now
        before = restarted(state, begins_b, initial)
        gates_bgh = projected_bgh + jnp.einsum("bd,dgh->bgh", before.hidden, matrix_dgh)
        after = _next(before.cell, gates_bgh)
        return after, (after, before, gates_bgh)

    b, _, d = projected_tbgh.shape[1:]
    inputs = projected_tbgh, begins_tb, initial
    state = zero_state((b, d), projected_tbgh.dtype)
    _, (after, before, gates_tbgh) = jax.lax.scan(step, state, inputs, reverse=reverse)
    # The structure of `initial`, without its arrays: a flag would be traced.
    has_initial = None if initial is None else ()
    return after, (matrix_dgh, before, gates_tbgh, begins_tb, has_initial)


def _recur_backward(reverse, stored, gradient: State):
    matrix_dgh, before, gates_tbgh, begins_tb, has_initial = stored

    def step(grad_state, now):
        grad_after, cell_bd, gates_bgh, begins_b = now
        _, pull = jax.vjp(_next, cell_bd, gates_bgh)
        grad_cell, grad_gates = pull(jax.tree.map(jnp.add, grad_state, grad_after))
        grad_hidden = jnp.einsum("bgh,dgh->bd", grad_gates, matrix_dgh)
        grad_before = State(grad_cell, grad_hidden)
        zeros = jax.tree.map(jnp.zeros_like, grad_before)
        # Where a sentence begins, the state was `initial`: the gradient goes there, and
        # none goes to the token before.
        grad_initial = None
        if has_initial is not None:
            grad_initial = restarted(zeros, begins_b, grad_before)
        return restarted(grad_before, begins_b, zeros), (grad_gates, grad_initial)

    nothing = jax.tree.map(lambda x: jnp.zeros_like(x[0]), gradient)
    inputs = gradient, before.cell, gates_tbgh, begins_tb
    _, (grad_gates, grad_initial) = jax.lax.scan(
        step, nothing, inputs, reverse=not reverse
    )
    grad_matrix = jnp.einsum("tbd,tbgh->dgh", before.hidden, grad_gates)
    return grad_matrix, grad_gates, None, grad_initial


recur.defvjp(_recur, _recur_backward)


def uniform(rng: Array, width: int, axes: dict[str, int]) -> nnx.Param:
    """A weight drawn uniformly from +-1 / sqrt(width)."""
    bound = width**-0.5
    drawn = jax.random.uniform(rng, (*axes.values(),), jnp.float32, -bound, bound)
    return nnx.Param(drawn, axes=(*axes,))


def zero_state(shape: tuple[int, ...], dtype) -> State:
    """The state before a sentence."""
    return State(jnp.zeros(shape, jnp.float32), jnp.zeros(shape, dtype))


def beginnings(segment_bt: Array, reverse: bool = False) -> Array:
    """Marks the tokens that begin a sentence, bool [b, t]; reversed: that end it."""
    if reverse:
        return beginnings(segment_bt[:, ::-1])[:, ::-1]
    return jnp.diff(segment_bt, axis=1, prepend=-1) != 0


def restarted(state: State, begins_b: Array, initial: State | None = None) -> State:
    """The state [b, ...], or in rows where a sentence begins, `initial` or zeros."""
    initial = initial or jax.tree.map(jnp.zeros_like, state)

    def restart(new: Array, old: Array) -> Array:
        return jnp.where(begins_b.reshape(-1, *[1] * (old.ndim - 1)), new, old)

    return jax.tree.map(restart, initial, state)


def by_time(tree):
    """Swaps the first two axes: a scan's time comes first."""
    return jax.tree.map(lambda x: x.swapaxes(0, 1), tree)
