"""`examples/transformer.py`, the paper in one file: what it computes, and its command.

Its logits are also compared with PyTorch's, in tests/model/test_against_references.py.
"""

import ast
import io
import re
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import sacrebleu
from flax import nnx

from t2t_jax.model.architecture import step_logits
from t2t_jax.model.mask import Tokens
from t2t_jax.search.beam import beam_search
from t2t_jax.tools.verify.numbers import float64_types
from t2t_jax.tools.verify.random_models import (
    BOS,
    EOS,
    PAD,
    PAPER,
    random_parameters,
    small_models,
)
from t2t_jax.tools.verify.references import twin
from t2t_jax.training.losses import loss_sums
from tests.compiler import quick_jit
from tests.one_file import FILE
from tests.one_file import in_jax as example

LENGTHS = [(9, 11), (13, 4), (1, 1), (5, 6), (13, 2)]  # of source and target, with EOS


def test_a_student_can_read_it_alone():
    text = FILE.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 600
    used = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            used |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            used.add(node.module.split(".")[0])
    libraries = {"jax", "numpy", "sacrebleu", "sentencepiece"}
    standard = {"argparse", "collections", "functools", "io", "itertools", "math"}
    assert used == libraries | standard | {"os", "pathlib", "sys", "time", "typing"}


@pytest.fixture(scope="module")
def small():
    return small_models()[PAPER]


@pytest.fixture(scope="module")
def batch():
    """Random sentences, one a row, in the package's form."""
    random, arrays = np.random.default_rng(3), {}
    for side, lengths in zip(
        ("source", "target"), zip(*LENGTHS, strict=True), strict=True
    ):
        shape = len(lengths), max(lengths)
        real = np.arange(shape[1]) < np.array(lengths)[:, None]
        arrays[side] = np.where(real, random.integers(EOS, 17, shape), PAD)
        arrays[f"{side}_segment"] = real.astype(np.int32)
        arrays[f"{side}_position"] = np.where(real, np.arange(shape[1]), 0)
    return arrays


def test_loss_and_gradients_are_the_packages(small, batch):
    """Of the package in float32; of the example in float64."""

    def mean_loss(parameters):
        module = nnx.merge(small.model.definition, parameters)
        total, _, tokens = loss_sums(module, batch, 0.1, BOS)
        return total / tokens

    def example_loss(parameters):
        total, tokens = example.loss_sums(
            parameters, batch["source"], batch["target"], 0.1
        )
        return total / tokens

    loss, gradient = quick_jit(jax.value_and_grad(mean_loss))(small.parameters)
    with float64_types():
        parameters = jax.tree.map(jnp.asarray, twin.float64(small.parameters))
        loss_and_gradient = quick_jit(jax.value_and_grad(example_loss))(parameters)
        expected, expected_gradient = jax.device_get(loss_and_gradient)
    assert expected.dtype == np.float64
    np.testing.assert_allclose(loss, expected, rtol=1e-6)
    jax.tree.map(
        partial(np.testing.assert_allclose, rtol=2e-5, atol=2e-5),
        jax.device_get(gradient),
        expected_gradient,
    )


def test_beams_are_the_packages(small, batch):
    """Limits differ; of these random models, some end sentences and some do not."""
    limit_b, longest, alpha = np.array([12, 7, 2, 12, 1]), 12, 2.0

    @quick_jit
    def package(parameters, source, segment, position):
        module = nnx.merge(small.model.definition, parameters)
        memory = module.encode(source, Tokens(segment, position))
        return beam_search(
            partial(step_logits, module, memory),
            module.initial_cache(memory, 4, longest),
            limit_b,
            max_length=longest,
            **{"beam": 4, "alpha": alpha, "bos": BOS, "eos": EOS, "pad": PAD},
        )

    search = quick_jit(example.beam_search.__wrapped__, static_argnums=(3, 5))
    source = [batch[f"source{part}"] for part in ("", "_segment", "_position")]
    lengths = {True: set(), False: set()}
    for seed in (16, 31, 83, 129):
        parameters = random_parameters(small.model, seed)
        parameters = jax.tree.map(jnp.asarray, parameters)
        expected = package(parameters, *source)
        got_bt = search(parameters, source[0], limit_b, 4, alpha, longest)
        assert (got_bt[:, 0] == BOS).all()
        np.testing.assert_array_equal(got_bt[:, 1:], expected.tokens_bnt[:, 0])
        for ended, length in zip(
            expected.ended_bn[:, 0], expected.length_bn[:, 0], strict=True
        ):
            lengths[bool(ended)].add(int(length))
    assert lengths[True] >= {1, 2, 12}
    assert lengths[False] >= {2, 7, 12}


def test_dropout_keeps_the_mean_and_draws_anew():
    drop = example.dropout(jax.random.key(0), 0.25)
    draw, draw2 = drop(jnp.ones(10_000)), drop(jnp.ones(10_000))
    assert {*np.unique(draw).tolist()} == {0, float(np.float32(4 / 3))}
    assert abs(float(draw.mean()) - 1) < 0.03
    assert (draw != draw2).any()
    assert example.dropout(jax.random.key(0), 0.0) is example.no_dropout


