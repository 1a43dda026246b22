"""Training losses: `LOSSES`. What the model's outputs and a batch cost."""

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from t2t_jax.config import Config
from t2t_jax.model.layers import DropoutRng, dropout_rngs
from t2t_jax.model.teacher_forcing import teacher_forcing
from t2t_jax.sections import field
from t2t_jax.training.loss import cross_entropy, projected, real_first, summed

Batch = dict[str, Array]
Sums = tuple[Array, dict[str, tuple[Array, Array]]]


class Loss(NamedTuple):
    """A training loss: a mean over a batch.

    Attributes:
      count: batch -> the number that the mean is over. Of the whole batch, which is
        then split into microbatches.
      sums: (module, batch, rng, config, bos) -> the sum, and by name (sum, count) of
        metrics. The step divides the first by `count`, and reports the means of the
        others; `nll`, -log p of the target, is also reported as perplexity. `rng` is a
        `DropoutRng`.
      arrays: names of arrays [b, ...] of the batch that only this loss needs.
      Options: a dataclass of hyperparameters, `config.train.options`.
    """

    count: Callable[[Batch], Array]
    sums: Callable[[Any, Batch, DropoutRng, Config, int], Sums]
    arrays: tuple[str, ...] = ()
    Options: type | None = None


def real_tokens(batch: Batch) -> Array:
    """The number of target tokens, without padding."""
    return jnp.sum(batch["target_segment"] > 0)


def loss_sums(module, batch: Batch, smoothing: float, bos: int, rng=None):
    """Sums over the real target tokens: (smoothed loss, -log p, number of tokens).

    Args:
      module: a model with its parameters.
      smoothing: label smoothing.
      bos: the id that begins a target sentence.
      rng: a `DropoutRng`; None turns dropout off.
    """
    x_btd = module.outputs(teacher_forcing(batch, bos), rng)
    table_vd, bias_v = module.output_layer()
    tokens = x_btd, batch["target"], batch["target_segment"] > 0
    # A masked language model predicts few of the tokens that it reads.
    sparse = getattr(module, "predicts", "target") == "source"
    x_btd, target_bt, real_bt = real_first(*tokens) if sparse else tokens
    sums = projected(x_btd, table_vd, target_bt, real_bt, smoothing, bias_v, sparse)
    return *sums, real_tokens(batch)


# ------------------------------------------------------------------------- the entries


def cross_entropy_sums(module, batch, rng, config: Config, bos: int) -> Sums:
    """Label-smoothed cross-entropy (section 5.4)."""
    loss, nll, tokens = loss_sums(module, batch, config.train.label_smoothing, bos, rng)
    return loss, {"nll": (nll, tokens)}


@dataclasses.dataclass(frozen=True)
class RDrop:
    """Options of `r_drop`."""

    # alpha: the weight of the divergence; the model needs dropout, or it is 0.
    r_drop_alpha: float = field(5.0, low=0)


def r_drop_sums(module, batch, rng, config: Config, bos: int) -> Sums:
    """R-Drop (Liang et al. 2021, equation 4): two passes that have to agree.

    They differ in dropout. With cross-entropies L1, L2 and distributions p, q, a token
    costs

        (L1 + L2) / 2 + alpha / 4 (KL(p|q) + KL(q|p)),

    half of the paper's, so that the loss is on the scale of one cross-entropy, and
    alpha has the paper's meaning.

    Returns:
      The sum, and the metrics `nll`, the mean of the two passes, and `kl`, that of the
      two divergences, per token in nats.
    """
    alpha = config.train.own_options(LOSSES["r_drop"]).r_drop_alpha
    smoothing = config.train.label_smoothing
    forced = teacher_forcing(batch, bos)
    outputs = [module.outputs(forced, of_pass) for of_pass in dropout_rngs(rng, 2)]

    def of_tokens(first_btv, second_btv, target_bt):
        first_loss, first_nll = cross_entropy(first_btv, target_bt, smoothing)
        second_loss, second_nll = cross_entropy(second_btv, target_bt, smoothing)
        log_p, log_q = map(jax.nn.log_softmax, (first_btv, second_btv))
        # KL(p|q) + KL(q|p) = sum of (p - q) (log p - log q)
        both_btv = (jnp.exp(log_p) - jnp.exp(log_q)) * (log_p - log_q)
        kl_bt = both_btv.sum(-1) / 2
        loss_bt = (first_loss + second_loss) / 2 + alpha / 2 * kl_bt
        return loss_bt, (first_nll + second_nll) / 2, kl_bt

    real_bt = batch["target_segment"] > 0
    loss, nll, kl = summed(
        of_tokens, outputs, *module.output_layer(), real_bt, batch["target"]
    )
    tokens = real_tokens(batch)
    return loss, {"nll": (nll, tokens), "kl": (kl, tokens)}


# A loss is a function of a model and a batch, and a line here.
LOSSES = {
    "cross_entropy": Loss(real_tokens, cross_entropy_sums),
    "r_drop": Loss(real_tokens, r_drop_sums, Options=RDrop),
}
