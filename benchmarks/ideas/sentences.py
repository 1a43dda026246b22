"""Attention: by the sentences of packed rows (`benchmarks/sentence_attention.py`)."""

from benchmarks.sentence_attention import Options, attend, weights
from t2t_jax.model.attention import ATTENTION, AttentionFunction

ATTENTION["sentences"] = AttentionFunction(attend, weights, Options=Options)
