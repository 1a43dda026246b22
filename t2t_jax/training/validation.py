"""Cross-entropy and perplexity of a set of pairs that is not trained on."""

import dataclasses
import math

import jax
import numpy as np

from t2t_jax.config import Config
from t2t_jax.data.batching import fill
from t2t_jax.data.feeding import plan_for
from t2t_jax.data.prepare import Pairs
from t2t_jax.model.transformer import Parameters
from t2t_jax.parallel.mesh import place_batch, share
from t2t_jax.training.step import Steps


def cross_entropy_of(
    steps: Steps, parameters: Parameters, pairs: Pairs, config: Config
) -> dict[str, float]:
    """Mean -log p of all target tokens, and perplexity; dropout and smoothing off.

    Per subword, end of sentence included, as the paper's Table 3 reports it.

    Returns:
      `loss` in nats and `perplexity`, its exponential.
    """
    longest = max(pairs.source.lengths.max(), pairs.target.lengths.max())
    # Nothing is too long to be scored; rows may be stretched by a quarter.
    room = 10 * (max(int(longest), config.data.row_length) + 8)
    data = dataclasses.replace(
        config.data,
        batching="packed",
        batch_tokens=max(config.data.batch_tokens, room),
    )
    plan = plan_for(pairs, data, seed=0, epoch=0, shuffle=False)
    sums = []
    for number in range(len(plan)):
        layout = share(steps.mesh, plan[number])
        batch = fill(layout, pairs.source, pairs.target)
        sums.append(steps.evaluate(parameters, place_batch(steps.mesh, batch)))
    nll, tokens = np.sum(jax.device_get(sums), axis=0, dtype=np.float64)
    return {"loss": float(nll / tokens), "perplexity": perplexity(nll / tokens)}


def perplexity(nats: float) -> float:
    """exp, short of overflow."""
    return math.exp(min(nats, 700.0))
