"""The distribution over the next token at each position of a given target.

Shape suffixes: b batch rows, t target, k best tokens, v vocabulary.
"""

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax import Array

from t2t_jax.data.tokenizers.vocabulary import Vocabulary
from t2t_jax.decoding.inputs import Member
from t2t_jax.decoding.programs import ensemble_logits, program
from t2t_jax.decoding.scoring import Pairs, run_batches
from t2t_jax.model.architecture import logits

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
    """Computes the distribution at each position of each target (teacher forcing).

    Args:
      members: an ensemble predicts with the mean of their probabilities.
    """
    found: list[Distribution | None] = [None] * len(pairs)
    compute = partial(
        target_distributions,
        tuple(member.parameters for member in members),
        definitions=tuple(member.model.definition for member in members),
        mesh=members[0].mesh,
    )
    # As for attention weights, each process computes all pairs.
    for rows, of_rows in run_batches(
        compute, vocabulary, members, pairs, divided=False
    ):
        for place, row in enumerate(rows):
            length = len(pairs[row][1])
            found[row] = Distribution(*(x[place, :length] for x in of_rows))
    return found


@program("definitions")
def target_distributions(
    parameters, batch: dict[str, Array], *, definitions
) -> Distribution:
    """Returns the distributions at each position of `batch["target"]`, [b, t, ...]."""
    models = map(nnx.merge, definitions, parameters)
    logits_btv = ensemble_logits([logits(model, batch) for model in models])
    return describe_logits(logits_btv, batch["target"], TOP)


def describe_logits(logits_btv: Array, token_bt: Array, top: int) -> Distribution:
    """Describes the softmax of logits: `top` tokens, and the tokens that are given."""
    log_probs_btv = jax.nn.log_softmax(logits_btv)
    chosen_bt1 = jnp.take_along_axis(log_probs_btv, token_bt[..., None], axis=2)
    # A probability of 0 has the logarithm -inf, and adds nothing to the entropy.
    nats_btv = jnp.exp(log_probs_btv) * jnp.maximum(log_probs_btv, -1e30)
    top_log_probs, top_ids = jax.lax.top_k(log_probs_btv, min(top, logits_btv.shape[2]))
    return Distribution(
        chosen_bt1[..., 0],
        -nats_btv.sum(axis=2) / np.log(2),
        1 + (log_probs_btv > chosen_bt1).sum(axis=2, dtype=jnp.int32),
        top_ids,
        top_log_probs,
    )
