"""The peers get our model: what `test_benchmarks.py` runs in a process of its own.

    python -m tests.peers NORM

PyTorch may not share a process with TensorFlow, which other tests import: the compilers
that both bring (Triton's and XLA's LLVM) abort it.
"""

import dataclasses
import sys
import tempfile

import jax
import numpy as np
import torch
from flax import nnx

from benchmarks import converted, exported, measuring
from benchmarks.decode import Numbers, random_translator
from t2t_jax.config import ModelConfig
from t2t_jax.model.architecture import logits

TINY = ModelConfig(layers=1, width=16, heads=2, hidden=16, dropout=0.0, dtype="float32")
SEARCH = exported.Search(1, 0.6, 8, None, 4)


def model_of(norm):
    """A translator whose LayerNorms and biases have values of their own."""
    config = dataclasses.replace(TINY, norm=norm)
    plain = random_translator(config, 60, rows=8, source=32, steps=40)
    keys = iter(jax.random.split(jax.random.key(5), 100))
    parameters = jax.tree.map(
        lambda x: 2 * x + 0.3 * jax.random.normal(next(keys), x.shape),
        plain.parameters,
    )
    make = type(plain)
    translator = make(plain.config, plain.vocabulary, plain.model, parameters)
    return config, translator, parameters


def some_batch():
    source, target = (measuring.random_tokens((4, n), 60) for n in (20, 30))
    source[1:, 9:] = 0  # padding
    return {
        "source": source,
        "source_segment": (source != 0).astype(int),
        "source_position": np.broadcast_to(np.arange(20), source.shape),
        "target_input": target,
        "target_segment": np.ones_like(target),
        "target_position": np.broadcast_to(np.arange(30), target.shape),
    }


def logits_of(module, batch):
    ids, mask, begun = (
        torch.from_numpy(batch[name]).long()
        for name in ("source", "source_segment", "target_input")
    )
    with torch.inference_mode():
        return module(ids, attention_mask=mask, decoder_input_ids=begun).logits.numpy()


def check_that_a_saved_model_computes_our_logits(norm, folder):
    config, translator, parameters = model_of(norm)
    in_memory = converted.hugging_face(config, parameters, (0, 1, 2), 100)
    in_memory.save_pretrained(folder)
    reloaded = type(in_memory).from_pretrained(folder).eval()
    batch = some_batch()
    with jax.default_matmul_precision("highest"):
        module = nnx.merge(translator.model.definition, parameters)
        wanted = logits(module, batch)
    np.testing.assert_allclose(logits_of(in_memory, batch), wanted, atol=2e-3)
    # Saving loses the epsilon of LayerNorm, and nothing else.
    np.testing.assert_allclose(logits_of(reloaded, batch), wanted, atol=1e-2)
    converted.set_epsilon(reloaded, config.norm_epsilon)
    both = logits_of(reloaded, batch), logits_of(in_memory, batch)
    np.testing.assert_allclose(*both, atol=1e-5)


def check_that_peers_find_what_we_find(norm, folder):
    _, translator, _ = model_of(norm)
    tokens = measuring.random_tokens((8, 31), 60)
    tokens = [list(map(int, row[: 5 + 3 * i])) for i, row in enumerate(tokens)]
    lines = Numbers(60).decode(tokens)
    found = translator.translate(lines, beam=1, warn=False)
    assert len({each.text for each in found}) > 4
    ours = [exported.until_end(each.best.tokens, Numbers.eos) for each in found]
    sources = Numbers(60).encode(lines, end=True)
    peers = [exported.HuggingFace(translator, SEARCH) for _ in range(2)]
    peers.append(exported.CTranslate2(translator, SEARCH, "float32"))
    saved = type(peers[0].model).from_pretrained(folder).eval()
    peers[1].model = saved.to(peers[1].device)
    for peer in peers:
        for a, b, source in zip(ours, peer(sources), sources, strict=True):
            room = len(source) + 8
            assert a[:room] == b[:room], type(peer).__name__


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        check_that_a_saved_model_computes_our_logits(sys.argv[1], folder)
        check_that_peers_find_what_we_find(sys.argv[1], folder)
