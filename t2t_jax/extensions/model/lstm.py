"""Recurrent encoder-decoder with attention: LSTM layers.

Google's translator of 2016 (Wu et al., "Google's Neural Machine Translation System",
sections 3 to 3.3), and the plain form of Luong et al. 2015 ("Effective Approaches to
Attention-based Neural Machine Translation", sections 3 and 3.1).

    LSTM           the model, both forms
    ...Attention   attention with one head, by each paper
    LSTMLayer      the layer; `recur` runs it over time, with a gradient of its own

Shape suffixes: b batch, n hypotheses, s source, t target or length, d width, e width of
the encoder's output, g the four gates, h width of the state.
"""

import dataclasses
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from flax import nnx
from jax import Array

from t2t_jax.extensions.model.parts import States, gathered, single_head, tokens_at_step
from t2t_jax.io.errors import UserError
from t2t_jax.model.architecture import (
    NORM_FIELDS,
    POSITION_FIELDS,
    TRANSFORMER_FIELDS,
    Architecture,
)
from t2t_jax.model.attention import NO_POSITION
from t2t_jax.model.embedding import Embedding
from t2t_jax.model.layers import (
    constant,
    dropout,
    dropout_rngs,
    named,
    rematerialized,
    weight,
)
from t2t_jax.model.mask import Mask, Tokens
from t2t_jax.model.products import product
from t2t_jax.parallel.mesh import constrain
from t2t_jax.sections import field


class LSTMState(NamedTuple):
    """The cell and the output of a layer after some tokens, [..., d]."""

    cell: Array  # float32
    hidden: Array


class EncodedSource(NamedTuple):
    """The encoded source."""

    z_bse: Array  # the encoder's outputs
    keys_bsd: Array  # the keys of attention
    at: Tokens  # the source tokens
    # The state [b, d] of each encoder layer after the sentence (one a row); empty if
    # the decoder begins with zeros.
    last_states: list[LSTMState]


