"""Models with random weights and batches of random tokens, to measure speed with."""

import dataclasses
from collections.abc import Sequence

import jax
import numpy as np

from t2t_jax.config import DecodeConfig, ModelConfig, from_config_dict
from t2t_jax.data.shapes import Shape
from t2t_jax.decoding.translator import Translator
from t2t_jax.model.model import build

PAD, BOS, EOS = 0, 1, 2
SPECIAL = 4  # the first ids, which random text does not have


class Numbers:
    """A stand-in for a vocabulary; its lines are token ids such as `17 4 1999`."""

    name, model = "numbers", b""
    pad, bos, eos, unknown = PAD, BOS, EOS, -1
    never, free_spaces = (), False

    def __init__(self, size: int):
        self.size, self.sizes, self.source = size, (size,), self

    def __len__(self) -> int:
        return self.size

    def encode(self, lines, end: bool = False, threads: int = -1) -> list[list[int]]:
        """Token ids of lines of numbers."""
        ids = [[int(number) for number in line.split()] for line in lines]
        return [[*line, self.eos] for line in ids] if end else ids

    def decode(self, ids: Sequence[Sequence[int]]) -> list[str]:
        """Lines of numbers."""
        return [" ".join(map(str, line)) for line in ids]

    def spelled(self, text: str) -> str:
        """The text itself."""
        return text

    def spelling(self, token: int) -> str:
        """The number after a space."""
        return f" {token}"

    def piece(self, token: int) -> str:
        """The number."""
        return str(token)


def random_translator(
    model: ModelConfig,
    size: int,
    rows: int,
    source: int,
    steps: int,
    batch_tokens: int | None = None,
    devices: Sequence[jax.Device] | None = None,
) -> Translator:
    """Builds a translator with random weights that never ends a sentence.

    Args:
      model: sizes.
      size: pieces of the vocabulary.
      rows: sentences in a batch.
      source: tokens of a source.
      steps: length of an output.
      batch_tokens: `config.decode.batch_tokens`; by default that of `rows` sources.
      devices: to compute on; all if None.
    """
    tokens = rows * source if batch_tokens is None else batch_tokens
    decode = DecodeConfig(batch_tokens=tokens, extra_length=steps - source)
    config = dataclasses.replace(from_config_dict({}), model=model, decode=decode)
    built = build(model, size)
    parameters = jax.jit(built.init)(jax.random.key(0))
    table_vd = parameters["embedding"]["tokens"]
    # A zero embedding gives the end the logit 0, and some other piece has a higher one.
    parameters["embedding"]["tokens"] = table_vd.at[Numbers.eos].set(0.0)
    return Translator(config, Numbers(size), built, parameters, devices=devices)


def random_lines(count: int, source: int, size: int) -> list[str]:
    """Lines for a `random_translator`, each of `source` tokens with its end."""
    return Numbers(size).decode(random_tokens((count, source - 1), size).tolist())


def random_tokens(shape: tuple[int, ...], vocab_size: int, seed: int = 0) -> np.ndarray:
    """Random token ids, int32, without the first four pieces, which are special."""
    return np.random.default_rng(seed).integers(SPECIAL, vocab_size, shape, np.int32)


def random_batch(shape: Shape, vocab_size: int) -> dict[str, np.ndarray]:
    """A batch of random tokens without padding, with the arrays of training."""
    batch = {}
    for seed, side in enumerate(("source", "target")):
        sizes = shape.rows, getattr(shape, side)
        batch[side] = random_tokens(sizes, vocab_size, seed)
        batch[f"{side}_segment"] = np.ones(sizes, np.int32)
        positions = np.arange(sizes[1], dtype=np.int32)
        batch[f"{side}_position"] = np.broadcast_to(positions, sizes).copy()
    return batch
