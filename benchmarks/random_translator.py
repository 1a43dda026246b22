"""A translator with random weights that writes a fixed number of tokens."""

import dataclasses
from collections.abc import Sequence

import jax
import numpy as np

from t2t_jax.config import DecodeConfig, ModelConfig, from_config_dict
from t2t_jax.decoding.translator import Translator
from t2t_jax.model.model import build
from t2t_jax.tools.verify.random_models import BOS, EOS, PAD, SPECIAL


class Numbers:
    """A stand-in for a vocabulary; its lines are token ids such as `17 4 1999`."""

    name, model = "numbers", b""
    pad, bos, eos, unknown = PAD, BOS, EOS, -1
    never, free_spaces, sha256 = (), False, ("",)

    def __init__(self, size: int):
        self.size, self.sizes, self.source = size, (size,), self

    def __len__(self) -> int:
        return self.size

    def encode(self, lines, end: bool = False, threads: int = -1) -> list[list[int]]:
        ids = [[int(number) for number in line.split()] for line in lines]
        return [[*line, self.eos] for line in ids] if end else ids

    def decode(self, ids: Sequence[Sequence[int]]) -> list[str]:
        return [" ".join(map(str, line)) for line in ids]

    def spelled(self, text: str) -> str:
        return text

    def spelling(self, token: int) -> str:
        return f" {token}"

    def piece(self, token: int) -> str:
        return str(token)


def random_translator(
    model: ModelConfig,
    size: int,
    rows: int,
    source: int,
    steps: int,
    batch_tokens: int | None = None,
) -> Translator:
    """Builds a translator with random weights that never ends a sentence.

    Of `size` tokens, for sources of `source` tokens and outputs of `steps`; a batch has
    `batch_tokens` source tokens, by default those of `rows` sentences.
    """
    tokens = rows * source if batch_tokens is None else batch_tokens
    decode = DecodeConfig(batch_tokens=tokens, extra_length=steps - source)
    config = dataclasses.replace(from_config_dict({}), model=model, decode=decode)
    built = build(model, size)
    parameters = jax.jit(built.init)(jax.random.key(0))
    table_vd = parameters["embedding"]["tokens"]
    # A zero embedding gives the end the logit 0, and some other token has a higher one.
    parameters["embedding"]["tokens"] = table_vd.at[Numbers.eos].set(0.0)
    return Translator(config, Numbers(size), built, parameters)


def random_lines(count: int, source: int, size: int) -> list[str]:
    """Lines for a `random_translator`, each of `source` tokens with its end."""
    return Numbers(size).decode(random_tokens((count, source - 1), size).tolist())


def random_tokens(shape: tuple[int, ...], vocab_size: int, seed: int = 0) -> np.ndarray:
    """Random token ids, int32, without the first four tokens, which are special."""
    return np.random.default_rng(seed).integers(SPECIAL, vocab_size, shape, np.int32)