class LSTM(Architecture):
    """Recurrent encoder and decoder with attention.

    `lstm_form="gnmt"` (Wu et al. 2016): the first encoder layer reads in both
    directions; from the third layer on, inputs are added to outputs; every decoder
    layer also reads a context, which additive attention finds with the first decoder
    layer's output of the previous step. `"luong"` (Luong et al. 2015): plain stacks;
    the decoder begins with the encoder's last states, and attention follows the last
    layer, without input feeding.
    """

    @dataclasses.dataclass(frozen=True)
    class Options:
        """`lstm_form`: the paper whose shape it has."""

        lstm_form: str = field("gnmt", ("gnmt", "luong"))

    packs = True  # the state is reset where a sentence begins
    cross_layers = 1
    unused = TRANSFORMER_FIELDS | POSITION_FIELDS | NORM_FIELDS

    def __init__(self, config, vocab_size, rng, source_vocab_size=None):
        self.config = config
        self.luong = config.own_options(LSTM).lstm_form == "luong"
        count, decoder_count = (
            config.side(name).layers for name in ("encoder", "decoder")
        )
        if self.luong and count != decoder_count:
            raise UserError(
                f"config.model.options.lstm_form='luong' hands the states of {count} "
                f"encoder layers to {decoder_count} decoder layers; want as many on "
                "both sides: leave out config.model.encoder_layers and decoder_layers"
            )
        d = config.width
        # Two directions of the first layer, one of the others.
        self.encoder = nnx.List([])
        for i in range(count):
            layer_rng = named(rng, "encoder", i)
            inputs = 2 * d if i == 1 and not self.luong else d
            layer = {"forward": LSTMLayer(inputs, d, named(layer_rng, "forward"))}
            if i == 0 and not self.luong:
                layer["backward"] = LSTMLayer(inputs, d, named(layer_rng, "backward"))
            self.encoder.append(nnx.Dict(layer))
        e = 2 * d if count == 1 and not self.luong else d
        self.decoder = nnx.List(
            LSTMLayer(d if self.luong else d + e, d, named(rng, "decoder", i))
            for i in range(decoder_count)
        )
        kind = GeneralAttention if self.luong else AdditiveAttention
        self.attention = kind(e, d, named(rng, "attention"))
        self.embedding = Embedding(
            config, vocab_size, named(rng, "embedding"), source_vocab_size
        )

    # ------------------------------------------------------------------------- encoder

    def encode(self, source_bs, at, rng=None) -> EncodedSource:
        """Encodes sources, one in each row."""
        source, states = self._encoded(source_bs, at, rng)
        if self.luong:
            one_b1 = jnp.ones((source_bs.shape[0], 1), at.segment.dtype)
            last_states = _last_states(states, at.segment, one_b1)
            source = source._replace(
                last_states=jax.tree.map(lambda x: x[:, 0], last_states)
            )
        return source

    def _encoded(
        self, source_bs, at: Tokens, rng
    ) -> tuple[EncodedSource, list[LSTMState]]:
        """The encoded source, and the states of each layer's forward direction."""
        embedding_rng, *rngs = dropout_rngs(rng, 1 + len(self.encoder))
        x_bsd = self.embedding.source(source_bs, at, NO_POSITION, embedding_rng)
        states = []
        for i, (layer, layer_rng) in enumerate(zip(self.encoder, rngs, strict=True)):
            forward = rematerialized(layer["forward"], self.config, rng)
            state = forward(x_bsd, at.segment)
            h_bsd = state.hidden
            if "backward" in layer:
                backward = partial(layer["backward"], reverse=True)
                backward = rematerialized(backward, self.config, rng)
                backward_state = backward(x_bsd, at.segment)
                h_bsd = jnp.concatenate([h_bsd, backward_state.hidden], axis=-1)
            x_bsd = self._with_residual(i, x_bsd, h_bsd, layer_rng)
            states.append(state)
        keys_bsd = product("bse,ed->bsd", x_bsd, self.attention.key)
        return EncodedSource(x_bsd, keys_bsd, at, []), states

    def _with_residual(self, i: int, x_btd: Array, h_btd: Array, rng) -> Array:
        """Drops out a layer's output and adds its input, from the third layer on."""
        h_btd = dropout(h_btd, self.config.dropout, rng)
        return h_btd if i < 2 or self.luong else x_btd + h_btd

    # ------------------------------------------------------------------------- decoder

    def outputs(self, batch, rng=None, trace=None):
        """Returns the decoder's outputs, [b, t, d]; arguments as for `Architecture`."""
        source_rng, target_rng = dropout_rngs(rng, 2)
        source_at, at = (Tokens.of(batch, side) for side in ("source", "target"))
        source, states = self._encoded(batch["source"], source_at, source_rng)
        embedding_rng, *rngs = dropout_rngs(target_rng, 1 + len(self.decoder))
        tokens_bt = batch["target_input"]
        x_btd = self.embedding.target(tokens_bt, at, NO_POSITION, embedding_rng)
        bias_bts = Mask(at, source_at).bias()[:, 0]
        context: list[Array] = []
        initial = [None] * len(self.decoder)
        if self.luong:
            initial = _last_states(states, source_at.segment, at.segment)
        for i, (layer, layer_rng) in enumerate(zip(self.decoder, rngs, strict=True)):
            if i == 0 and not self.luong:
                first_layer = rematerialized(self._first_layer, self.config, rng)
                h_btd, context_bte, weights_bts = first_layer(
                    x_btd, at.segment, source, bias_bts
                )
                context = [context_bte]
            else:
                inputs = jnp.concatenate([x_btd, *context], axis=-1)
                run = rematerialized(layer, self.config, rng)
                h_btd = run(inputs, at.segment, initial[i]).hidden
            x_btd = self._with_residual(i, x_btd, h_btd, layer_rng)
            # Luong's outputs are those of the attention after the last layer.
            if trace is not None and not self.luong:
                trace.add_output(x_btd)
        if self.luong:
            context_bte, weights_bts = attend(self.attention, x_btd, source, bias_bts)
            x_btd = self.attention.outputs(context_bte, x_btd)
        if trace is not None:
            trace.cross.append(weights_bts[:, None])
        return constrain(x_btd, "batch", "length", "features")

    def _first_layer(self, x_btd, segment_bt, source: EncodedSource, bias_bts):
        """Runs the first decoder layer; the query is its output of the previous step.

        Unlike in `recur`, the gradients of its weights are summed up inside the scan.

        Returns:
          Its outputs [b, t, d], the contexts [b, t, e] and the weights [b, t, s].
        """
        attention, layer = gathered(self.attention), gathered(self.decoder[0])

        def step(state, step_inputs):
            gates_bgd, begins_b, bias_bs = step_inputs
            state = restarted(state, begins_b)
            context_bne, weights_bns = attend(
                attention, state.hidden, source, bias_bs[:, None]
            )
            state = self._first_step(layer, state, gates_bgd[:, None], context_bne)
            return state, (state.hidden, context_bne, weights_bns)

        x_tbd, *begins_and_bias = by_time((x_btd, beginnings(segment_bt), bias_bts))
        initial = zero_state((x_btd.shape[0], 1, self.config.width), x_btd.dtype)
        # The tokens' part in the gates, for all steps at once.
        inputs = layer.project(x_tbd, slice(self.config.width)), *begins_and_bias
        _, outputs = jax.lax.scan(step, initial, inputs)
        return jax.tree.map(lambda x: x[:, :, 0], by_time(outputs))

    def _first_step(
        self, layer, state: LSTMState, projected_bngd, context_bne
    ) -> LSTMState:
        """One step of the first layer, of n hypotheses."""
        context_bngd = layer.project(context_bne, slice(self.config.width, None))
        return layer.step(state, projected_bngd + context_bngd)

    def initial_cache(self, memory, beams, room) -> States:
        """Returns the states before the first step: zeros, or the encoder's last."""
        b, d = memory.z_bse.shape[0], self.config.width
        if self.luong:
            states = jax.tree.map(
                lambda x_bd: jnp.broadcast_to(x_bd[:, None], (b, beams, d)),
                memory.last_states,
            )
        else:
            state = zero_state((b, beams, d), memory.z_bse.dtype)
            states = [state for _ in self.decoder]
        return States(states)

    def step(self, memory, cache, token_bn, position):
        """Runs one decoding step; arguments and results as for `Architecture`."""
        at = tokens_at_step(token_bn, position)
        x_bnd = self.embedding.target(token_bn, at, NO_POSITION, None)
        bias_bns = Mask(at, memory.at).bias()[:, 0]
        states, context = [], []
        for i, (layer, state) in enumerate(
            zip(self.decoder, cache.arrays, strict=True)
        ):
            if i == 0 and not self.luong:
                context_bne, _ = attend(self.attention, state.hidden, memory, bias_bns)
                context = [context_bne]
                projected_bngd = layer.project(x_bnd, slice(self.config.width))
                state = self._first_step(layer, state, projected_bngd, context_bne)
            else:
                inputs = jnp.concatenate([x_bnd, *context], axis=-1)
                state = layer.step(state, layer.project(inputs))
            x_bnd = self._with_residual(i, x_bnd, state.hidden, None)
            states.append(state)
        if self.luong:
            context_bne, _ = attend(self.attention, x_bnd, memory, bias_bns)
            x_bnd = self.attention.outputs(context_bne, x_bnd)
        return x_bnd, States(states)


