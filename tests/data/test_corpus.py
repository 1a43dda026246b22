"""Pairs of lines, whole and in step, or a message that a person can act on."""

import gzip
import types
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from t2t_jax.commands.flags import workdirs_of
from t2t_jax.data.corpus import open_corpora, open_corpus
from t2t_jax.data.text_files import pair_hasher
from t2t_jax.io.errors import UserError
from t2t_jax.io.locations import join_names, split_names


def write(folder, name="x", en=b"a\nb\n", de=b"c\nd\n"):
    for language, content in (("en", en), ("de", de)):
        if content is not None:
            (folder / f"{name}.{language}").write_bytes(content)
    return open_corpus(f"{folder}/{name}", "en", "de")


def test_files_are_read_plain_and_gzipped_in_both_directions(tmp_path):
    plain = write(tmp_path)
    for language, content in (("en", b"a\nb\n"), ("de", b"c\nd\n")):
        (tmp_path / f"z.{language}.gz").write_bytes(gzip.compress(content))
    zipped = open_corpus(f"{tmp_path}/z", "en", "de")
    assert list(plain.pairs()) == list(zipped.pairs()) == [("a", "c"), ("b", "d")]
    backwards = open_corpus(f"{tmp_path}/x", "de", "en")
    assert next(backwards.pairs()) == ("c", "a")
    # A fingerprint changes with the text and the direction.
    changed = write(tmp_path, "y", de=b"c\ne\n")
    assert plain.fingerprint() == write(tmp_path).fingerprint()
    assert len({c.fingerprint() for c in (plain, backwards, changed)}) == 3


def test_only_a_line_feed_ends_a_line(tmp_path):
    strange = "a\x0bb\x0cc\x1cd\x85e\u2028f\u2029g\rh\x00i"
    en = f"\ufeff{strange}\r\n\ufeffb\n\n"  # a byte order mark is not text
    corpus = write(tmp_path, en=en.encode(), de=b"c\nd\ne")
    assert list(corpus.pairs()) == [(strange, "c"), ("\ufeffb", "d"), ("", "e")]


@pytest.mark.parametrize(
    ("sides", "place", "message"),
    [
        ({"en": b"a\nb\nc\n"}, "x", "x.en has 3 lines but .*x.de has 2"),
        ({"en": b"a\nb\xff\n"}, "x", r"x.en, line 2: byte 2 \(0xff\).*iconv"),
        ({"de": None}, "x", "x.de does not exist, nor does x.de.gz.*folder has x.en"),
        ({"en": b"", "de": b""}, "x", "are empty"),
        ({}, "x.en", r"leave out \.en: want \S+/x$"),
        ({}, "mail@2/x", "there is no folder .*mail@2"),
    ],
)
def test_bad_files_are_told(tmp_path, sides, place, message):
    write(tmp_path, **sides)
    with pytest.raises(UserError, match=message):
        list(open_corpus(f"{tmp_path}/{place}", "en", "de").pairs())


