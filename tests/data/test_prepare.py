"""Token arrays on disk: made once, whole or absent, never for another input."""

import dataclasses

import numpy as np
import pytest

from t2t_jax.config import DataConfig
from t2t_jax.data import prepare
from t2t_jax.data.corpus import open_corpora
from t2t_jax.errors import UserError

CONFIG = DataConfig(vocab_size=320, max_length=30)
LINES = [
    (f"the cat number {i} sleeps", f"die Katze Nummer {i} schläft") for i in range(50)
]


@pytest.fixture(autouse=True)
def _cache(tmp_path, monkeypatch):
    monkeypatch.setenv("T2T_JAX_CACHE", str(tmp_path / "cache"))


def corpora(folder, pairs=LINES):
    for side, language in enumerate(("en", "de")):
        text = "".join(pair[side] + "\n" for pair in pairs)
        (folder / f"x.{language}").write_text(text, encoding="utf-8")
    return open_corpora("x", "en", "de", str(folder))


def everything(folder):
    return {
        str(p.relative_to(folder)): p.read_bytes()
        for p in folder.rglob("*")
        if p.is_file()
    }


def test_every_pair_is_kept_in_order_with_its_end(tmp_path):
    training = corpora(tmp_path)
    vocabulary = prepare.tokenizer(training, CONFIG)
    pairs = prepare.training_pairs(training, vocabulary, CONFIG)
    assert len(pairs) == 50
    for side, ragged in enumerate((pairs.source, pairs.target)):
        rows = [ragged[i] for i in range(50)]
        assert all(row[-1] == vocabulary.eos for row in rows)
        assert vocabulary.decode(rows) == [pair[side] for pair in LINES]


def test_what_is_left_out_is_counted(tmp_path):
    training = corpora(
        tmp_path, [*LINES, ("", "leer"), ("long " * 40, "lang"), ("a", "")]
    )
    vocabulary = prepare.tokenizer(training, CONFIG)
    pairs = prepare.training_pairs(training, vocabulary, CONFIG)
    assert (len(pairs), pairs.dropped) == (50, {"empty": 2, "too long": 1})
    held_out = prepare.small_pairs(training[0].pairs(), vocabulary)
    assert len(held_out) == 53  # nothing is ever left out of a dev or test set


def test_a_text_of_nothing_usable_is_told(tmp_path):
    training = corpora(tmp_path)
    vocabulary = prepare.tokenizer(training, CONFIG)
    config = dataclasses.replace(CONFIG, max_length=2)
    with pytest.raises(UserError, match="50 longer than config.data.max_length=2"):
        prepare.training_pairs(training, vocabulary, config)
    assert not any("writing" in name for name in everything(tmp_path))


def test_the_second_time_nothing_is_made(tmp_path, monkeypatch):
    training = corpora(tmp_path)
    vocabulary = prepare.tokenizer(training, CONFIG)
    first = prepare.training_pairs(training, vocabulary, CONFIG)
    before = everything(tmp_path)
    monkeypatch.setattr(prepare, "encode_pairs", None)
    monkeypatch.setattr(prepare.vocab, "train", None)
    again = prepare.training_pairs(
        training, prepare.tokenizer(training, CONFIG), CONFIG
    )
    assert everything(tmp_path) == before
    np.testing.assert_array_equal(first.source.tokens, again.source.tokens)


@pytest.mark.parametrize("change", ["text", "vocab_size", "max_length", "direction"])
def test_a_changed_input_is_never_reused(tmp_path, change):
    training, config = corpora(tmp_path), CONFIG

    def tokens():
        vocabulary = prepare.tokenizer(training, config)
        return prepare.training_pairs(training, vocabulary, config).source.tokens

    before = np.array(tokens())
    folders = len(list((tmp_path / "cache" / "pairs").iterdir()))
    if change == "text":
        training = corpora(tmp_path, [*LINES[:-1], ("the dog barks", "der Hund bellt")])
    elif change == "direction":
        training = open_corpora("x", "de", "en", str(tmp_path))
    else:
        value = {"vocab_size": 330, "max_length": 31}[change]
        config = dataclasses.replace(config, **{change: value})
    after = np.array(tokens())
    assert len(list((tmp_path / "cache" / "pairs").iterdir())) == folders + 1
    assert change == "max_length" or not np.array_equal(before, after)


def test_a_crash_leaves_nothing_that_would_be_reused(tmp_path, monkeypatch):
    training = corpora(tmp_path)
    vocabulary = prepare.tokenizer(training, CONFIG)

    def broken(*_):
        yield [5, 2], [6, 2]
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(prepare, "encode_pairs", broken)
        with pytest.raises(KeyboardInterrupt):
            prepare.training_pairs(training, vocabulary, CONFIG)
    assert len(prepare.training_pairs(training, vocabulary, CONFIG)) == 50


def test_chunks_do_not_show(tmp_path, monkeypatch):
    training = corpora(tmp_path)
    vocabulary = prepare.tokenizer(training, CONFIG)
    whole = list(prepare.encode_pairs(LINES, vocabulary))
    monkeypatch.setattr(prepare, "CHUNK", 7)
    assert list(prepare.encode_pairs(LINES, vocabulary)) == whole


def test_large_vocabularies_do_not_wrap(tmp_path, monkeypatch):
    training = corpora(tmp_path)
    vocabulary = prepare.tokenizer(training, CONFIG)
    monkeypatch.setattr(type(vocabulary), "__len__", lambda _: 70_000)
    high = [([69_999, 2], [65_536, 2])]
    monkeypatch.setattr(prepare, "encode_pairs", lambda *_: iter(high))
    pairs = prepare.training_pairs(training, vocabulary, CONFIG)
    assert pairs.source[0].tolist() == [69_999, 2]
    assert pairs.target[0].tolist() == [65_536, 2]
