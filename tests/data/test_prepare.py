"""Token arrays on disk: made once, whole or absent, never for another input."""

import dataclasses
import itertools
import json
import os
import re
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from t2t_jax.config import DataConfig
from t2t_jax.data import cleaning, prepare
from t2t_jax.data.corpus import open_corpora
from t2t_jax.data.filling import ragged
from t2t_jax.data.pairs import Examples, Pairs, cut, encode_pairs, tokenize_in_memory
from t2t_jax.data.shared_pairs import shared
from t2t_jax.data.tokenizers import training as tokenizer_training
from t2t_jax.data.tokenizers.training import make_tokenizer
from t2t_jax.extensions.data.one_sided_text import open_lines
from t2t_jax.io import messages, sealed
from t2t_jax.io.errors import UserError
from tests.data.test_subword_sampling import foreign
from tests.small_run import contents, write_pairs

CONFIG = DataConfig(vocab_size=320, max_length=30)
SEPARATE = dataclasses.replace(
    CONFIG, joint_vocabulary=False, vocab_size=310, source_vocab_size=300
)
LINES = [
    (f"the cat number {i} sleeps", f"die Katze Nummer {i} schläft") for i in range(50)
]


@pytest.fixture(autouse=True)
def _cache(tmp_path, monkeypatch):
    monkeypatch.setenv("T2T_JAX_CACHE", str(tmp_path / "cache"))


def corpora(folder, pairs=LINES):
    write_pairs(folder, x=pairs)
    return open_corpora("x", "en", "de", str(folder))


def prepared(training, config=CONFIG):
    """The vocabulary and the pairs of training text."""
    vocabulary = make_tokenizer(training, config)
    return vocabulary, prepare.training_pairs(training, vocabulary, config)


def test_what_is_left_out_is_counted_and_shown(tmp_path):
    left_out = [("", "leer"), ("long " * 40, "lang " * 40), ("a", "b " * 12), ("a", "")]
    training = corpora(tmp_path, [*LINES, *left_out, LINES[3]])
    vocabulary, pairs = prepared(training)
    assert (len(pairs), pairs.read) == (50, 55)
    counts, report = prepare.report_lines(pairs)
    assert counts == "50 training pairs of 55"
    assert "2 empty, 1 duplicate, 1 too long, 1 length ratio" in report
    examples = Path(report.split("see ")[1]).read_text(encoding="utf-8")
    assert f"{tmp_path}/x, line 54\n  a\n" in examples
    held_out = tokenize_in_memory(training[0].pairs(), vocabulary)
    assert len(held_out) == 55  # nothing is ever left out of a dev or test set


def test_arrays_of_a_text_are_the_same_wherever_it_is(tmp_path, monkeypatch):
    hashes = []
    for name in ("here", "there"):
        monkeypatch.setenv("T2T_JAX_CACHE", str(tmp_path / "cache" / name))
        (tmp_path / name).mkdir()
        _, pairs = prepared(corpora(tmp_path / name, [*LINES, ("", "leer")]))
        assert str(tmp_path / name) in (pairs.folder / prepare.CORPORA).read_text()
        hashes.append(sealed.hashes(pairs.folder, without=(".txt", ".json")))
    assert hashes[0] == hashes[1]
    assert {"source.tokens", "target.tokens", "line.npy"} <= {*hashes[0]}
    # Nor does it matter that an earlier version, without scores, prepared it.
    meta = json.loads((pairs.folder / "meta.json").read_text())
    del meta["dropped"]["low score"]
    (pairs.folder / "meta.json").write_text(json.dumps(meta))
    assert prepare._read_pairs(pairs.folder).dropped == pairs.dropped


