"""Words of tokens, and the links of a text: learned, read, stored, and in batches."""

import dataclasses
import itertools
from unittest import mock

import numpy as np
import pytest

from t2t_jax.config import Config, DataConfig, TrainConfig
from t2t_jax.data import prepare
from t2t_jax.data.corpus import heaviest_first, open_corpora
from t2t_jax.data.feeding import feed, plan_for
from t2t_jax.data.filling import ragged
from t2t_jax.data.pairs import Pairs
from t2t_jax.data.tokenizers.training import make_tokenizer
from t2t_jax.extensions.data import links
from t2t_jax.extensions.data.links import WordFinder, word_links
from t2t_jax.io.errors import UserError
from tests.small_run import write_pairs

CONFIG = DataConfig(vocab_size=320, max_length=40, batch_tokens=320, row_length=40)
WORDS = {
    "the": "der", "cat": "Kater", "dog": "Hund", "sees": "sieht", "sleeps": "schläft",
    "bird": "Vogel", "old": "alte", "a": "ein", "hears": "hört", "big": "große",
}  # fmt: skip


def lines():
    random = np.random.default_rng(0)
    for _ in range(120):
        english = random.permutation([*WORDS])[: random.integers(3, 7)]
        yield " ".join(english) + ".", " ".join(WORDS[w] for w in english) + "."
    yield "the " * 60, "zu lang"  # is left out
    yield "the dog sleeps!", "der Hund (ein Hund) schläft!"


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    folder = tmp_path_factory.mktemp("links")
    write_pairs(folder, x=[*lines()])
    corpora = open_corpora("x", "en", "de", str(folder))
    vocabulary = make_tokenizer(corpora, CONFIG)
    return prepare.prepared_pairs(corpora, vocabulary, CONFIG), corpora, vocabulary


def test_a_word_has_one_hash_everywhere_and_others_have_others(text):
    """Which tokens are a word: tests/text/test_words.py."""
    vocabulary = text[2]
    alike = ragged(vocabulary.encode(["der Hund! der Hund der"]))
    der, hund, sign, *rest = WordFinder(vocabulary, "units")(alike)[1][0]
    assert rest == [der, hund, der]
    assert len({der, hund, sign}) == 3


def test_learned_links_are_those_of_the_words(text):
    pairs, corpora, vocabulary = text
    arrays = word_links(pairs, corpora, vocabulary, [])
    source, target = map(WordFinder(vocabulary, "units"), (pairs.source, pairs.target))
    np.testing.assert_array_equal(arrays.source["source_word"], source[0])
    end = pairs.target.offsets[120]  # word for word, and the full stop
    linked, word = np.asarray(arrays.target["link"][:end]), target[0][:end]
    right = (linked[:, 0] == word) & (linked[:, 1:] == 0).all(1)
    assert right.mean() > 0.97
    cached = word_links(pairs, corpora, vocabulary, [])  # from the cache
    np.testing.assert_array_equal(cached.target["link"], arrays.target["link"])
    assert (cached.key, cached.report) == (arrays.key, arrays.report)


def pharaoh(folder, last_line=""):
    rows = [" ".join(f"{i}-{i}" for i in range(len(a.split()))) for a, _ in lines()]
    file = folder / "x.align"
    file.write_text("\n".join([*rows[:-1], last_line]) + "\n", encoding="utf-8")
    return file


