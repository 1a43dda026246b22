"""Cross-entropy and perplexity on a dev set."""

import dataclasses

import jax
import numpy as np

from t2t_jax.config import Config
from t2t_jax.data.batching import Plan
from t2t_jax.data.feeding import plan_for
from t2t_jax.data.pairs import Pairs
from t2t_jax.data.shapes import ROWS_MULTIPLE, STRETCH
from t2t_jax.io.interruption import check
from t2t_jax.metrics.likelihoods import perplexity
from t2t_jax.model.layers import Parameters
from t2t_jax.parallel.batch_placement import local_layout, place_batch
from t2t_jax.training.step import Steps


def dev_plan(pairs: Pairs, config: Config) -> Plan:
    """Plans the batches of a dev set, as for training but without shuffling.

    Leaves out no pair: raises the token budget if the longest pair needs it.
    """
    longest = max(lengths.max() for lengths in pairs.lengths())
    longest_row = STRETCH * (max(int(longest), config.data.row_length) + 8)
    room = int(longest_row * ROWS_MULTIPLE)
    data = dataclasses.replace(
        config.data, batch_tokens=max(config.data.batch_tokens, room)
    )
    return plan_for(pairs, data, seed=0, epoch=0, shuffle=False)


def cross_entropy_of(
    steps: Steps, parameters: Parameters, pairs: Pairs, config: Config
) -> dict[str, float]:
    """Mean -log p over all target tokens, and perplexity.

    Without dropout and label smoothing; per subword, including the end of the sentence,
    as in the paper's Table 3.

    Returns:
      `loss` in nats and `perplexity`, its exponential.
    """
    plan = dev_plan(pairs, config)
    sums = []  # stays on the device until all batches are queued
    for number in range(len(plan)):
        check()
        # Each process fills the rows on its own devices.
        layout = local_layout(steps.mesh, plan[number])
        batch = pairs.batch(layout, seed=0, epoch=0)  # noise is always the same
        sums.append(steps.evaluate(parameters, place_batch(steps.mesh, batch)))
    # float64, since float32 would lose digits in the sum over many batches.
    nll, tokens = np.sum(jax.device_get(sums), axis=0, dtype=np.float64)
    return {"loss": float(nll / tokens), "perplexity": perplexity(nll / tokens)}
