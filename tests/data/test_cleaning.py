"""Every pair is kept or counted, for the first rule that it breaks."""

import dataclasses
import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from t2t_jax.config import DataConfig
from t2t_jax.data import cleaning
from t2t_jax.data.cleaning import Cleaner, hashes, read_chunks
from t2t_jax.data.hashing import HashSet

CONFIG = DataConfig(max_length=6, max_ratio=2.0)


@dataclasses.dataclass
class Lines:
    """A corpus of pairs in memory."""

    lines: list
    place: str = "x"

    def pairs(self):
        return iter(self.lines)


def words(line):
    """Pieces of a line as these tests count them: words and the end."""
    return len(line.split()) + 1


def clean(corpora, config=CONFIG):
    """(pairs kept, cleaner) with words for pieces."""
    cleaner, kept = Cleaner(config), []
    for whole in read_chunks([Lines(pairs) for pairs in corpora]):
        chunk = cleaner.by_text(whole)
        lengths = np.array([[words(s), words(t)] for s, t in chunk.pairs], int)
        kept_p = cleaner.by_length(chunk, *lengths.reshape(-1, 2).T)
        kept += itertools.compress(chunk.pairs, kept_p)
    return kept, cleaner


def slowly(corpora, config):
    """The rules, a pair at a time: (pairs kept, rule -> count)."""
    kept, dropped, seen = [], dict.fromkeys(cleaning.FIELDS, 0), set()
    for pair in itertools.chain.from_iterable(corpora):
        short, long = sorted(map(words, pair))
        if not all(side.strip() for side in pair):
            dropped["empty"] += 1
        elif config.deduplicate and pair in seen:
            dropped["duplicate"] += 1
        elif long > config.max_length:
            dropped["too long"] += 1
        elif config.max_ratio and long / short > config.max_ratio:
            dropped["length ratio"] += 1
        else:
            kept.append(pair)
        seen.add(pair)
    return kept, dropped


side = st.lists(st.sampled_from("ab"), max_size=7).map(" ".join)
corpus = st.lists(st.tuples(side, side), max_size=40)


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
        kept, cleaner = clean(corpora, config)
    assert (kept, cleaner.dropped) == slowly(corpora, config)
    assert cleaner.read == sum(map(len, corpora))
    assert cleaner.read == len(kept) + sum(cleaner.dropped.values())


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
    seen, found = set(), HashSet(bits=1)
    for keys in chunks:
        new = [not (max(k, 1) in seen or seen.add(max(k, 1))) for k in keys]
        assert found.add(np.array(keys, np.uint64)).tolist() == new


def test_seen_grows_and_stays_two_thirds_full():
    seen, rng = HashSet(bits=1), np.random.default_rng(0)
    keys = rng.integers(0, 1 << 64, 25_000, np.uint64)
    for chunk in np.split(keys, 10):
        assert seen.add(chunk).all()
    slots = len(seen._table.keys)
    assert len(keys) * 3 / 2 <= slots <= len(keys) * 4
    assert not seen.add(keys).any()


def test_hashes_tell_pairs_apart_and_are_the_same_everywhere():
    pairs = [("a", "bc"), ("ab", "c"), ("bc", "a"), ("abc", ""), ("", "abc")]
    pairs += [("1", "2 a"), ("1 ", "2a"), ("a", "b c"), ("é", "a"), ("e\u0301", "a")]
    assert len(set(hashes(pairs).tolist())) == len(pairs)
    assert hashes([("a", "bc")]).tolist() == [17535436683473127592]


def test_chunks_know_where_their_pairs_stand(monkeypatch):
    monkeypatch.setattr(cleaning, "CHUNK", 3)
    lines = [
        [(f"{c}{i}", "") for i in range(n)] for c, n in (("a", 7), ("b", 0), ("c", 3))
    ]
    chunks = list(read_chunks([Lines(pairs) for pairs in lines]))
    found = [(c.corpus, c.lines.tolist()) for c in chunks]
    assert found == [(0, [1, 2, 3]), (0, [4, 5, 6]), (0, [7]), (2, [1, 2, 3])]
    assert [pair for c in chunks for pair in c.pairs] == lines[0] + lines[2]


def test_a_person_sees_the_first_of_what_was_left_out(monkeypatch):
    monkeypatch.setattr(cleaning, "CHUNK", 3)
    monkeypatch.setattr(cleaning, "EXAMPLES", 5)
    pairs = [("a", "b"), ("", "leer"), *[("a", "b")] * 7]
    _, cleaner = clean([pairs, [("x y", "")]])
    told = cleaner.show(["news", "web"])
    assert "empty: 2 pairs" in told
    assert "news, line 2\n  \n  leer\n" in told
    assert "web, line 1\n  x y\n" in told
    assert "duplicate: 7 pairs" in told
    assert told.count("  a\n  b\n") == 5
    assert "news, line 3\n  a" in told
    assert "too long" not in told