def test_a_damaged_gzip_file_is_told(tmp_path):
    write(tmp_path, de=None)
    zipped = gzip.compress(b"c\nd\n" * 1000)
    for damaged in (
        zipped[: len(zipped) // 2],
        zipped[:12] + b"\xff" * 6 + zipped[18:],
    ):
        (tmp_path / "x.de.gz").write_bytes(damaged)
        with pytest.raises(UserError, match="not a complete gzip file"):
            list(open_corpus(f"{tmp_path}/x", "en", "de").pairs())


# ---------------------------------------------------------------------------- places


@pytest.mark.parametrize(
    ("written", "place", "weight"),
    [("x @2", "x", 2), ("mail@home/x@3.", "mail@home/x", 3), ("y@z", "y@z", 1)],
)
def test_a_place_of_training_text_may_have_a_weight(tmp_path, written, place, weight):
    (tmp_path / "mail@home").mkdir()
    for name in ("x", "mail@home/x", "y@z"):
        write(tmp_path, name)
    corpora = open_corpora(
        f"{written}, grammar:dev", "en", "de", str(tmp_path), weights=True
    )
    plain = open_corpus(place, "en", "de", str(tmp_path))
    assert [corpus.weight for corpus in corpora] == [weight, 1]
    assert corpora[0].spec == plain.spec
    assert corpora[0].fingerprint() == plain.fingerprint()


@pytest.mark.parametrize(
    ("places", "weights", "message"),
    [
        ("x@0", True, "^x@0 .*want CORPUS@NUMBER"),
        ("x@nan", True, "want CORPUS@NUMBER"),
        ("grammar:train@abc", True, "want CORPUS@NUMBER"),
        ("x@2", False, "only training text has weights"),
        ("x, ./x", False, "x twice; want it once$"),
        ("x@2,x", True, "x twice; want it once; for twice an .*x@2"),
        ("grammar:trian", False, "did you mean 'train'"),
    ],
)
def test_places_that_mean_nothing_are_refused(tmp_path, places, weights, message):
    write(tmp_path)
    with pytest.raises(UserError, match=message):
        open_corpora(places, "en", "de", str(tmp_path), weights=weights)


# ---------------------------------------------------------------------------- hashes

PAIRS = [("a", "x"), ("b", "y"), ("", ""), ("d", "ü"), ("e", "z")]
EN, DE = ([pair[side] for pair in PAIRS] for side in (0, 1))
SHIFTED = list(zip([*EN[:1], *EN[2:], "new"], DE, strict=True))


def write_hashed(folder, pairs, hashed):
    """Writes both files, and the hashes of `hashed`."""
    sides = {"en": [en for en, _ in pairs], "de": [de for _, de in pairs]}
    sides["hashes"] = map(pair_hasher("en", "de"), hashed)
    for ending, lines in sides.items():
        content = "".join(f"{line}\n" for line in lines)
        (folder / f"bt.{ending}").write_text(content, encoding="utf-8")
    return open_corpus(f"{folder}/bt", "en", "de")


def test_pairs_in_step_with_their_hashes_are_read_in_either_direction(tmp_path):
    assert list(write_hashed(tmp_path, PAIRS, PAIRS).pairs()) == PAIRS
    backwards = open_corpus(f"{tmp_path}/bt", "de", "en")
    assert list(backwards.pairs()) == [pair[::-1] for pair in PAIRS]


@pytest.mark.parametrize(
    ("pairs", "hashed", "in_step", "message"),
    [
        # A line lost in one file, and one added at its end: their numbers agree.
        (SHIFTED, PAIRS, 1, r"bt.en and \S+bt.de, line 2: .* remove \S+bt.hashes"),
        (PAIRS, PAIRS[:3], 3, r"bt.hashes: no line 4, which \S+bt.en and"),
        (PAIRS[:3], PAIRS, 3, r"bt.de: no line 4, which \S+bt.hashes has"),
    ],
)
def test_the_first_line_out_of_step_is_named(tmp_path, pairs, hashed, in_step, message):
    read = write_hashed(tmp_path, pairs, hashed).pairs()
    assert [next(read) for _ in range(in_step)] == pairs[:in_step]
    with pytest.raises(UserError, match=message):
        next(read)


LINE = st.text(st.sampled_from("ab \r\u2028ü"), max_size=3)


@settings(max_examples=60)
@given(st.tuples(LINE, LINE), st.tuples(LINE, LINE))
def test_hashes_tell_pairs_apart_whatever_the_direction(pair, other_pair):
    en_de, de_en = pair_hasher("en", "de"), pair_hasher("de", "en")
    assert (en_de(pair) == en_de(other_pair)) == (pair == other_pair)
    assert en_de(pair) == de_en(pair[::-1])
    assert len(en_de(pair)) == 16


@given(st.lists(st.text("a,b/ é", min_size=1).map(str.strip).filter(bool)))
def test_a_list_of_names_is_split_into_these_names(names):
    assert split_names(join_names(names)) == names
    assert split_names(f" {join_names(names)} ,, ") == names
    for strange in ("x" * 300, "~nobody/x"):  # no names that a file could have
        assert split_names(f"{strange},b") == [strange, "b"]


def test_names_with_commas_are_corpora_and_workdirs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for folder in ("a,b", "runs/x,y"):
        Path(folder).mkdir(parents=True)
    for name in ("a,b/train.en", "a,b/train.de", "dev.en", "dev.de"):
        Path(name).write_text("x\n")
    corpora = open_corpora(r"a\,b/train@2, dev", "en", "de", weights=True)
    assert [(c.spec, c.name) for c in corpora] == [("a,b/train", "train"), ("dev",) * 2]
    assert [[*corpus.pairs()] for corpus in corpora] == [[("x", "x")]] * 2
    single = types.SimpleNamespace(workdir="runs/x,y")  # the folder that was trained in
    assert workdirs_of(single) == "runs/x,y"
    several = types.SimpleNamespace(workdir=r"runs/x\,y,runs/z")
    assert workdirs_of(several) == ["runs/x,y", "runs/z"]