@pytest.mark.parametrize(
    ("pairs", "changes", "message"),
    [
        (LINES, {"max_length": 2}, r"50 too long, .*max_length=2$"),
        ([("", "a")], {}, "1 empty.*want lines with words$"),
    ],
)
def test_a_text_of_nothing_usable_is_told(tmp_path, pairs, changes, message):
    vocabulary = make_tokenizer(corpora(tmp_path), CONFIG)
    config = dataclasses.replace(CONFIG, **changes)
    with pytest.raises(
        UserError, match=f"no training pair is left of .*x: .*{message}"
    ):
        prepare.training_pairs(corpora(tmp_path, pairs), vocabulary, config)
    assert not any("writing" in name for name in contents(tmp_path))


def test_the_second_time_nothing_is_made(tmp_path, monkeypatch):
    training = corpora(tmp_path)
    _, made_pairs = prepared(training)
    files = contents(tmp_path)
    for module in (prepare, tokenizer_training):
        monkeypatch.setattr(module, "read_chunks", None)
    monkeypatch.setattr(tokenizer_training, "train_tokenizer", None)
    _, cached = prepared(training)
    assert contents(tmp_path) == files
    for field in ("key", "read", "dropped", "sizes", "weights", "folder"):
        assert getattr(made_pairs, field) == getattr(cached, field)
    np.testing.assert_array_equal(made_pairs.source.tokens, cached.source.tokens)


def test_a_changed_input_is_never_reused(tmp_path):
    def folders(kind):
        return len(list((tmp_path / "cache" / kind).iterdir()))

    _, unchanged = prepared(corpora(tmp_path))
    text = [*LINES[:-1], ("the dog barks", "der Hund bellt")]
    for change, other_tokenizer in (
        ({"symbols": "<bt>"}, True),
        ({"tokenizer_lines": 40}, True),
        ({"max_length": 31}, False),
        ({"deduplicate": False}, True),
        ("text", True),
        ("direction", True),
    ):
        training = corpora(tmp_path, text if change == "text" else LINES)
        config = CONFIG
        if change == "direction":
            training = open_corpora("x", "de", "en", str(tmp_path))
        elif change != "text":
            config = dataclasses.replace(config, **change)
        counts = folders("pairs"), folders("tokenizers")
        _, changed = prepared(training, config)
        assert folders("pairs") == counts[0] + 1, change
        assert folders("tokenizers") == counts[1] + other_tokenizer, change
        assert changed.key != unchanged.key


@pytest.mark.parametrize("config", [CONFIG, SEPARATE])
def test_every_pair_is_kept_in_the_tokens_of_its_side(tmp_path, config):
    vocabulary, pairs = prepared(corpora(tmp_path), config)
    assert prepare.report_lines(pairs) == ["50 training pairs"]
    sources, targets = zip(*LINES, strict=True)
    for text in (pairs, tokenize_in_memory(LINES, vocabulary)):
        for tokens, expected in (
            (text.source, vocabulary.source.encode(sources, end=True)),
            (text.target, vocabulary.encode(targets, end=True)),
        ):
            assert [tokens[i].tolist() for i in range(50)] == expected


def test_other_source_pieces_are_other_arrays(tmp_path):
    training = corpora(tmp_path)
    vocabulary, pairs = prepared(training, SEPARATE)
    other_vocabulary, other_pairs = prepared(
        training, dataclasses.replace(SEPARATE, source_vocab_size=0)
    )
    assert vocabulary.model == other_vocabulary.model != other_vocabulary.source.model
    assert other_pairs.key != pairs.key
    np.testing.assert_array_equal(other_pairs.target.tokens, pairs.target.tokens)


def test_a_crash_leaves_nothing_that_would_be_reused(tmp_path, monkeypatch):
    training = corpora(tmp_path)
    vocabulary = make_tokenizer(training, CONFIG)
    monkeypatch.setattr(cleaning, "CHUNK", 5)
    calls = itertools.count()

    def broken(*arguments, **options):
        if next(calls) == 3:
            raise KeyboardInterrupt
        return encode_pairs(*arguments, **options)

    with monkeypatch.context() as patch:
        patch.setattr("t2t_jax.data.pairs.encode_pairs", broken)
        with pytest.raises(KeyboardInterrupt):
            prepare.training_pairs(training, vocabulary, CONFIG)
    assert not any("pairs" in name for name in contents(tmp_path / "cache" / "pairs"))
    assert len(prepare.training_pairs(training, vocabulary, CONFIG)) == 50