def _last_states(
    states: list[LSTMState], source_segment_bs: Array, segment_bt: Array
) -> list[LSTMState]:
    """The states [b, t, d] after the source sentence that each token belongs to."""
    index_s = jnp.arange(source_segment_bs.shape[1])
    same_bts = segment_bt[:, :, None] == source_segment_bs[:, None]
    last_bt = jnp.max(jnp.where(same_bts, index_s, 0), axis=2)
    return jax.tree.map(
        lambda x_bsd: jnp.take_along_axis(x_bsd, last_bt[..., None], axis=1), states
    )


def attend(attention, h_btd: Array, source: EncodedSource, bias_bts: Array):
    """Returns the context of each query, [b, t, e], and the weights [b, t, s]."""
    scores_bts = attention.scores(h_btd, source.keys_bsd)
    return single_head(scores_bts + bias_bts, source.z_bse)


class AdditiveAttention(nnx.Module):
    """score^T tanh(query + key) (Bahdanau et al. 2015, appendix A.1.2)."""

    def __init__(self, inputs: int, width: int, rng: Array):
        hidden = {"hidden": width}
        self.query = weight(named(rng, "query"), {"width": width}, hidden)
        self.key = weight(named(rng, "key"), {"width": inputs}, hidden)
        self.score = uniform(named(rng, "score"), width, hidden)

    def scores(self, h_btd: Array, keys_bsd: Array) -> Array:
        """float32 [b, t, s]."""
        dtype = h_btd.dtype
        query_btd = product("btd,dh->bth", h_btd, self.query)

        # Recomputed for the gradient: a scan that stores these for every step takes
        # memory for all pairs of tokens times d, and on a CPU four times as long.
        @jax.checkpoint
        def compare(query_btd, keys_bsd, score_d):
            hidden_btsd = jnp.tanh(query_btd[:, :, None] + keys_bsd[:, None])
            return jnp.matmul(hidden_btsd, score_d, preferred_element_type=jnp.float32)

        return compare(query_btd, keys_bsd, self.score[...].astype(dtype))


