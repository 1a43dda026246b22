"""Preparation in parts: the bytes of one process, whatever parts and their order."""

import dataclasses
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest
from etils import epath

from t2t_jax.data import cleaning, prepare
from t2t_jax.data.corpus import heaviest_first, open_corpora
from t2t_jax.data.pairs import Examples
from t2t_jax.data.text_files import pair_hasher
from t2t_jax.data.tokenizers.training import make_tokenizer
from t2t_jax.extensions.data.parts import TextInParts
from t2t_jax.io.errors import UserError
from tests.data.test_prepare import CONFIG, LINES, SEPARATE, Blocks
from tests.small_run import ROOT, contents, write_pairs

DIRTY = [*LINES[20:], ("", "leer"), ("a", "b " * 12), *LINES[:9], ("new", "neu")]


@pytest.fixture(autouse=True)
def _cache(tmp_path, monkeypatch):
    monkeypatch.setenv("T2T_JAX_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(cleaning, "CHUNK", 5)


def corpora(folder, **texts):
    write_pairs(folder, **texts)
    for name, pairs in texts.items():
        hashes = map(pair_hasher("en", "de"), pairs)
        (folder / f"{name}.hashes").write_text("".join(f"{h}\n" for h in hashes))
    return open_corpora(",".join(texts), "en", "de", str(folder))


def in_parts(training, tmp_path, config=CONFIG, examples=None):
    examples = examples or Examples()
    return TextInParts(training, config, examples, epath.Path(tmp_path / "parts"))


@pytest.mark.parametrize(
    ("kind", "count"),
    [("joint", 1), ("few", 9), ("separate", 7), ("repeated", 2), ("blocks", 4)]
    + [("weighted", 3)],
)
def test_the_bytes_are_those_of_one_process(tmp_path, monkeypatch, kind, count):
    config, examples = SEPARATE if kind == "separate" else CONFIG, Examples()
    if kind == "repeated":
        config = dataclasses.replace(config, deduplicate=False)
    if kind == "blocks":
        examples = Blocks()
        config = dataclasses.replace(config, max_length=6, max_ratio=0.0)
    kept_lines = slice(-4 if kind == "few" else None, None)  # fewer pairs than parts
    training = corpora(tmp_path, x=LINES[kept_lines], y=DIRTY[kept_lines])
    if kind == "weighted":
        heavy = dataclasses.replace(training[1], weight=5.0)
        training = heaviest_first([training[0], heavy])

    def vocabulary():
        return make_tokenizer(training, config, examples.sides)

    prepared = prepare.prepared_pairs(training, vocabulary(), config, examples)
    monkeypatch.setenv("T2T_JAX_CACHE", str(tmp_path / "other"))
    text = in_parts(training, tmp_path, config, examples)
    order = [*range(1, count + 1)]
    for stage in ("hash", "encode"):
        random.Random(count).shuffle(order)
        for number in [*order, order[0]]:  # one of them twice
            getattr(text, stage)((number, count))
        if stage == "hash":
            text.merge_hashes(vocabulary)
    pairs = text.merge()
    assert pairs.folder != prepared.folder
    assert contents(pairs.folder) == contents(prepared.folder)
    assert (pairs.key, pairs.sizes) == (prepared.key, prepared.sizes)
    assert "all" in "".join(text.status())


def test_what_is_missing_is_named(tmp_path, capsys):
    text = in_parts(corpora(tmp_path, x=LINES), tmp_path)
    with pytest.raises(UserError, match=r"merged is not there; run --merge=hash"):
        text.encode((1, 3))
    for number in (1, 3):
        text.hash((number, 3))
    with pytest.raises(UserError, match="2 of 3 parts .* hash.2-of-3 is missing") as e:
        text.merge_hashes(None)
    assert "Other parts" not in str(e.value)
    assert "hash.2-of-3 is missing" in "".join(text.status())
    text.hash((2, 3))
    file = text.folder / "hash.2-of-3" / "hashes.npy"
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(UserError, match=r"hash.2-of-3 is damaged \(hashes.npy has"):
        text.merge_hashes(None)
    text.hash((2, 3))  # a damaged part is made again
    text.merge_hashes(lambda: make_tokenizer(text.corpora, CONFIG))
    text.encode((3, 4))
    with pytest.raises(UserError, match="1 of 4 parts are.*encode-.*1-of-4 is missing"):
        text.merge()
    shorter = dataclasses.replace(CONFIG, max_length=5)
    with pytest.raises(UserError, match="config.data.max_length: 30 then, 5 now"):
        dataclasses.replace(text, config=shorter).merge()
    # A complete part stays as it is.
    files = contents(Path(text.folder))
    text.hash((1, 3))
    text.merge_hashes(None)
    assert contents(Path(text.folder)) == files
    assert "hash.1-of-3 is complete" in capsys.readouterr().err


def test_parts_of_other_options_or_text_are_told_with_both(tmp_path):
    in_parts(corpora(tmp_path, x=LINES), tmp_path).hash((1, 1))
    repeats = dataclasses.replace(CONFIG, deduplicate=False)
    for pairs, config, message in (
        (LINES, repeats, "config.data.deduplicate: True then, False now"),
        (DIRTY, CONFIG, r"text 1 \(x\): '\w+' then, '\w+' now"),
    ):
        text = in_parts(corpora(tmp_path, x=pairs), tmp_path, config)
        for call in (lambda t=text: t.merge_hashes(None), text.merge):
            with pytest.raises(
                UserError, match=rf"other text or options:\n  .*{message}"
            ):
                call()


def test_a_text_that_changes_meanwhile_is_told(tmp_path):
    text = in_parts(corpora(tmp_path, x=LINES), tmp_path)
    text.hash((1, 2))
    corpora(tmp_path, x=LINES[:-3])
    with pytest.raises(UserError, match="part 2/2 lacks 3 pairs: the text was changed"):
        text.hash((2, 2))


def test_a_part_reads_only_its_lines(tmp_path):
    """And each line is compared with its own hash, and numbered as in the file."""
    training = corpora(tmp_path, x=LINES)
    (corpus,) = training
    for begin, end in ((0, 50), (0, 0), (7, 7), (7, 20), (49, 50), (3, None)):
        assert [*corpus.span(begin, end)] == LINES[begin:end]
    german = (tmp_path / "x.de").read_bytes().replace(b"Nummer 30", b"Nummer \xff0")
    (tmp_path / "x.de").write_bytes(german)
    assert [*corpus.span(31)] == LINES[31:]
    with pytest.raises(UserError, match=r"x.de, line 31: byte 18 \(0xff\)"):
        [*corpus.span(30)]
    (tmp_path / "x.de").write_bytes(german.replace(b"\xff", b""))
    with pytest.raises(UserError, match="line 31: .*hashes was written for another"):
        [*corpus.span(25)]


@pytest.mark.slow
def test_beam_makes_the_same_bytes(tmp_path):
    pytest.importorskip("apache_beam")
    corpora(tmp_path, x=LINES, y=DIRTY)
    data = {"train": "x,y", "dev": "", "test": "", "dir": tmp_path, "vocab_size": 320}
    command = [sys.executable, "-m", "t2t_jax", "prepare", "--config=tiny"]
    command += [f"--config.data.{name}={value}" for name, value in data.items()]
    options = "--runner=FnApiRunner --direct_running_mode=multi_processing"
    beam = "--runner=beam", "--parts=5", f"--beam_options={options}"
    for cache, flags in (("whole", ()), ("parts", beam)):
        env = os.environ | {"T2T_JAX_CACHE": str(tmp_path / cache)}
        subprocess.run([*command, *flags], env=env, cwd=ROOT, check=True)
    single, beam_files = (
        contents(tmp_path / cache / "pairs") for cache in ("whole", "parts")
    )
    assert single == beam_files


def test_what_else_a_tokenizer_depends_on_begins_anew(tmp_path):
    """Such as the order of labels, or another file of the same name."""
    training = corpora(tmp_path, x=LINES)
    for size, labels in ((320, "A,B"), (310, "A,B"), (320, "B,A")):
        text = dataclasses.replace(
            in_parts(training, tmp_path, dataclasses.replace(CONFIG, vocab_size=size)),
            origin={"config.task": {"labels": labels}},
        )
        with pytest.raises(UserError, match="no part is there"):
            text.merge_hashes(None)
        text.hash((1, 2))
    # A number of pairs that is damaged on disk is counted again.
    (size_file,) = (tmp_path / "cache" / "sizes").rglob("pairs")
    size_file.write_text("17")
    text = dataclasses.replace(text)
    text.hash((2, 2))
    assert len(prepare.load(text.folder / "hash.2-of-2" / "hashes.npy")) == 25
    assert size_file.read_text() == "50"
