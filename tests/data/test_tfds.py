"""Data sets in TFDS's own format on disk, read as the real ones; and missing ones."""

import shutil
import socket
import threading
from pathlib import Path

import pytest

from t2t_jax.data import tfds as module
from t2t_jax.data.corpus import open_corpus
from t2t_jax.io.errors import UserError

GERMAN = [("eins", "one"), ("zwei", "two"), ("drei", "three"), ("vier", "four")]
DE_EN = {
    "train": [*GERMAN, ("fünf", "five")],
    "validation": [("sechs", "six"), ("neun", "nine")],
    "test": [("sieben", "seven"), ("acht", "eight")],
}
FR_EN = {"train": [("un", "one")], "validation": [("", "two")], "test": [("six", "6")]}


def write(folder, splits, config="de-en", name="wmt14_translate"):
    """Prepares pairs through TFDS as it prepares the real ones, in several files."""
    # Imported where it is used: only the worker that runs these tests waits for it.
    import tensorflow_datasets as tfds

    languages = config.split("-") if config else ["de", "en"]

    class Builder(tfds.core.GeneratorBasedBuilder, skip_registration=True):
        VERSION = tfds.core.Version("1.0.0")
        url_infos = None  # wants importlib_resources, which TFDS does not install

        def _info(self):
            options = {"features": tfds.features.Translation(languages=languages)}
            return self.dataset_info_from_configs(**options, disable_shuffling=True)

        def _split_generators(self, _):
            return {split: self._generate_examples(splits[split]) for split in splits}

        def _generate_examples(self, pairs):
            for number, pair in enumerate(pairs):
                yield number, dict(zip(languages, pair, strict=True))

    Builder.name = name
    if config:
        Builder.BUILDER_CONFIGS = [tfds.core.BuilderConfig(name=config)]
    shutil.rmtree(Path(folder, name, config), ignore_errors=True)
    shards = min(map(len, splits.values()))
    options = tfds.download.DownloadConfig(num_shards=shards)
    builder = Builder(data_dir=folder, config=config or None)
    builder.download_and_prepare(download_config=options)


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    folder = tmp_path_factory.mktemp("prepared")
    write(folder, DE_EN)
    write(folder, FR_EN, "fr-en")
    return folder


@pytest.fixture
def prepared_folder(prepared, monkeypatch):
    monkeypatch.setenv("TFDS_DATA_DIR", str(prepared))
    return prepared


@pytest.fixture
def empty(tmp_path, monkeypatch):
    monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path))
    return tmp_path


@pytest.fixture
def no_network(monkeypatch):
    """Every look-up of a host hangs until the test is over."""
    test_over = threading.Event()
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: test_over.wait() and [])
    monkeypatch.setattr(module, "NETWORK_SECONDS", 0.05)
    for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"):
        monkeypatch.delenv(name, raising=False)
    yield
    test_over.set()


def open_(split, config="/de-en", source="de", target="en"):
    return open_corpus(f"tfds:wmt14_translate{config}:{split}", source, target)


def message_of(*args, **kwargs):
    with pytest.raises(UserError) as error:
        list(open_(*args, **kwargs).pairs())
    return str(error.value)


def test_pairs_come_in_the_order_of_the_files_in_both_directions(
    prepared_folder, monkeypatch
):
    for name in ("getaddrinfo", "create_connection", "socket"):  # no network is needed
        monkeypatch.setattr(socket, name, None)
    german = open_("train")
    assert list(german.pairs()) == DE_EN["train"] == list(german.pairs())
    english = open_("train", source="en", target="de")
    assert list(english.pairs()) == [pair[::-1] for pair in DE_EN["train"]]
    spelled = open_("train", source="eng_Latn", target="DE")
    assert list(spelled.pairs()) == list(english.pairs())
    assert spelled.fingerprint() == english.fingerprint()
    french = open_("validation", "/fr-en", "en", "fr")
    assert list(french.pairs()) == [("two", "")]


def test_splits_are_sliced_and_added_as_in_tfds(prepared_folder):
    for split, pairs, name in (
        ("train[1:4]", DE_EN["train"][1:4], "train-1to4"),
        ("test+train[-1:]", DE_EN["test"] + DE_EN["train"][-1:], "test+train--1to"),
    ):
        corpus = open_(split, "/de-en:1.0.0")
        assert list(corpus.pairs()) == pairs
        assert corpus.name == f"wmt14_translate-de-en-1.0.0-{name}"


def test_a_data_set_without_code_or_config_is_read(empty):
    write(empty, DE_EN, "", name="my_own")
    corpus = open_corpus("tfds:my_own:test", "de", "en")
    assert (list(corpus.pairs()), corpus.name) == (DE_EN["test"], "my_own-test")
    with pytest.raises(UserError, match="my_own has: 1.0.0"):
        open_corpus("tfds:my_own/de-en:test", "de", "en")