def test_neither_chunks_nor_cores_show(tmp_path, monkeypatch):
    pairs = [*LINES, ("", "leer"), ("long " * 40, "lang"), *LINES[:9]]
    pairs += [(f"{target} <", source) for source, target in LINES]
    training = corpora(tmp_path, pairs)
    vocabulary, pairs_whole = prepared(training)
    expected = contents(pairs_whole.folder)
    for chunk, cores in ((1, 1), (7, 3)):
        monkeypatch.setenv("T2T_JAX_CACHE", str(tmp_path / f"{cores} cores"))
        monkeypatch.setattr(cleaning, "CHUNK", chunk)
        monkeypatch.setattr(os, "sched_getaffinity", lambda _, n=cores: range(n))
        same_pairs = prepare.training_pairs(training, vocabulary, CONFIG)
        assert contents(same_pairs.folder) == expected


def test_large_vocabularies_do_not_wrap(tmp_path, monkeypatch):
    vocabulary = make_tokenizer(corpora(tmp_path), CONFIG)
    training = corpora(tmp_path, [("a", "b")])
    monkeypatch.setattr(type(vocabulary), "__len__", lambda _: 70_000)
    high = [ragged([row]) for row in ([69_999, 2], [65_536, 2])]
    monkeypatch.setattr("t2t_jax.data.pairs.encode_pairs", lambda *_, **__: high)
    pairs = prepare.training_pairs(training, vocabulary, CONFIG)
    assert pairs.source[0].tolist() == [69_999, 2]
    assert pairs.target[0].tolist() == [65_536, 2]


def test_a_tokenizer_sees_the_clean_text_of_its_side(tmp_path, monkeypatch):
    """A line that is there a thousand times has no pieces of its own."""
    texts, train = [], tokenizer_training.train_tokenizer

    def watched(lines, *arguments):
        texts.append([*lines])
        return train(iter(texts[-1]), *arguments)

    monkeypatch.setattr(tokenizer_training, "train_tokenizer", watched)
    dirty = corpora(tmp_path, [*LINES, *[("zyx", "wvu")] * 1000, ("", "leer")])
    for changes in ({}, {"deduplicate": False}, {"tokenizer_lines": 60}):
        make_tokenizer(dirty, dataclasses.replace(CONFIG, **changes))
    make_tokenizer(dirty, SEPARATE)
    clean, repeated, sampled, target_text, source_text = texts
    assert clean == [line for pair in [*LINES, ("zyx", "wvu")] for line in pair]
    assert repeated.count("zyx") == 1000
    assert "leer" not in repeated
    assert len(sampled) == 60
    sampled_pairs = set(zip(sampled[::2], sampled[1::2], strict=True))
    assert sampled_pairs <= {*LINES, ("zyx", "wvu")}
    assert sampled_pairs != set(LINES[:30])
    assert (source_text, target_text) == (clean[::2], clean[1::2])


def test_a_lossy_tokenizer_of_ones_own_is_told(tmp_path, capsys):
    theirs = foreign([line for pair in LINES for line in pair], vocab_size=60)
    (tmp_path / "theirs.model").write_bytes(theirs.model)
    config = dataclasses.replace(CONFIG, tokenizer="theirs.model", dir=str(tmp_path))
    make_tokenizer(corpora(tmp_path), config)
    assert capsys.readouterr().err == ""
    lossy = corpora(tmp_path, [*LINES, ("the  cat", "Katze"), ("cat", "日本")])
    make_tokenizer(lossy, config)
    warning = capsys.readouterr().err
    assert "theirs.model changes 2 of the first 104 lines" in warning
    assert "'the  cat' into 'the cat'" in warning
    with pytest.raises(UserError, match="'<bt>', which .*theirs.model splits"):
        make_tokenizer(lossy, dataclasses.replace(config, symbols="<bt>"))


