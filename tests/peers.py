"""Exported models find what ours finds: a process of its own for `test_benchmarks.py`.

    python -m tests.peers NORM

PyTorch may not share a process with TensorFlow, which other tests import: the compilers
that both bring (Triton's and XLA's LLVM) abort it.
"""

import dataclasses
import sys

import jax

from benchmarks import peers
from t2t_jax.config import ModelConfig
from t2t_jax.tools.verify.random_models import (
    Numbers,
    random_tokens,
    random_translator,
)

TINY = ModelConfig(layers=1, width=16, heads=2, hidden=16, dropout=0.0, dtype="float32")
SEARCH = peers.Search(1, 0.6, 8, None, 4)


def translator_of(norm):
    """A translator whose LayerNorms and biases have values of their own."""
    config = dataclasses.replace(TINY, norm=norm)
    plain = random_translator(config, 60, rows=8, source=32, steps=40)
    keys = iter(jax.random.split(jax.random.key(5), 100))
    parameters = jax.tree.map(
        lambda x: 2 * x + 0.3 * jax.random.normal(next(keys), x.shape),
        plain.parameters,
    )
    make = type(plain)
    return make(plain.config, plain.vocabulary, plain.model, parameters)


def check_that_peers_find_what_we_find(norm):
    translator = translator_of(norm)
    tokens = random_tokens((8, 31), 60)
    tokens = [list(map(int, row[: 5 + 3 * i])) for i, row in enumerate(tokens)]
    lines = Numbers(60).decode(tokens)
    found = translator.translate(lines, beam=1, warn=False)
    assert len({each.text for each in found}) > 4
    ours = [peers.until_end(each.best.tokens, Numbers.eos) for each in found]
    sources = Numbers(60).encode(lines, end=True)
    for peer in (
        peers.HuggingFace(translator, SEARCH),
        peers.CTranslate2(translator, SEARCH, "float32"),
    ):
        for a, b, source in zip(ours, peer(sources), sources, strict=True):
            room = len(source) + 8
            assert a[:room] == b[:room], type(peer).__name__


if __name__ == "__main__":
    check_that_peers_find_what_we_find(sys.argv[1])