def test_an_epoch_has_every_pair_once_within_the_budget():
    random = np.random.default_rng(0)
    pairs = [
        tuple([*random.integers(4, 99, n), EOS] for n in lengths)
        for lengths in random.integers(0, 40, (300, 2))
    ]
    batched, shapes = [], set()
    for source_bs, target_bt in example.batches(pairs, 256, np.random.default_rng(1)):
        assert source_bs.shape == target_bt.shape
        assert source_bs.size <= 256
        shapes.add(source_bs.shape)
        for sides in zip(source_bs, target_bt, strict=True):
            pair = tuple(side[side != PAD].tolist() for side in sides)
            batched += [pair] if pair[0] else []
    assert sorted(batched) == sorted(tuple(map(list, pair)) for pair in pairs)
    assert len(shapes) <= 7  # 6, 8, 12, 16, 24, 32, 48 tokens


# ------------------------------------------------------------------------- the command

WORDS = {"a": "ein", "the": "der", "dog": "Hund", "cat": "Kater", "sees": "sieht"}
SIZES = ["--vocabulary=50", "--layers=1", "--d_model=16", "--d_ff=16", "--heads=2"]
SIZES += ["--batch_tokens=256", "--max_length=32", "--steps=16", "--save_every=4"]
SIZES += ["--warmup=16", "--beam=2", "--average=2"]


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    """200 lines of training text, and 10 of dev and test, word for word."""
    folder, random = tmp_path_factory.mktemp("text"), np.random.default_rng(0)
    for name, count in (("train", 200), ("dev", 10), ("test", 10)):
        lines = [random.choice([*WORDS], random.integers(1, 5)) for _ in range(count)]
        for language, line_of in (("en", str), ("de", WORDS.get)):
            text = "".join(f"{' '.join(map(line_of, line))}\n" for line in lines)
            (folder / f"{name}.{language}").write_text(text)
    return folder


def flags(text, workdir, **changes):
    parts = {part: text / part for part in ("train", "dev", "test")} | changes
    return [f"--workdir={workdir}", *SIZES, *(f"--{k}={v}" for k, v in parts.items())]


def test_the_command_trains_scores_and_translates(text, tmp_path, capsys, monkeypatch):
    workdir = tmp_path / "work"
    trees = []
    save = example.save
    monkeypatch.setattr(example, "save", lambda *a: (trees.append(a[1]), save(*a)))
    example.main(flags(text, workdir))
    printed = capsys.readouterr().out.splitlines()
    perplexities = [
        float(line.split()[-3]) for line in printed if line.startswith("step")
    ]
    assert len(perplexities) == 4
    assert perplexities[-1] < perplexities[0] < 60
    translated = (workdir / "test.translated").read_text().splitlines()
    references = (text / "test.de").read_text().splitlines()
    assert printed[-2] == str(sacrebleu.corpus_bleu(translated, [references]))
    assert printed[-1].startswith("nrefs:1|case:mixed|eff:no|tok:13a|")
    files = {file.name: file.read_bytes() for file in workdir.iterdir()}
    assert {*files} == {"bpe.model", "model.npz", "test.translated"}
    jax.tree.map(
        np.testing.assert_array_equal, example.load(workdir / "model.npz"), *trees
    )

    monkeypatch.setattr("sys.stdin", io.StringIO((text / "test.en").read_text()))
    example.main([f"--workdir={workdir}", "--beam=2"])
    assert capsys.readouterr().out.splitlines() == translated

    with pytest.raises(SystemExit, match="must be a new folder"):
        example.main(flags(text, workdir, train=f"{text}/train.en,{text}/train.de"))
    assert files == {file.name: file.read_bytes() for file in workdir.iterdir()}


def test_the_last_checkpoints_are_averaged(text, tmp_path):
    """With dropout: all that is random follows from the seed and the step."""

    def trained(**changes):
        flags_ = example.flags_of(
            [*flags(text, tmp_path), *(f"--{k}={v}" for k, v in changes.items())]
        )
        tokens = np.random.default_rng(0).integers(4, 40, (8, 2, 5)).tolist()
        return example.train(flags_, tokens, tokens)

    second, third = (trained(steps=n, average=1, save_every=1) for n in (2, 3))
    average = trained(steps=3, average=2, save_every=1)
    jax.tree.map(
        lambda a, b, c: np.testing.assert_allclose(
            a, (b + c) / 2, rtol=1e-6, atol=1e-7
        ),
        *(average, second, third),
    )
    assert not np.array_equal(*(t["embedding"]["tokens"] for t in (second, third)))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"dev": "{text}/none"}, "none.en is not a text file in UTF-8: .*No such file"),
        (
            {"train": "{text}/train.en,{text}/dev.de"},
            "equally many, not 200 lines and 10",
        ),
        ({"test": "a,b,c"}, "a,b,c is 3 files; name two"),
        ({"vocabulary": 9999}, "choose another --vocabulary: .*9999"),
        ({"max_length": 1}, "more tokens than --max_length"),
        ({"d_model": 18, "heads": 4}, "--d_model must be even, and a multiple"),
        ({"dropout": 1.0}, "--dropout=1.0 must be at least 0 and below 1"),
        ({"alpha": "nan"}, "--alpha=nan must be at least 0"),
        ({"beam": 0}, "--beam=0 must be at least 1"),
        ({"batch_tokens": 31}, "--batch_tokens must be at least 32"),
        ({"train": ""}, "there is no .*model.npz; train it with --train"),
        ({"test": ""}, "--train also needs --dev and --test"),
    ],
)
def test_bad_input_is_named_and_nothing_is_written(
    changes, message, text, tmp_path, capsys
):
    changes = {k: str(v).format(text=text) for k, v in changes.items()}
    with pytest.raises(SystemExit) as raised:
        example.main(flags(text, tmp_path / "work", **changes))
    printed = f"{raised.value} {capsys.readouterr().err}".replace("\n", " ")
    assert re.search(message, printed), printed
    assert not (tmp_path / "work").exists()
