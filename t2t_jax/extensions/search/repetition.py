"""Logits of a search that avoids repetitions: `no_repeat_ngram`, `repetition_penalty`.

As in CTranslate2 (`RepetitionPenalty`, then `NoRepeatNgram`, of its decoding_utils.cc),
so that both engines find the same translations:

- Both change the logits. So log-probabilities and scores of hypotheses are of the
  changed distribution; `Translator.score` computes those of the model.
- The logit of each token that a hypothesis contains, however often, is divided by the
  penalty if it is positive, and multiplied if it is negative (Keskar et al. 2019,
  section 4.1). The logits of an ensemble are log-probabilities, never positive.
- A token gets no probability if it would complete an n-gram of tokens that the
  hypothesis already contains (Paulus et al. 2018, section 2.5, with trigrams).
- The tokens of a prefix count. They are given, so neither option changes their
  log-probabilities, or refuses them.
- BOS and the source do not count. EOS is never in a hypothesis that goes on.

Required phrases, which CTranslate2 does not have, come first: a token that brings one
nearer may repeat an n-gram. Shape suffixes: b batch, n hypotheses, c phrases, t target,
v vocabulary.
"""

import jax
import jax.numpy as jnp
from jax import Array

from t2t_jax.search.algorithm import Algorithm
from t2t_jax.search.rules import Rules


def changed(
    algorithm: Algorithm,
    logits_bnv: Array,
    tokens_bnt: Array,
    position: Array,
    rules: Rules | None,
    state_bnc: Array,
) -> Array:
    """Returns the logits of the next token, float32 [b, n, v].

    Args:
      tokens_bnt: int32, the hypotheses; those from `position` on are ignored.
      rules, state_bnc: constraints, and the progress of each phrase.
    """
    logits_bnv, repeats = logits_bnv.astype(jnp.float32), algorithm.no_repeat_ngram
    vocabulary, at_t = logits_bnv.shape[2], jnp.arange(tokens_bnt.shape[2])
    past_bnt = jnp.broadcast_to(at_t < position, tokens_bnt.shape)
    if rules is not None:
        past_bnt &= (rules.prefix_bt[:, position] < 0)[:, None, None]

    def put(logits_bnv: Array, mask_bnt: Array, value_bnt: Array | float) -> Array:
        """Replaces the logits of tokens; equal tokens have equal values."""
        token_bnt = jnp.where(mask_bnt, tokens_bnt, vocabulary)  # outside: dropped
        return jnp.put_along_axis(
            logits_bnv, token_bnt, value_bnt, axis=2, inplace=False, mode="drop"
        )

    if (penalty := algorithm.repetition_penalty) != 1:
        own_bnt = jnp.take_along_axis(logits_bnv, tokens_bnt, axis=2)
        own_bnt = jnp.where(own_bnt < 0, own_bnt * penalty, own_bnt / penalty)
        logits_bnv = put(logits_bnv, past_bnt, own_bnt)
    if repeats:
        repeated_bnt = past_bnt & (at_t >= repeats - 1)
        for back in range(1, repeats):  # the tokens before are the latest ones
            latest_bn = jax.lax.dynamic_index_in_dim(
                tokens_bnt, jnp.maximum(position - back, 0), axis=2
            )
            repeated_bnt &= jnp.roll(tokens_bnt, back, axis=2) == latest_bn
        if rules is not None and rules.closer_sv.shape[0]:  # a phrase is required
            closer_bnct = rules.closer_sv[state_bnc[..., None], tokens_bnt[:, :, None]]
            repeated_bnt &= ~closer_bnct.any(axis=2)
        logits_bnv = put(logits_bnv, repeated_bnt, -jnp.inf)
    return logits_bnv
