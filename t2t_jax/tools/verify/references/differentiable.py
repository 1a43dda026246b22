"""The paper's Transformer once more, in jax.numpy, for gradients in float64.

`twin.py` is closer to the printed formulas, and has no gradients. This one has the
paper's choices only: post-norm, sinusoids, ReLU, one embedding matrix, no dropout. The
check that uses it first compares its loss, and the slope of its loss, with `twin.py`.

Call it with 64-bit types on (`jax.enable_x64(True)`).

Shape suffixes: b batch, s source (keys), t target (queries), d model width, h heads,
k head width, v vocabulary.
"""

import jax
import jax.numpy as jnp

from t2t_jax.tools.verify.references import twin


def mean_loss(config, parameters, batch, smoothing: float) -> jax.Array:
    """The mean label-smoothed loss of the real target tokens, float64.

    Args:
      config: a model config with the paper's choices.
      parameters: float64, as the model nests them.
      batch: with `target_input`, of `twin.teacher_forcing`.
      smoothing: label smoothing (section 5.4).
    """
    logits_btv = logits(config, parameters, batch)
    log_p_btv = logits_btv - jax.scipy.special.logsumexp(
        logits_btv, axis=2, keepdims=True
    )
    vocabulary = log_p_btv.shape[2]
    wanted_btv = jax.nn.one_hot(batch["target"], vocabulary, dtype=jnp.float64)
    wanted_btv = (1 - smoothing) * wanted_btv + smoothing / vocabulary
    real_bt = batch["target_segment"] > 0
    loss_bt = -jnp.sum(wanted_btv * log_p_btv, axis=2)
    return jnp.sum(jnp.where(real_bt, loss_bt, 0)) / jnp.sum(real_bt)


def logits(config, parameters, batch) -> jax.Array:
    """Teacher-forced logits, float64 [b, t, v]."""
    table_vd = parameters["embedding"]["tokens"]
    source, target = batch["source_segment"], batch["target_segment"]
    x_bsd = _embed(table_vd, batch["source"], batch["source_position"])
    for i in range(len(parameters["encoder"])):
        layer = parameters["encoder"][i]
        among = _same_sentence(source, source)
        y_bsd = _attend(layer["attention"], x_bsd, x_bsd, among)
        x_bsd = _add_and_norm(config, layer["attention_sub"], x_bsd, y_bsd)
        y_bsd = _feed_forward(layer["ff"], x_bsd)
        x_bsd = _add_and_norm(config, layer["ff_sub"], x_bsd, y_bsd)

    x_btd = _embed(table_vd, batch["target_input"], batch["target_position"])
    length = target.shape[1]
    past_tt = jnp.arange(length)[:, None] >= jnp.arange(length)[None, :]
    for i in range(len(parameters["decoder"])):
        layer = parameters["decoder"][i]
        among = _same_sentence(target, target) & past_tt
        y_btd = _attend(layer["attention"], x_btd, x_btd, among)
        x_btd = _add_and_norm(config, layer["attention_sub"], x_btd, y_btd)
        across = _same_sentence(target, source)
        y_btd = _attend(layer["cross"], x_btd, x_bsd, across)
        x_btd = _add_and_norm(config, layer["cross_sub"], x_btd, y_btd)
        y_btd = _feed_forward(layer["ff"], x_btd)
        x_btd = _add_and_norm(config, layer["ff_sub"], x_btd, y_btd)
    return x_btd @ table_vd.T


def _embed(table_vd, token_bt, position_bt):
    """Sections 3.4 and 3.5: embeddings times sqrt(d), plus sinusoids."""
    width = table_vd.shape[1]
    positions = range(int(position_bt.max()) + 1)
    sinusoid_pd = jnp.array([twin.sinusoid(p, width) for p in positions])
    return table_vd[token_bt] * width**0.5 + sinusoid_pd[position_bt]


def _same_sentence(query_bt, key_bs):
    return (query_bt[:, :, None] == key_bs[:, None, :]) & (query_bt > 0)[:, :, None]


def _attend(weights, x_btd, z_bsd, allowed_bts):
    """Section 3.2.2; a query that may see no key, padding, gets zeros."""
    q_bthk = jnp.einsum("btd,dhk->bthk", x_btd, weights["query"])
    k_bshk = jnp.einsum("bsd,dhk->bshk", z_bsd, weights["key"])
    v_bshk = jnp.einsum("bsd,dhk->bshk", z_bsd, weights["value"])
    score_bhts = jnp.einsum("bthk,bshk->bhts", q_bthk, k_bshk) / q_bthk.shape[3] ** 0.5
    allowed_bhts = allowed_bts[:, None]
    # Not -inf: the gradient of the softmax of nothing would be NaN.
    p_bhts = jax.nn.softmax(jnp.where(allowed_bhts, score_bhts, -1e30), axis=3)
    p_bhts = jnp.where(allowed_bhts, p_bhts, 0)
    y_bthk = jnp.einsum("bhts,bshk->bthk", p_bhts, v_bshk)
    return jnp.einsum("bthk,hkd->btd", y_bthk, weights["out"])


def _feed_forward(weights, x_btd):
    """Equation 2."""
    inner = jax.nn.relu(x_btd @ weights["inner"] + weights["inner_bias"])
    return inner @ weights["outer"] + weights["outer_bias"]


def _add_and_norm(config, weights, x_btd, y_btd):
    """Section 3.1: LayerNorm(x + Sublayer(x))."""
    x_btd = x_btd + y_btd
    x_btd = x_btd - jnp.mean(x_btd, axis=2, keepdims=True)
    variance_bt1 = jnp.mean(x_btd**2, axis=2, keepdims=True)
    x_btd = x_btd / jnp.sqrt(variance_bt1 + config.norm_epsilon)
    return x_btd * weights["norm"]["scale"] + weights["norm"]["bias"]
