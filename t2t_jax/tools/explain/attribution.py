"""Gradient times input: how much each token read speaks for a predicted token.

To first order, the attribution of a token is what a larger embedding of it would add to
a log-probability, relative to its size (Simonyan et al. 2013; Shrikumar et al. 2016,
"gradient * input").

Shape suffixes: b batch rows, s source, t target, d model width, p positions.
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
from t2t_jax.decoding.programs import program
from t2t_jax.decoding.scoring import run_batches
from t2t_jax.extensions.training.batch_loss import read_embeddings, table_rows
from t2t_jax.model.layers import project
from t2t_jax.search.algorithm import never_generated
from t2t_jax.tools.explain.distribution import Distribution


class Attribution(NamedTuple):
    """Attributions of chosen tokens of one target, in units of log-probability.

    Attributes:
      positions: int [p], the places of the predicted tokens.
      log_probs: of these tokens, float32 [p].
      source: of each source token, float32 [p, s].
      target: of each target token that was read, float32 [p, t]: row n is 0 from column
        `positions[n]` on.
      start: of the start of the target, which is read first, float32 [p].
    """

    positions: np.ndarray
    log_probs: np.ndarray
    source: np.ndarray
    target: np.ndarray
    start: np.ndarray

    def minus(self, other: "Attribution") -> "Attribution":
        """The attributions of a contrast, log p(y) - log p(other), of the same rows."""
        differences = (a - b for a, b in zip(self[1:], other[1:], strict=True))
        return Attribution(self.positions, *differences)


def most_interesting(distribution: Distribution, at_most: int = 64) -> list[int]:
    """Returns all positions, or the `at_most` least probable ones, in order."""
    order = np.argsort(distribution.log_probs, kind="stable")
    return sorted(order[:at_most].tolist())


def strongest_rivals(
    vocabulary: Vocabulary,
    ids: Sequence[int],
    distribution: Distribution,
    positions: Sequence[int],
) -> list[int]:
    """Returns the most probable other token that may be generated at each position."""
    never = never_generated(vocabulary)
    ranked = ((t, distribution.top_ids[t].tolist()) for t in positions)
    return [next(i for i in row if i != ids[t] and i not in never) for t, row in ranked]


def can_attribute(member: Member) -> bool:
    """True if the model reads its tokens through a table of embeddings."""
    tables = member.parameters.get("embedding", {})
    return "tokens" in tables and member.weights == "float32"  # int8: no gradient


def attribute(
    vocabulary: Vocabulary,
    member: Member,
    pair: tuple[Sequence[int], Sequence[int]],
    positions: Sequence[int],
    tokens: Sequence[int],
) -> Attribution:
    """Attributes log p(token), given the tokens before, at positions of a target.

    Takes a forward and a backward pass for each position. A position's numbers do not
    depend on the others; with another number of devices, the last bits may differ.

    Args:
      member: a model that `can_attribute`.
      tokens: of each position; those of the target, or their rivals.
    """
    source, target = pair
    count, s, t = len(positions), len(source), len(target)
    attribution = Attribution(
        np.array(positions, np.int32),
        *(np.zeros((count, *sides), np.float32) for sides in ((), (s,), (t,), ())),
    )
    # A row of its own for each position, which ends with its token.
    rows = [
        (source, [*target[:position], token])
        for position, token in zip(positions, tokens, strict=True)
    ]
    # As for attention weights, each process computes all rows.
    computed = run_batches(
        last_token_gradients, vocabulary, [member], rows, divided=False
    )
    for n, (log_prob, source_s, read_t) in computed:
        attribution.log_probs[n] = log_prob
        attribution.source[n] = source_s[:s]
        attribution.start[n] = read_t[0]
        attribution.target[n, : positions[n]] = read_t[1 : positions[n] + 1]
    return attribution


@program("definitions")
def last_token_gradients(
    parameters, batch: dict[str, Array], *, definitions
) -> tuple[Array, Array, Array]:
    """Computes gradient times input of one model's log-probability of the last token.

    Returns:
      The log-probability [b], and the products of the tokens that the encoder reads
      [b, s] and that the decoder reads [b, t].

    The output layer stays that of the model: gradients are by what is read.
    """
    (definition,), (parameters,) = definitions, parameters
    embeddings = table_rows(parameters, batch)
    last_b11 = batch["target_segment"].sum(axis=1)[:, None, None] - 1
    token_b1 = jnp.take_along_axis(batch["target"], last_b11[..., 0], axis=1)

    def total_log_prob(embeddings: dict[str, Array]):
        model = nnx.merge(definition, parameters)
        read_embeddings(model, **embeddings)
        x_b1d = jnp.take_along_axis(model.outputs(batch), last_b11, axis=1)
        logits_bv = project(x_b1d, *model.output_layer())[:, 0]
        log_prob_b = jnp.take_along_axis(jax.nn.log_softmax(logits_bv), token_b1, 1)
        # The rows do not depend on each other, so the sum's gradients are theirs.
        return log_prob_b.sum(), log_prob_b[:, 0]

    gradients, log_prob_b = jax.grad(total_log_prob, has_aux=True)(embeddings)
    products = jax.tree.map(lambda x, g: (x * g).sum(axis=2), embeddings, gradients)
    return log_prob_b, products["source"], products["target"]
