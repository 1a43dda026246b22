"""Every pair is kept or counted, for the first rule that it breaks."""

import dataclasses
import itertools
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from t2t_jax.config import DataConfig
from t2t_jax.data import cleaning
from t2t_jax.data.cleaning import Cleaner, read_chunks
from t2t_jax.data.hashing import HashSet

CONFIG = DataConfig(max_length=6, max_ratio=2.0)


def words(line):
    """Pieces of a line as these tests count them: words and the end."""
    return len(line.split()) + 1


def clean(corpora, config=CONFIG):
    """(pairs kept, cleaner) with words for pieces."""
    cleaner, clean_pairs = Cleaner(config), []
    for raw in read_chunks(
        [SimpleNamespace(span=partial(itertools.islice, c)) for c in corpora]
    ):
        chunk = cleaner.by_text(raw)
        lengths = np.array([[words(s), words(t)] for s, t in chunk.pairs], int)
        kept_p = cleaner.by_length(chunk, *lengths.reshape(-1, 2).T)
        clean_pairs += itertools.compress(chunk.pairs, kept_p)
    return clean_pairs, cleaner


def slowly(corpora, config):
    """The rules, a pair at a time: (pairs kept, rule -> count)."""
    clean_pairs, dropped, earlier = [], dict.fromkeys(cleaning.FIELDS, 0), set()
    for pair in itertools.chain.from_iterable(corpora):
        short, long = sorted(map(words, pair))
        if not all(side.strip() for side in pair):
            dropped["empty"] += 1
        elif config.deduplicate and pair in earlier:
            dropped["duplicate"] += 1
        elif long > config.max_length:
            dropped["too long"] += 1
        elif config.max_ratio and long / short > config.max_ratio:
            dropped["length ratio"] += 1
        else:
            clean_pairs.append(pair)
        earlier.add(pair)
    return clean_pairs, dropped


side = st.lists(st.sampled_from("ab"), max_size=7).map(" ".join)
corpus = st.lists(st.tuples(side, side), max_size=40)


@settings(max_examples=40)
@given(
    st.lists(corpus, min_size=1, max_size=3),
    st.integers(1, 9),
    st.booleans(),
    st.sampled_from([0.0, 1.0, 1.5, 2.0, 4.0]),
)
def test_the_rules_are_those_of_a_slow_twin(corpora, chunk, deduplicate, ratio):
    config = dataclasses.replace(CONFIG, deduplicate=deduplicate, max_ratio=ratio)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cleaning, "CHUNK", chunk)
        clean_pairs, cleaner = clean(corpora, config)
    assert (clean_pairs, cleaner.dropped) == slowly(corpora, config)
    assert cleaner.read == sum(map(len, corpora))
    assert cleaner.read == len(clean_pairs) + sum(cleaner.dropped.values())


INVISIBLE = ["", " ", "\t\x0b", "\xa0\u2003\u3000", "\u200b\ufeff", "\xad", "\x00\x1b"]
INVISIBLE += ["\u2028", "<bt>", " <bt> <2de>\u200d"]
VISIBLE = [".", "\u200b!", "<s>", "<bt> x", "\u2581", "\U0001fae9"]


def test_what_cannot_be_seen_is_empty():
    config = dataclasses.replace(CONFIG, symbols="<bt>,<2de>")
    for line in INVISIBLE:
        for pair in (("a", line), (line, "a")):
            assert clean([[pair]], config)[1].dropped["empty"] == 1, pair
    for line in VISIBLE:
        assert clean([[(line, line)]], config)[0] == [(line, line)]


@given(st.lists(st.lists(st.integers(0, 60), max_size=30), max_size=9))
def test_seen_is_a_set(chunks):
    """Keys from a small range meet often, and the array starts at its smallest."""
    earlier, hashes = set(), HashSet(bits=1)
    for keys in chunks:
        new = [not (max(k, 1) in earlier or earlier.add(max(k, 1))) for k in keys]
        assert hashes.add(np.array(keys, np.uint64)).tolist() == new
