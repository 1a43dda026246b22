"""Loss: rewards the entropy of predictions (Pereyra et al. 2017).

For the paper's loss, set `config.train.label_smoothing=0.0`.
"""

import dataclasses

import jax
import jax.numpy as jnp

from t2t_jax.model.transformer import teacher_forcing
from t2t_jax.sections import field
from t2t_jax.training.cross_entropy import cross_entropy, summed
from t2t_jax.training.losses import LOSSES, Loss, real_tokens


@dataclasses.dataclass(frozen=True)
class Options:
    """`confidence_penalty`: beta, the weight of the entropy."""

    confidence_penalty: float = field(0.1, low=0)


def sums(module, batch, rng, config, bos):
    """Cross-entropy - beta * entropy; the metric `entropy` is in nats a token."""
    beta = config.train.own_options(LOSSES["confidence_penalty"]).confidence_penalty

    def token_losses(logits_btv, target_bt):
        loss_bt, nll_bt = cross_entropy(
            logits_btv, target_bt, config.train.label_smoothing
        )
        log_p_btv = jax.nn.log_softmax(logits_btv)
        entropy_bt = -jnp.sum(jnp.exp(log_p_btv) * log_p_btv, axis=-1)
        return loss_bt - beta * entropy_bt, nll_bt, entropy_bt

    x_btd = module.outputs(teacher_forcing(batch, bos), rng)
    real_bt = batch["target_segment"] > 0
    loss, nll, entropy = summed(
        token_losses, [x_btd], *module.output_layer(), real_bt, batch["target"]
    )
    tokens = real_tokens(batch)
    return loss, {"nll": (nll, tokens), "entropy": (entropy, tokens)}


LOSSES["confidence_penalty"] = Loss(real_tokens, sums, Options=Options)