def test_progress_is_a_bar_in_a_terminal_and_lines_elsewhere(
    tmp_path, monkeypatch, capsys
):
    monkeypatch.setattr(messages, "DELAY", 0)
    monkeypatch.setattr(messages, "INTERVAL", 0)
    monkeypatch.setattr(cleaning, "CHUNK", 20)
    training = corpora(tmp_path)
    vocabulary, _ = prepared(training)
    lines = capsys.readouterr().err
    assert re.search(r"^reading: 40 pairs, [\d,]+/s$", lines, re.M)
    assert re.search(r"^encoding: 40 of 50 pairs, [\d,]+/s, 00:00 left$", lines, re.M)
    assert "\r" not in lines
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    config = dataclasses.replace(CONFIG, max_length=31)
    prepare.training_pairs(training, vocabulary, config)
    bar = capsys.readouterr().err
    assert "/50.0" in bar
    assert bar.endswith("\r")
    assert "\n" not in bar


@settings(max_examples=40)
@given(
    st.lists(
        st.lists(st.lists(st.integers(4, 99), max_size=20), max_size=6),
        min_size=1,
        max_size=3,
    ),
    st.integers(1, 9),
)
def test_blocks_are_the_text_cut_where_they_are_full(texts, block):
    rows = [
        (corpus, number, [*line, 2])
        for corpus, text in enumerate(texts)
        for number, line in enumerate(text, 1)
    ]
    pairs = Pairs(
        ragged([()] * len(rows)),
        ragged([row for _, _, row in rows]),
        {},
        sizes=tuple(map(len, texts)),
        line=np.array([number for _, number, _ in rows], np.int32),
    )
    blocks = cut(pairs, block)
    expected = [
        (corpus, number, row[i : i + block])
        for corpus, number, row in rows
        for i in range(0, len(row), block)
    ]
    block_corpora = np.repeat(np.arange(len(texts)), blocks.sizes).tolist()
    target = [blocks.target[i].tolist() for i in range(len(blocks.target))]
    assert [*zip(block_corpora, blocks.line.tolist(), target, strict=True)] == expected
    assert len(blocks.source) == len(expected)
    assert not blocks.source.lengths.any()


class Blocks(Examples):
    sides = (1,)
    cuts = True


def test_cut_text_is_kept_and_found_again(tmp_path):
    (tmp_path / "x.en").write_text("a b c d e f g h i j\n" * 3 + "short\n")
    training = [open_lines("x.en", "en", "de", str(tmp_path))]
    config = dataclasses.replace(CONFIG, vocab_size=280, max_length=6, max_ratio=0.0)
    vocabulary = make_tokenizer(training, config, (1,))
    pairs = prepare.training_pairs(training, vocabulary, config, Blocks())
    assert pairs.target.lengths.max() == 6
    assert set(pairs.line.tolist()) == {1, 4}  # the others are duplicates
    cached = prepare.find_prepared(prepare.text_summary(pairs, []))
    np.testing.assert_array_equal(cached.target.offsets, pairs.target.offsets)


rows = st.lists(st.integers(3, 4), max_size=3).map(lambda row: [*row, 2])
some_pairs = st.lists(st.tuples(rows | st.just([]), rows), min_size=1, max_size=6)


@settings(max_examples=50)
@given(some_pairs, some_pairs)
def test_pairs_that_another_text_has_are_counted(text, dev):
    training, heldout = (
        Pairs(*(ragged([pair[side] for pair in lines]) for side in (0, 1)), {})
        for lines in (text, dev)
    )
    assert shared(training, heldout) == sum(pair in text for pair in dev)
