"""Pairs of lines, whole and in step, or a message that a person can act on."""

import gzip

import pytest

from t2t_jax.data.corpus import open_corpora, open_corpus
from t2t_jax.io.errors import UserError


def write(folder, name="x", en=b"a\nb\n", de=b"c\nd\n"):
    for language, content in (("en", en), ("de", de)):
        if content is not None:
            (folder / f"{name}.{language}").write_bytes(content)
    return open_corpus(f"{folder}/{name}", "en", "de")


def test_plain_and_gzipped_files_are_the_same(tmp_path):
    plain = write(tmp_path)
    for language, content in (("en", b"a\nb\n"), ("de", b"c\nd\n")):
        with gzip.open(tmp_path / f"z.{language}.gz", "wb") as f:
            f.write(content)
    zipped = open_corpus(f"{tmp_path}/z", "en", "de")
    assert list(plain.pairs()) == list(zipped.pairs()) == [("a", "c"), ("b", "d")]


def test_the_other_direction_swaps_the_sides(tmp_path):
    write(tmp_path)
    assert next(open_corpus(f"{tmp_path}/x", "de", "en").pairs()) == ("c", "a")


def test_only_a_line_feed_ends_a_line(tmp_path):
    strange = "a\x0bb\x0cc\x1cd\x85e\u2028f\u2029g\rh\x00i"
    en = f"\ufeff{strange}\r\n\ufeffb\n\n"  # a byte order mark is not text
    corpus = write(tmp_path, en=en.encode(), de=b"c\nd\ne")
    assert list(corpus.pairs()) == [(strange, "c"), ("\ufeffb", "d"), ("", "e")]


@pytest.mark.parametrize(
    ("sides", "told"),
    [
        ({"en": b"a\nb\nc\n"}, ["x.en has 3 lines", "x.de has 2"]),
        ({"de": b"c\n"}, ["x.en has 2 lines", "x.de has 1"]),
        ({"en": b"a\nb\xff\n"}, ["x.en, line 2: byte 2 (0xff)", "iconv"]),
        (
            {"de": None},
            ["x.de does not exist, nor does x.de.gz", "that folder has x.en"],
        ),
        ({"en": b"", "de": b""}, ["are empty"]),
    ],
)
def test_bad_files_are_told(tmp_path, sides, told):
    corpus = write(tmp_path, **sides)
    with pytest.raises(UserError) as error:
        list(corpus.pairs())
    for part in told:
        assert part in str(error.value)


def test_a_file_given_as_a_place_is_told_which_ending_to_leave_out(tmp_path):
    write(tmp_path)
    with pytest.raises(UserError, match=rf"leave out \.en: want {tmp_path}/x$"):
        list(open_corpus(f"{tmp_path}/x.en", "en", "de").pairs())


def test_a_damaged_gzip_file_is_told(tmp_path):
    write(tmp_path, de=None)
    whole = gzip.compress(b"c\nd\n" * 1000)
    for damaged in (
        whole[: len(whole) // 2],
        whole[:12] + b"\xff" * 6 + whole[18:],
    ):
        (tmp_path / "x.de.gz").write_bytes(damaged)
        with pytest.raises(UserError, match="not a complete gzip file"):
            list(open_corpus(f"{tmp_path}/x", "en", "de").pairs())


def test_a_fingerprint_changes_with_the_text_and_the_direction(tmp_path):
    first = write(tmp_path).fingerprint()
    assert write(tmp_path).fingerprint() == first
    assert open_corpus(f"{tmp_path}/x", "de", "en").fingerprint() != first
    assert write(tmp_path, de=b"c\ne\n").fingerprint() != first
    grammar = [
        open_corpus(f"grammar:{s}", "en", "de").fingerprint() for s in ("dev", "test")
    ]
    assert len({*grammar, first}) == 3


def test_places_are_separated_by_commas_and_start_at_the_folder(tmp_path):
    write(tmp_path)
    corpora = open_corpora("x, grammar:unseen", "en", "de", str(tmp_path))
    assert [corpus.name for corpus in corpora] == ["x", "unseen"]
    assert len(list(corpora[0].pairs())) == 2
    assert open_corpora("", "en", "de") == []


def test_the_grammar_knows_its_languages_and_splits():
    with pytest.raises(UserError, match="is English-German; got"):
        open_corpus("grammar:test", "en", "fr")
    with pytest.raises(UserError, match="did you mean 'train'"):
        open_corpus("grammar:trian", "en", "de")


@pytest.mark.parametrize(
    ("written", "place", "weight"),
    [
        ("x", "x", 1),
        ("x@2", "x", 2),
        ("x @2", "x", 2),
        ("mail@home/x@3.", "mail@home/x", 3),
        ("y@z", "y@z", 1),
        ("v@2@1", "v@2", 1),
        ("grammar:train@2", "grammar:train", 2),
    ],
)
def test_a_place_of_training_text_may_have_a_weight(tmp_path, written, place, weight):
    (tmp_path / "mail@home").mkdir()
    for name in ("x", "mail@home/x", "y@z", "v@2"):
        write(tmp_path, name)
    (corpus,) = open_corpora(written, "en", "de", str(tmp_path), weights=True)
    plain = open_corpus(place, "en", "de", str(tmp_path))
    assert (corpus.spec, corpus.weight) == (plain.spec, weight)
    assert plain.weight == 1
    assert corpus.fingerprint() == plain.fingerprint()


def test_a_weight_is_a_number_above_zero_of_a_place(tmp_path):
    write(tmp_path)
    for written in ("x@0", "x@-1", "x@nan", "x@abc", "x@1e3", "x@", "@2"):
        with pytest.raises(UserError, match=f"^{written} .*want CORPUS@NUMBER"):
            open_corpora(written, "en", "de", str(tmp_path), weights=True)
    for written in ("grammar:train@abc", "tfds:wmt14_translate/de-en:train@x"):
        with pytest.raises(UserError, match="want CORPUS@NUMBER"):
            open_corpora(written, "en", "de", weights=True)
    (corpus,) = open_corpora("mail@2/x", "en", "de", str(tmp_path), weights=True)
    with pytest.raises(UserError, match="there is no folder .*mail@2"):
        list(corpus.pairs())


def test_dev_and_test_sets_have_no_weights(tmp_path):
    write(tmp_path)
    write(tmp_path, "y@2")
    for place in ("x@2", "grammar:test@0.5", "tfds:wmt14_translate/de-en:test@2"):
        with pytest.raises(UserError, match="only training text has weights"):
            open_corpora(place, "en", "de", str(tmp_path))
    (corpus,) = open_corpora("y@2", "en", "de", str(tmp_path))
    assert (corpus.name, corpus.weight) == ("y@2", 1)


@pytest.mark.parametrize("places", ["x,x", "x, ./x", "x,grammar:dev,x", "x@2,x"])
def test_a_place_is_named_once(tmp_path, places):
    write(tmp_path)
    with pytest.raises(UserError, match="x twice; want it once; for twice an .*x@2"):
        open_corpora(places, "en", "de", str(tmp_path), weights=True)
    if "@" not in places:
        with pytest.raises(UserError, match="x twice; want it once$"):
            open_corpora(places, "en", "de", str(tmp_path))