@pytest.mark.parametrize("batching", ["packed", "bucketed"])
def test_links_of_a_file_reach_the_batches_of_both_feeders(
    text, tmp_path, batching, monkeypatch
):
    monkeypatch.setattr(links, "LINKS_OF_A_WORD", 2)
    pairs, corpora, vocabulary = text
    file = pharaoh(tmp_path, "0-0 1-1 2-4 0-3 1-3 2-3 0-3")
    arrays = word_links(pairs, corpora, vocabulary, [file])
    end = arrays.target["link"][pairs.target.offsets[-2] :]
    expected = {(1, 0), (2, 0), (0, 0), (1, 2), (3, 0)}  # the third of one is left out
    assert {*map(tuple, end.tolist())} == expected
    target_words = WordFinder(vocabulary, "spaces")(pairs.target)[0]  # word for word
    parallel = slice(pairs.target.offsets[-2])
    np.testing.assert_array_equal(
        arrays.target["link"][parallel, 0], target_words[parallel]
    )

    pairs = dataclasses.replace(pairs, further=arrays)
    config = dataclasses.replace(CONFIG, batching=batching, buckets=2)
    plan = plan_for(pairs, config, 0, 0)
    numpy, tf = (
        [*itertools.islice(feed(pairs, dataclasses.replace(config, feeder=f), 0), 3)]
        for f in ("numpy", "tfdata")
    )
    for layout, (_, batch), (_, tf_batch) in zip(plan, numpy, tf, strict=False):
        assert [*batch] == [*tf_batch]
        for name, array in batch.items():
            np.testing.assert_array_equal(array, tf_batch[name])
        expected = np.zeros_like(batch["link"])  # padding is 0
        places = layout.pair_p, layout.row_p, layout.target_start_p
        for p, row, start in zip(*places, strict=True):
            begin, end = pairs.target.offsets[p : p + 2]
            pair_links = arrays.target["link"][begin:end]
            expected[row, start : start + end - begin] = pair_links
        np.testing.assert_array_equal(batch["link"], expected)


def test_each_corpus_has_its_file_and_each_pair_its_line(text, tmp_path):
    files = [tmp_path / name for name in "ab"]
    for file, content in zip(files, ("a\nb\nc\n", "d\ne\n"), strict=True):
        file.write_text(content)
    pairs = Pairs(None, None, {}, read=5, sizes=(2, 1), line=np.array([1, 3, 2]))
    assert links._lines(pairs, files) == ["a", "c", "e"]
    for wrong in (files[::-1], files[:1] * 2):
        with pytest.raises(UserError, match=r"3 lines.* 5 pairs"):
            links._lines(pairs, wrong)
    for paths in ([pharaoh(tmp_path)] * 2, [tmp_path / "y.align"]):
        with pytest.raises(UserError, match="for each of the 1 corpora"):
            word_links(*text, paths)


def test_files_of_links_are_named_in_the_order_of_the_corpora(tmp_path, monkeypatch):
    for name in ("a.en", "a.de", "b.en", "b.de"):
        (tmp_path / name).write_text("x\n")
    monkeypatch.setattr(links, "word_links", lambda *arguments: arguments[-1])
    data = dataclasses.replace(CONFIG, dir=str(tmp_path), train="a, b@2")
    train = TrainConfig(loss="guided", options={"links": "of_a, of_b"})
    corpora = heaviest_first(open_corpora(data.train, "en", "de", data.dir, True))
    files = links.guided_arrays(Config(data=data, train=train), None, corpora, None)
    assert files == [tmp_path / "of_b", tmp_path / "of_a"]


@pytest.mark.parametrize("line", ["0-0 1-x", "0-5", "3-0"])
def test_a_wrong_link_is_refused(text, tmp_path, line):
    wrong = f"x.align, line 122: '{line[-3:]}' is not a link of 3 source and 5 target"
    with pytest.raises(UserError, match=wrong):
        word_links(*text, [pharaoh(tmp_path, line)])


def test_a_tokenizer_that_changes_the_words_of_a_line_is_refused(text, tmp_path):
    pairs, corpora, vocabulary = text
    spelled = lambda line: line.replace("!", " !")  # noqa: E731
    normalizing = mock.Mock(wraps=vocabulary, free_spaces=False, spelled=spelled)
    normalizing.source = normalizing
    with pytest.raises(UserError, match="x, line 122: 'the dog sleeps!' has 3 words"):
        links._check_words(pairs, corpora, normalizing)