class GeneralAttention(nnx.Module):
    """h^T key^T z, called "general" in Luong et al. 2015 (section 3.1)."""

    def __init__(self, inputs: int, width: int, rng: Array):
        self.key = weight(named(rng, "key"), {"width": inputs}, {"hidden": width})
        joined = {"width": inputs + width}
        self.combine = weight(named(rng, "combine"), joined, {"hidden": width})

    def scores(self, h_btd: Array, keys_bsd: Array) -> Array:
        """float32 [b, t, s]."""
        return jnp.einsum(
            "btd,bsd->bts", h_btd, keys_bsd, preferred_element_type=jnp.float32
        )

    def outputs(self, context_bte: Array, h_btd: Array) -> Array:
        """The attentional hidden state (equation 5)."""
        joined = jnp.concatenate([context_bte, h_btd], axis=-1)
        return jnp.tanh(product("bte,ed->btd", joined, self.combine))


class LSTMLayer(nnx.Module):
    """Long short-term memory (Hochreiter and Schmidhuber 1997; Gers et al. 2000)."""

    def __init__(self, inputs: int, width: int, rng: Array):
        gates = {"gates": 4, "hidden": width}  # input, forget, cell, output
        # These names are part of the checkpoint format.
        self.input = uniform(named(rng, "input"), width, {"width": inputs, **gates})
        self.recurrent = uniform(
            named(rng, "recurrent"), width, {"width": width, **gates}
        )
        self.bias = constant(0.0, gates)
        # The forget gate is open at first: the cell remembers (Jozefowicz et al. 2015).
        self.bias[...] = self.bias[...].at[1].set(1.0)

    def project(self, x_btd: Array, rows: slice = slice(None)) -> Array:
        """Projects inputs to the gates, [b, t, g, h], with these rows of `input`."""
        matrix_dgh = self.input[...][rows].astype(x_btd.dtype)
        return jnp.einsum("btd,dgh->btgh", x_btd, matrix_dgh)

    def step(self, state: LSTMState, projected: Array) -> LSTMState:
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
        initial: LSTMState | None = None,
        reverse: bool = False,
    ) -> LSTMState:
        """Returns the states after each token, [b, t, d].

        Args:
          initial: [b, t, d], those before each token that begins a sentence; None: 0.
          reverse: reads each sentence from its end.
        """
        layer = gathered(self)
        matrix_dgh, bias_gh = layer._recurrent_and_bias(x_btd.dtype)
        begins_bt = beginnings(segment_bt, reverse)
        # Transposed before the projection, which makes them four times as large.
        x_tbd, begins_tb, initial = by_time((x_btd, begins_bt, initial))
        projected_tbgh = layer.project(x_tbd) + bias_gh
        states = recur(reverse, matrix_dgh, projected_tbgh, begins_tb, initial)
        return jax.tree.map(
            lambda x: constrain(x, "batch", "length", "features"), by_time(states)
        )


def _next(cell: Array, gates: Array) -> LSTMState:
    """The state after a token, from the cell before it and the sums of the gates."""
    i, f, g, o = (gates[..., k, :].astype(jnp.float32) for k in range(4))
    cell = jax.nn.sigmoid(f) * cell + jax.nn.sigmoid(i) * jnp.tanh(g)
    return LSTMState(cell, (jax.nn.sigmoid(o) * jnp.tanh(cell)).astype(gates.dtype))


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def recur(
    reverse: bool,
    matrix_dgh: Array,
    projected_tbgh: Array,
    begins_tb: Array,
    initial: LSTMState | None,
) -> LSTMState:
    """Returns the states after each token, [t, b, d]; all arrays begin with time.

    The gradient of the matrix is one product after the scan. JAX would sum it up inside
    the scan, and read and write the sum at every step.
    """
    return _recur(reverse, matrix_dgh, projected_tbgh, begins_tb, initial)[0]


