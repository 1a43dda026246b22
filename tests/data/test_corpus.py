"""Pairs of lines, whole and in step, or a message that a person can act on."""

import dataclasses
import gzip
import json
import types
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from t2t_jax.commands.flags import workdirs_of
from t2t_jax.config import Config, DataConfig, TaskConfig
from t2t_jax.data.cleaning import Cleaner, read_chunks
from t2t_jax.data.corpus import (
    LowScore,
    check_files,
    file_corpus,
    open_corpora,
    open_corpus,
)
from t2t_jax.data.text_files import pair_hasher
from t2t_jax.extensions.data.one_sided_text import tagged
from t2t_jax.extensions.evaluation.references import with_references
from t2t_jax.io.errors import UserError
from t2t_jax.io.locations import join_names, split_names
from t2t_jax.tasks.table import task_of
from t2t_jax.tasks.task import open_text


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


ROWS = [("0.9", "a dog", "ein Hund"), ("0.2", "a cat", "der"), ("0.7", "b", "c")]


def tables(folder, name="x"):
    """The same pairs and scores as a .tsv.gz and as a .jsonl; opens each."""
    tsv = "".join("\t".join(row) + "\n" for row in ROWS)
    (folder / f"{name}.tsv.gz").write_bytes(gzip.compress(tsv.encode()))
    objects = [{"t": {"en": e, "de": d}, "s": float(s)} for s, e, d in ROWS]
    lines = "".join(json.dumps(row) + "\n" for row in objects)
    (folder / f"{name}.jsonl").write_text(lines)
    for ending, columns, score in (("tsv", "2,3", "1"), ("jsonl", "t.en, t.de", "s")):
        data = DataConfig(columns=columns, score_column=score, min_score=0.7)
        yield open_corpus(f"{folder}/{name}.{ending}", "en", "de", data=data), data


def test_columns_and_keys_are_pairs_and_low_scores_keep_their_lines(tmp_path):
    for corpus, data in tables(tmp_path):
        pairs = [*corpus.pairs()]
        assert pairs == [row[1:] for row in ROWS]
        assert [isinstance(pair, LowScore) for pair in pairs] == [False, True, False]
        assert [*corpus.span(1)] == pairs[1:]
        assert corpus.name == "x"
        # What a reader gets is part of the fingerprint.
        other = dataclasses.replace(data, min_score=0.1)
        assert (
            corpus.fingerprint()
            != open_corpus(corpus.spec, "en", "de", data=other).fingerprint()
        )


def test_training_leaves_out_low_scores_and_counts_them(tmp_path):
    cleaner = Cleaner(DataConfig())
    corpora = [corpus for corpus, _ in tables(tmp_path)]
    kept = [cleaner.by_text(chunk) for chunk in read_chunks(corpora)]
    # A pair of a low score is no earlier copy of a duplicate.
    assert [chunk.lines.tolist() for chunk in kept] == [[1, 3], []]
    assert cleaner.dropped["low score"] == 2
    assert +cleaner.by_corpus[0] == {"read": 3, "low score": 1}
    assert cleaner.examples["low score"][0] == (0, 2, ROWS[1][1:])
    mixture = tagged(corpora[0], "en-de", "<2de>")
    assert isinstance([*mixture.pairs()][1], LowScore)


@pytest.mark.parametrize(
    ("name", "row", "options", "message"),
    [
        ("x.tsv", "a\tb\tc", {}, r"x.tsv, line 2: 3 columns; want two, or --config"),
        ("x.tsv", "a\tb", {"columns": "2,3"}, "x.tsv, line 2: 2 columns, .* want 2, 3"),
        ("x.tsv", "", {}, "line 2: 1 columns"),
        ("x.tsv", "a\tb\tno", {"columns": "1,2", "score_column": "3"}, "score is 'no'"),
        ("x.tsv", "a\tb\tnan", {"columns": "1,2", "score_column": "3"}, "is 'nan'"),
        (
            "x.jsonl",
            f'{{"en": "a", "de": "b", "s": 1{400 * "0"}}}',
            {"score_column": "s"},
            "line 2: the score is 1000",
        ),
        ("x.tsv", "", {"columns": "1"}, "x.tsv has a source, a target"),
        ("x.tsv", "", {"columns": "en,de"}, "numbers from 1"),
        ("x.tsv", "", {"columns": "1,2", "score_column": "2"}, "columns of their own"),
        ("x.tsv", "", {"min_score": 1.0}, "--config.data.score_column"),
        ("x.jsonl", "{", {}, "x.jsonl, line 2: not JSON"),
        ("x.jsonl", '{"en": "a", "d": "b"}', {}, "no key 'de', but en, d; want"),
        ("x.jsonl", '{"en": "a", "de": 1}', {}, "'de' is 1; want a text"),
        ("x.jsonl", '{"en": "a", "de": "\\ud800"}', {}, "line 2: .*is no character"),
        ("x.jsonl", '{"en": "a", "de": "b"}', {"score_column": "s"}, "no key 's'"),
        ("none.tsv", "", {}, "none.tsv does not exist; that folder has no file none"),
    ],
)
def test_rows_without_a_pair_are_told_with_their_line(
    tmp_path, name, row, options, message
):
    good = {"x.tsv": "a\tb\t1\n" if options.get("columns") else "a\tb\n"}
    good["x.jsonl"] = '{"en": "a", "de": "b", "s": 1}\n'
    for file, line in good.items():
        (tmp_path / file).write_text(line + row + "\n")
    data = DataConfig(**options)
    with pytest.raises(UserError, match=message):
        list(open_corpus(f"{tmp_path}/{name}", "en", "de", data=data).pairs())


