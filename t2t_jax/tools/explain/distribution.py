"""The distribution over the next token at each position of a target, and each layer.

Shape suffixes: b batch rows, t target, k best tokens, v vocabulary, d model width,
l decoder layers.
"""

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax import Array

from t2t_jax.data.tokenizers.vocabulary import Vocabulary
from t2t_jax.decoding.inputs import Member
from t2t_jax.decoding.programs import forced_logits, program
from t2t_jax.decoding.scoring import Pairs, run_batches
from t2t_jax.io.errors import UserError
from t2t_jax.model.attention import LayerTrace
from t2t_jax.model.layers import project

TOP = 10  # tokens listed for each position


class Distribution(NamedTuple):
    """The predictions of one target's tokens; row t predicts token t.

    Attributes:
      log_probs: of the given tokens, natural logarithms, float32 [t].
      entropy: of the whole distribution, in bits, float32 [t].
      rank: one more than the number of tokens more probable than the given, int32 [t].
      top_ids: the most probable tokens, best first, int32 [t, k].
      top_log_probs: their log-probabilities, float32 [t, k].
    """

    log_probs: np.ndarray
    entropy: np.ndarray
    rank: np.ndarray
    top_ids: np.ndarray
    top_log_probs: np.ndarray


def distributions(
    vocabulary: Vocabulary, members: Sequence[Member], pairs: Pairs
) -> list[Distribution]:
    """Computes the distribution at each position of each target (teacher forcing)."""
    # As for attention weights, each process computes all pairs.
    computed = dict(
        run_batches(target_distributions, vocabulary, members, pairs, divided=False)
    )
    return [
        Distribution(*(x[: len(target)] for x in computed[row]))
        for row, (_, target) in enumerate(pairs)
    ]


@program("definitions")
def target_distributions(
    parameters, batch: dict[str, Array], *, definitions
) -> Distribution:
    """Returns the distributions at each position of `batch["target"]`, [b, t, ...]."""
    logits_btv = forced_logits(definitions, parameters, batch)
    return describe_logits(logits_btv, batch["target"], TOP)


def describe_logits(logits_btv: Array, token_bt: Array, top: int) -> Distribution:
    """Describes the softmax of logits: `top` tokens, and the tokens that are given."""
    log_probs_btv = jax.nn.log_softmax(logits_btv)
    log_prob_bt1 = jnp.take_along_axis(log_probs_btv, token_bt[..., None], axis=2)
    # A probability of 0 has the logarithm -inf, and adds nothing to the entropy.
    nats_btv = jnp.exp(log_probs_btv) * jnp.maximum(log_probs_btv, -1e30)
    top_log_probs, top_ids = jax.lax.top_k(log_probs_btv, min(top, logits_btv.shape[2]))
    return Distribution(
        log_prob_bt1[..., 0],
        -nats_btv.sum(axis=2) / np.log(2),
        1 + (log_probs_btv > log_prob_bt1).sum(axis=2, dtype=jnp.int32),
        top_ids,
        top_log_probs,
    )


# ------------------------------------------------------------------------------- layers
# The logit lens: what each decoder layer would predict if it were the last one. The
# output layer reads every layer's output, normalized as the last one's is
# (nostalgebraist 2020, "interpreting GPT: the logit lens").

LAYER_TOP = 5  # tokens listed for each layer and position


class Lens(NamedTuple):
    """The predictions of each layer at each position of one target, first layer first.

    Attributes:
      top_ids: the most probable tokens, best first, int32 [l, t, LAYER_TOP].
      top_probs: their probabilities, float32 [l, t, LAYER_TOP].
      probs: probabilities of the given tokens, float32 [l, t].
      rank: one more than the number of tokens more probable than the given, [l, t].
    """

    top_ids: np.ndarray
    top_probs: np.ndarray
    probs: np.ndarray
    rank: np.ndarray


def lenses(vocabulary: Vocabulary, member: Member, pairs: Pairs) -> list[Lens]:
    """Reads every decoder layer through the output layer, for each pair.

    Raises UserError for a model without layers that the output layer can read.
    """
    # As for attention weights, each process computes all pairs.
    computed = dict(
        run_batches(layer_distributions, vocabulary, [member], pairs, divided=False)
    )
    results = []
    for row, (_, target) in enumerate(pairs):
        if not len(computed[row].rank):
            raise UserError(
                f"config.model.kind={member.config.model.kind!r} has no decoder layers "
                "whose outputs its output layer can read"
            )
        layers = Distribution(*(x[:, : len(target)] for x in computed[row]))
        top_probs, probs = np.exp(layers.top_log_probs), np.exp(layers.log_probs)
        results.append(Lens(layers.top_ids, top_probs, probs, layers.rank))
    return results


@program("definitions")
def layer_distributions(
    parameters, batch: dict[str, Array], *, definitions
) -> Distribution:
    """Returns the distributions of each decoder layer of one model, [b, l, t, ...].

    A model without such layers has 0 of them.
    """
    (model,) = map(nnx.merge, definitions, parameters)
    trace = LayerTrace([], [], [], [])
    # XLA removes what is not returned: the attention weights of the trace.
    last_btd = model.outputs(batch, trace=trace)
    token_bt = batch["target"]

    def describe(x_btd: Array) -> Distribution:
        logits_btv = project(x_btd, *model.output_layer())
        return describe_logits(logits_btv, token_bt, LAYER_TOP)

    if not trace.outputs:
        shapes = jax.eval_shape(describe, last_btd)
        return jax.tree.map(lambda x: jnp.zeros((x.shape[0], 0, *x.shape[1:])), shapes)
    # One layer after another: logits of all layers may exceed the memory.
    by_layer = jax.lax.map(describe, jnp.stack(trace.outputs))
    return jax.tree.map(lambda x: x.swapaxes(0, 1), by_layer)