def _recur(reverse, matrix_dgh, projected_tbgh, begins_tb, initial):
    """Returns the states, and what their gradients need."""

    def step(state, step_inputs):
        projected_bgh, begins_b, initial = step_inputs
        previous = restarted(state, begins_b, initial)
        gates_bgh = projected_bgh + jnp.einsum(
            "bd,dgh->bgh", previous.hidden, matrix_dgh
        )
        states = _next(previous.cell, gates_bgh)
        return states, (states, previous, gates_bgh)

    b, _, d = projected_tbgh.shape[1:]
    inputs = projected_tbgh, begins_tb, initial
    state = zero_state((b, d), projected_tbgh.dtype)
    _, (states, previous, gates_tbgh) = jax.lax.scan(
        step, state, inputs, reverse=reverse
    )
    # The structure of `initial`, without its arrays: a flag would be traced.
    has_initial = None if initial is None else ()
    return states, (matrix_dgh, previous, gates_tbgh, begins_tb, has_initial)


def _recur_backward(reverse, stored, gradient: LSTMState):
    matrix_dgh, previous, gates_tbgh, begins_tb, has_initial = stored

    def step(grad_state, step_inputs):
        grad_after, cell_bd, gates_bgh, begins_b = step_inputs
        _, pull = jax.vjp(_next, cell_bd, gates_bgh)
        grad_cell, grad_gates = pull(jax.tree.map(jnp.add, grad_state, grad_after))
        grad_hidden = jnp.einsum("bgh,dgh->bd", grad_gates, matrix_dgh)
        grad_before = LSTMState(grad_cell, grad_hidden)
        zeros = jax.tree.map(jnp.zeros_like, grad_before)
        # Where a sentence begins, the state was `initial`: the gradient goes there, and
        # none goes to the token before.
        grad_initial = None
        if has_initial is not None:
            grad_initial = restarted(zeros, begins_b, grad_before)
        return restarted(grad_before, begins_b, zeros), (grad_gates, grad_initial)

    zeros_state = jax.tree.map(lambda x: jnp.zeros_like(x[0]), gradient)
    inputs = gradient, previous.cell, gates_tbgh, begins_tb
    _, (grad_gates, grad_initial) = jax.lax.scan(
        step, zeros_state, inputs, reverse=not reverse
    )
    grad_matrix = jnp.einsum("tbd,tbgh->dgh", previous.hidden, grad_gates)
    return grad_matrix, grad_gates, None, grad_initial


recur.defvjp(_recur, _recur_backward)


def uniform(rng: Array, width: int, axes: dict[str, int]) -> nnx.Param:
    """A weight drawn uniformly from +-1 / sqrt(width)."""
    bound = width**-0.5
    drawn = jax.random.uniform(rng, (*axes.values(),), jnp.float32, -bound, bound)
    return nnx.Param(drawn, axes=(*axes,))


def zero_state(shape: tuple[int, ...], dtype) -> LSTMState:
    """The state before a sentence."""
    return LSTMState(jnp.zeros(shape, jnp.float32), jnp.zeros(shape, dtype))


def beginnings(segment_bt: Array, reverse: bool = False) -> Array:
    """Marks the tokens that begin a sentence, bool [b, t]; reversed: that end it."""
    if reverse:
        return beginnings(segment_bt[:, ::-1])[:, ::-1]
    return jnp.diff(segment_bt, axis=1, prepend=-1) != 0


def restarted(
    state: LSTMState, begins_b: Array, initial: LSTMState | None = None
) -> LSTMState:
    """The state [b, ...], or in rows where a sentence begins, `initial` or zeros."""
    initial = initial or jax.tree.map(jnp.zeros_like, state)

    def restart(new: Array, old: Array) -> Array:
        return jnp.where(begins_b.reshape(-1, *[1] * (old.ndim - 1)), new, old)

    return jax.tree.map(restart, initial, state)


def by_time(tree):
    """Swaps the first two axes: a scan's time comes first."""
    return jax.tree.map(lambda x: x.swapaxes(0, 1), tree)