def test_a_sentence_is_one_line_and_text(empty, monkeypatch):
    monkeypatch.setattr(module, "BATCH", 1)
    pairs = [("a\r\nb\n", "\rc\n\nd"), ("e\rf", ""), ("\u2028\x85", "g\th\x00i\0")]
    write(empty, {"test": pairs, "train": [*GERMAN, ("x", b"ab\xff")]})
    assert list(open_("test").pairs()) == [("a b", "c d"), ("e f", ""), pairs[2]]
    assert next(open_("train").pairs()) == GERMAN[0]  # nothing is read ahead of use
    assert "example 5, 'en': byte 3 (0xff) is not UTF-8" in message_of("train")
    assert len(list(open_("train[:4]").pairs())) == 4


def test_a_fingerprint_changes_with_the_lines_and_the_direction(empty):
    prints = []
    splits = ["train", "test", "train[:3]", "train[:4]", "train[1:3]"]
    for word in ("fünf", "fünF"):
        write(empty, {"train": [*GERMAN, (word, "five")], "test": GERMAN})
        prints.append([open_(split).fingerprint() for split in splits])
    assert len({*prints[0]}) == len(splits)
    assert [a == b for a, b in zip(*prints, strict=True)] == [False, *[True] * 4]
    assert prints[0][0] != open_("train", source="en", target="de").fingerprint()
    assert prints[0][2] == open_("train[0:3]", "/de-en:1.0.0").fingerprint()


@pytest.mark.parametrize(
    ("place", "source", "part"),
    [
        ("wmt14_translate/de-en:trian", "de", "'trian'; did you mean 'train'?"),
        ("wmt14_translate/de-en:train[:9]", "de", "[:9] incompatible with 5"),
        ("wmt14_translate/en-de:train", "de", "'en-de'; there are: cs-en, de-en,"),
        ("wmt14_translate/de-en:2.0.0:train", "de", "version 2.0.0, only: 1.0.0"),
        ("wmt14_transalte/de-en:train", "de", "did you mean 'wmt14_translate'?"),
        ("wmt14_translate/de-en:train", "fr", "'fr' (config.data.source='fr'"),
        ("wmt14_translate/de-en", "de", "want tfds:NAME:SPLIT, "),
    ],
)
def test_unknown_names_are_told_on_opening(
    prepared_folder, no_network, place, source, part
):
    with pytest.raises(UserError) as error:
        open_corpus(f"tfds:{place}", source, "en")
    assert part in str(error.value)
    assert str(error.value).startswith(f"tfds:{place}")


def test_no_network_is_told_without_waiting_for_it(empty, no_network):
    message = message_of("train", source="en", target="de")
    for part in (
        f"tfds:wmt14_translate/de-en:train is not in {empty}, and there is no network",
        "(www.statmt.org did not answer within 0.05 s)",
        "tfds.builder('wmt14_translate/de-en').download_and_prepare()",
        "for PREFIX.en and PREFIX.de",
    ):
        assert part in message


def test_half_a_data_set_is_none_and_a_damaged_one_is_told(empty, no_network):
    write(empty, DE_EN)
    complete = empty / "wmt14_translate/de-en/1.0.0"
    for name in ("incomplete.AB12CD_1.0.0", "1.0.0.incompleteAB12CD"):
        incomplete = complete.rename(complete.with_name(name))
        assert "there is no network to download it" in message_of("train")
        incomplete.rename(complete)
    records = "wmt14_translate-train.tfrecord-00001-of-00002"
    for file, length, part in (
        (records, 20, "tfrecord-00001-of"),
        (records, 0, "has 0 examples"),
        ("dataset_info.json", 30, "Copy it again"),
    ):
        path = complete / file
        content = path.read_bytes()
        path.write_bytes(content[:length])
        message = message_of("train")
        path.write_bytes(content)
        assert part in message
        assert "is incomplete or damaged" in message


def test_what_is_not_there_is_prepared_when_it_is_read(empty, monkeypatch, capsys):
    import tensorflow_datasets as tfds

    prepared = []

    def download(builder, **_):
        prepared.append(builder.info.full_name)
        write(empty, DE_EN)

    monkeypatch.setattr(module, "unreachable", lambda *_: "")
    code = tfds.builder_cls("wmt14_translate")
    monkeypatch.setattr(code, "download_and_prepare", download)
    corpora = [open_(split) for split in ("train", "test")]
    assert not prepared
    assert [list(c.pairs()) for c in corpora] == [DE_EN["train"], DE_EN["test"]]
    assert prepared == ["wmt14_translate/de-en/1.0.0"]
    assert "downloading wmt14_translate/de-en/1.0.0" in capsys.readouterr().err
