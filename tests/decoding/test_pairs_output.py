"""Pairs of training text: all four files or none, in step, whatever was killed."""

import contextlib
import hashlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from t2t_jax.data.corpus import open_corpus
from t2t_jax.data.text_files import encode_line, read_lines
from t2t_jax.decoding.jobs import InputFile
from t2t_jax.decoding.results import Hypothesis, Translation
from t2t_jax.extensions.run import synthetic_text
from t2t_jax.extensions.run.synthetic_text import (
    PairOptions,
    merge_pairs,
    write_pairs,
)
from t2t_jax.extensions.text.word_noise import add_noise, parse_noise
from t2t_jax.io import atomic
from t2t_jax.io.errors import UserError
from t2t_jax.io.output_files import OutputFile
from t2t_jax.io.parts import part_of
from tests.decoding.test_jobs import StopError

LINES = ["ein Hund", "", "zu lang", "drei ü \u2028", "nie fertig", "\ufeffsechs", "7"]
NAMES = ["bt.de", "bt.en", "bt.hashes", "bt.json"]


def translation_of(line):
    """Says every word twice; cuts one line, and does not end another."""
    text = " ".join(word for word in line.split() for _ in range(2))
    results = Hypothesis(text, -1.0, -1.0, ended=line != "nie fertig")
    return Translation(line, (results,), cut=3 * (line == "zu lang"))


def job(folder, lines=LINES, resume=False, stop=None, part=(1, 1), **options):
    """Makes pairs bt.de and bt.en, stopped before the line of a number."""
    mono = folder / "mono"
    if lines is not None:
        mono.write_bytes(b"".join(encode_line(x, n) for n, x in enumerate(lines, 1)))

    def translate(chunk, number):
        if stop is not None and number >= stop:
            raise StopError
        return map(translation_of, chunk)

    write_pairs(
        translate,
        InputFile(mono, part),
        part_of(folder / "bt", part),
        ("de", "en"),
        PairOptions(**options),
        {"input": "mono"},
        {"beam": 4},
        resume,
        batch_size=2,
    )


def made(folder, name="bt"):
    """The pairs as training from English to German reads them."""
    return list(open_corpus(f"{folder}/{name}", "en", "de").pairs())


def names(folder):
    return sorted(p.name for p in folder.iterdir() if p.name != "mono")


def contents(folder):
    return {name: (folder / name).read_bytes() for name in names(folder)}


def test_pairs_are_the_lines_and_what_was_made_of_them(tmp_path, capsys):
    job(tmp_path, tag="<bt>", noises=parse_noise("blank@0.5,swap@1"), noise_seed=3)
    assert names(tmp_path) == NAMES
    noises = parse_noise("blank@0.5,swap@1")

    def english(line, number):
        return f"<bt> {add_noise(translation_of(line).text, noises, 3, number)}"

    expected = [(english(line, n), line) for n, line in enumerate(LINES, 1)]
    # Nothing to translate, too long, not ended: empty, without a tag, yet in step.
    for row in (1, 2, 4):
        expected[row] = ("", LINES[row])
    assert made(tmp_path) == expected
    assert "3 of 7 pairs are empty" in capsys.readouterr().err
    record = atomic.read_checked_json(tmp_path / "bt.json")
    pairs = {"noise": "blank@0.5,swap@1", "noise_seed": 3, "tag": "<bt>"}
    assert record["made_from"] == {"beam": 4, "pairs": pairs}
    assert (record["lines"], record["empty"]) == (7, 3)
    for name, file in (("input", "mono"), ("translations", "bt.en")):
        results = hashlib.sha256((tmp_path / file).read_bytes()).hexdigest()
        assert record[f"{name}_sha256"] == results


ANY = st.text(st.characters(exclude_characters="\n", exclude_categories=["Cs"]))
NASTY = st.one_of(ANY, st.text(st.sampled_from("\ufeff\r\x85\u2028 a"), max_size=4))


@settings(max_examples=60)
@given(st.lists(NASTY, min_size=1, max_size=4))
def test_a_line_comes_back_as_it_was(tmp_path_factory, lines):
    file = tmp_path_factory.mktemp("lines") / "x"
    file.write_bytes(b"".join(encode_line(x, n) for n, x in enumerate(lines, 1)))
    assert list(read_lines(file)) == lines


NASTY_LINES = [
    "\ufeffa\r",
    "\ufeff\ufeffb",
    "",
    "\ufeff c\r\r",
    "\ufefff",
    *(f"d e {n}" for n in range(6)),
]


NOISY = {"noises": parse_noise("swap@3,drop@0.3"), "tag": "<bt>"}


@pytest.mark.parametrize(
    ("options", "count", "stop"),
    [({}, 3, 1), ({}, 3, 5), (NOISY, 3, 5), (NOISY, 14, 5)],
)
def test_merged_parts_are_the_whole(tmp_path, options, count, stop):
    job(tmp_path, NASTY_LINES, **options)
    complete = contents(tmp_path)
    for name in NAMES:
        (tmp_path / name).unlink()
    for number in range(count, 0, -1):
        job(tmp_path, None, part=(number, count), **options)
    parts = contents(tmp_path)
    with pytest.raises(StopError):  # as a merge that was killed
        job(tmp_path, None, stop=stop, **options)
    merge_pairs(tmp_path / "bt")
    assert contents(tmp_path) == parts | complete
    with pytest.raises(UserError, match=r"bt\.hashes would be overwritten"):
        merge_pairs(tmp_path / "bt")


