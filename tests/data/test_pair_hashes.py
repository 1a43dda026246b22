"""Pairs that are no longer in step are found at their first line."""

import gzip

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from t2t_jax.data.corpus import open_corpus
from t2t_jax.data.text_files import pair_hasher
from t2t_jax.io.errors import UserError

PAIRS = [("a", "x"), ("b", "y"), ("", ""), ("d", "ü"), ("e", "z")]


def write(folder, pairs, hashed=None, name="bt"):
    """Writes both files, and the hashes of `hashed` if it is not None."""
    sides = {"en": [en for en, _ in pairs], "de": [de for _, de in pairs]}
    if hashed is not None:
        sides["hashes"] = map(pair_hasher("en", "de"), hashed)
    for ending, lines in sides.items():
        content = "".join(f"{line}\n" for line in lines)
        (folder / f"{name}.{ending}").write_text(content, encoding="utf-8")
    return open_corpus(f"{folder}/{name}", "en", "de")


def test_pairs_in_step_are_read_in_either_direction(tmp_path):
    assert list(write(tmp_path, PAIRS, PAIRS).pairs()) == PAIRS
    backwards = open_corpus(f"{tmp_path}/bt", "de", "en")
    assert list(backwards.pairs()) == [pair[::-1] for pair in PAIRS]


def test_hashes_may_be_gzipped_and_endings_that_are_no_languages_do_not_matter(
    tmp_path,
):
    corpus = write(tmp_path, PAIRS, PAIRS[::-1])
    plain = tmp_path / "bt.hashes"
    (tmp_path / "bt.json").write_text("{}")
    plain.unlink()
    assert list(corpus.pairs()) == PAIRS
    right = "".join(f"{pair_hasher('en', 'de')(pair)}\n" for pair in PAIRS)
    (tmp_path / "bt.hashes.gz").write_bytes(gzip.compress(right.encode()))
    assert list(corpus.pairs()) == PAIRS
    (tmp_path / "bt.hashes.gz").write_bytes(gzip.compress(right[17:].encode()))
    with pytest.raises(UserError, match=r"line 1: .*bt.hashes.gz was written for"):
        list(corpus.pairs())


EN, DE = ([pair[side] for pair in PAIRS] for side in (0, 1))
CHANGES = {
    # A line lost in one file, and one added in the other: their numbers agree.
    2: (EN[:1] + EN[2:] + ["new"], DE),
    4: (EN, [*DE[:3], "u", DE[4]]),
}


@pytest.mark.parametrize("line", CHANGES)
def test_the_first_changed_line_is_named(tmp_path, line):
    corpus = write(tmp_path, list(zip(*CHANGES[line], strict=True)), PAIRS)
    read = corpus.pairs()
    assert len([next(read) for _ in range(line - 1)]) == line - 1
    wanted = rf"bt.en and \S+bt.de, line {line}: .*bt.hashes was .* remove \S+bt.hashes"
    with pytest.raises(UserError, match=wanted):
        next(read)


def test_other_numbers_of_lines_are_errors(tmp_path):
    with pytest.raises(UserError, match=r"bt.hashes: no line 4, which \S+bt.en and"):
        list(write(tmp_path, PAIRS, PAIRS[:3]).pairs())
    with pytest.raises(UserError, match=r"bt.de: no line 4, which \S+bt.hashes has"):
        list(write(tmp_path, PAIRS[:3], PAIRS).pairs())


LINE = st.text(st.sampled_from("ab \r\u2028ü"), max_size=3)


@settings(max_examples=60)
@given(st.tuples(LINE, LINE), st.tuples(LINE, LINE))
def test_hashes_tell_pairs_apart_whatever_the_direction(one, other):
    en_de, de_en = pair_hasher("en", "de"), pair_hasher("de", "en")
    assert (en_de(one) == en_de(other)) == (one == other)
    assert en_de(one) == de_en(one[::-1])
    assert len(en_de(one)) == 16