def test_columns_are_refused_where_no_corpus_has_any(tmp_path):
    (tmp_path / "x.tsv").write_text("0\ta\tb\n")
    write(tmp_path)
    data = DataConfig(dir=str(tmp_path), train="x.tsv", columns="2,3")
    (table,), _, _ = open_text(task_of(Config(data=data)))
    assert [*table.pairs()] == [("a", "b")]
    # A language model reads whole lines.
    for kind, train in ("translation", "x"), ("language_model", "x.tsv"):
        config = Config(
            task=TaskConfig(kind), data=dataclasses.replace(data, train=train)
        )
        with pytest.raises(
            UserError, match="no corpus is a .tsv .* --config.data.columns="
        ):
            open_text(task_of(config))


def test_a_text_of_several_lines_is_one_line(tmp_path):
    (tmp_path / "x.jsonl").write_text('{"en": "\\na\\r\\nb\\n", "de": " c "}\n')
    corpus = open_corpus(f"{tmp_path}/x.jsonl", "en", "de")
    assert [*corpus.pairs()] == [("a b", " c ")]


def test_a_pattern_stands_for_its_files_in_order(tmp_path):
    for name in ("b", "a"):
        list(tables(tmp_path, name))
        write(tmp_path, name)

    def opened(specs, **options):
        corpora = open_corpora(specs, "en", "de", str(tmp_path), **options)
        return [(Path(c.spec).name, c.weight, c.written) for c in corpora]

    files = opened("*.tsv.gz@2", weights=True)
    assert files == [(f"{n}.tsv.gz", 2.0, f"{n}.tsv.gz@2") for n in "ab"]
    # A prefix with one file is one, too: so its missing half is told.
    (tmp_path / "c.de.gz").write_bytes(gzip.compress(b"x\n"))
    assert [name for name, *_ in opened("*")] == ["a", "b", "c"]
    (tmp_path / "a.en").unlink()
    with pytest.raises(UserError, match=r"(?s)a\.en does not.*c\.en does not exist"):
        check_files(open_corpora("*", "en", "de", str(tmp_path)))
    with pytest.raises(UserError, match=r"x\*.tsv matches no file; .* no file x\*"):
        opened("x*.tsv")
    with pytest.raises(UserError, match="a.tsv.gz twice"):
        opened("a.tsv.gz,*.tsv.gz")
    (tmp_path / "[z].en").touch()
    assert opened("[z]")[0][0] == "[z]"  # files may have such names


def test_a_published_set_is_read_from_sacrebleus_folder_or_told(tmp_path, monkeypatch):
    corpus = open_corpus("sacrebleu:wmt14/full", "eng_Latn", "deu")
    write(tmp_path)
    files = [f"{tmp_path}/x.de", f"{tmp_path}/x.en"]  # of references
    utils = "sacrebleu.utils.get_{}".format
    monkeypatch.setattr(utils("source_file"), lambda name, pair: f"{tmp_path}/x.en")
    monkeypatch.setattr(utils("reference_files"), lambda name, pair: files)
    assert [*corpus.pairs()] == [("a", "c"), ("b", "d")]
    # Those that sacreBLEU scores with, which need not be all or the first of the set.
    assert with_references([corpus], "all")[0].further == (["a", "b"],)
    with pytest.raises(UserError, match="x is not a published set"):
        with_references([file_corpus(tmp_path / "x", "en", "de")], "all")
    assert corpus.name == "wmt14-full"

    def offline(name, pair):
        raise OSError(f"no network for {name} {pair}")

    monkeypatch.setattr(utils("source_file"), offline)
    with pytest.raises(UserError, match=r"full en-de\).*sacrebleu -t wmt14/full -l en"):
        next(corpus.pairs())
    with pytest.raises(UserError, match=r"has no en-ja; it has"):
        open_corpus("sacrebleu:wmt14/full", "en", "ja")
    with pytest.raises(UserError, match="sacrebleu:wmt1: no such test set"):
        open_corpus("sacrebleu:wmt1", "en", "de")