@pytest.mark.parametrize(
    ("ending", "told"),
    [
        ("en", r"bt.2-of-3.en was changed after it was written"),
        ("de", r"line 2: .*bt.2-of-3.hashes was written for another pair"),
        ("hashes", r"line 2: .*bt.2-of-3.hashes was written for another pair"),
        ("json", r"bt.2-of-3.json is missing or damaged"),
    ],
)
def test_a_damaged_part_is_not_merged(tmp_path, ending, told):
    for number in (1, 2, 3):
        job(tmp_path, part=(number, 3))
    file = tmp_path / f"bt.2-of-3.{ending}"
    file.write_bytes(file.read_bytes()[:-1] + b"!\n")
    previous = contents(tmp_path)
    with pytest.raises(UserError, match=told):
        merge_pairs(tmp_path / "bt")
    assert contents(tmp_path) == previous
    file.unlink()
    with pytest.raises(
        UserError, match=rf"missing.*bt.2-of-3.{ending}|bt.2-of-3.* is missing"
    ):
        merge_pairs(tmp_path / "bt")


def test_parts_of_an_input_that_changed_meanwhile_are_not_merged(tmp_path):
    job(tmp_path, part=(1, 2))
    job(tmp_path, [*LINES[:-1], "8"], part=(2, 2))
    first_record, second = (tmp_path / f"bt.{number}-of-2.json" for number in (1, 2))
    complete = {"whole_input": atomic.read_checked_json(first_record)["whole_input"]}
    record = atomic.read_checked_json(second) | complete
    second.write_bytes(atomic.checked_json(record))
    with pytest.raises(UserError, match="2.de are together not the text"):
        merge_pairs(tmp_path / "bt")
    assert "bt.de" not in contents(tmp_path)


def test_a_part_keeps_a_byte_order_mark_of_its_first_line(tmp_path):
    job(tmp_path, ["a", "\ufeffb"], part=(2, 2))
    assert made(tmp_path, "bt.2-of-2") == [("\ufeffb \ufeffb", "\ufeffb")]


@pytest.fixture
def whole(tmp_path):
    """The files of a job that ran through; they are removed."""
    job(tmp_path)
    results = contents(tmp_path)
    for name in NAMES:
        (tmp_path / name).unlink()
    return results


BEGUN = ["bt.en.partial", "bt.en.partial.json"]


def test_a_stopped_job_is_continued(tmp_path, whole, capsys):
    with pytest.raises(StopError):
        job(tmp_path, stop=5)
    assert names(tmp_path) == BEGUN
    with pytest.raises(UserError, match="--resume continues it"):
        job(tmp_path)
    with pytest.raises(UserError, match=r"begun with other settings:\n  pairs: .*bt"):
        job(tmp_path, resume=True, tag="<bt>")
    with pytest.raises(UserError, match=r"other settings:\n  pairs: \{.*, None now"):
        OutputFile(tmp_path / "bt.en", {"beam": 4}, resume=True)  # of --output
    capsys.readouterr()
    job(tmp_path, resume=True)
    assert "has the first 4 lines; resuming" in capsys.readouterr().err
    assert contents(tmp_path) == whole


@pytest.mark.parametrize("appeared", range(5))
def test_a_job_killed_while_its_files_appear_is_ended(
    tmp_path, whole, monkeypatch, appeared
):
    """`appeared` of the four files are there; nothing is cleaned up."""
    appeared_files, appear = [], atomic.appear

    def counted(written, file):
        if len(appeared_files) == appeared:
            raise StopError
        appeared_files.append(file.name)
        return appear(written, file)

    with monkeypatch.context() as patch, contextlib.suppress(StopError):
        patch.setattr(atomic, "appear", counted)
        patch.setattr(synthetic_text.Path, "unlink", lambda *_, **__: None)
        job(tmp_path)
    assert {*appeared_files} == {*NAMES} & {*names(tmp_path)}
    assert len(appeared_files) == min(appeared, 4)
    if appeared < 4:
        assert "bt.hashes" not in appeared_files
        with pytest.raises(UserError, match="--resume|would be overwritten"):
            job(tmp_path)
    job(tmp_path, resume=True)
    assert contents(tmp_path) == whole


def test_an_input_that_changes_meanwhile_makes_no_pairs(tmp_path, whole, monkeypatch):
    publish = synthetic_text.PairsOutput._publish

    def changed(output):
        (tmp_path / "mono").write_text("other\n" * 7)
        publish(output)

    with monkeypatch.context() as patch:
        patch.setattr(synthetic_text.PairsOutput, "_publish", changed)
        with pytest.raises(UserError, match="the input has changed"):
            job(tmp_path)
    assert names(tmp_path) == BEGUN
    job(tmp_path, resume=True)  # the input is what it was
    assert contents(tmp_path) == whole


def test_no_file_is_overwritten(tmp_path):
    for name in (*NAMES, "bt.de.gz"):
        (tmp_path / name).write_text("mine")
        for resume in (False, True):
            with pytest.raises(UserError, match=f"--pairs: .*{name} would be"):
                job(tmp_path, resume=resume)
        assert contents(tmp_path) == {name: b"mine"}
        (tmp_path / name).unlink()


def test_a_file_that_came_meanwhile_is_kept(tmp_path):
    real = atomic.appear

    def late(written, file):
        if file.name == "bt.json":
            file.write_text("mine")
        return real(written, file)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(atomic, "appear", late)
        with pytest.raises(UserError, match=r"bt.json was created .* remove it"):
            job(tmp_path)
    assert (tmp_path / "bt.json").read_text() == "mine"
    assert not (tmp_path / "bt.hashes").exists()
    (tmp_path / "bt.json").unlink()
    job(tmp_path, resume=True)
    assert names(tmp_path) == NAMES
