"""Sentence pairs from TensorFlow Datasets (TFDS): `tfds:wmt14_translate/de-en:train`.

A spec is `tfds:NAME[/CONFIG][:VERSION]:SPLIT`. The split may be a slice or a sum in
the syntax of TFDS (`train[:10000]`, `train[:5%]`, `train+validation`).

Data sets are stored in `$TFDS_DATA_DIR`, or in `~/tensorflow_datasets`. A prepared data
set is read without its code and without a network. A missing one is downloaded and
prepared when it is first read; but wrong names, wrong languages and a missing network
are reported as soon as the spec is opened.
"""

import contextlib
import dataclasses
import difflib
import functools
import hashlib
import os
import queue
import re
import socket
import threading
import time
import urllib.parse
import urllib.request
from collections.abc import Iterable, Iterator
from typing import Any

from etils import epath

from t2t_jax.io.errors import UserError, did_you_mean
from t2t_jax.io.locations import expand_home
from t2t_jax.io.messages import say
from t2t_jax.text.languages import nearest

NETWORK_SECONDS = 5.0  # a host of a data set has to answer within this time
BATCH = 4_096  # records parsed together; one by one takes 20 times as long
LINES = 1  # part of every fingerprint; increment it when records give other lines
VERSION = r"\d+\.\d+\.\d+"

# The look-ahead refuses a spec that ends in its version: the split would be missing.
SPEC = re.compile(
    rf"tfds:([A-Za-z]\w*)(?:/([^:/]+))?(?::({VERSION}))?:(?!{VERSION}$)([^:/].*)"
)


@dataclasses.dataclass(frozen=True)
class TfdsSplit:
    """A split of a TFDS data set that has both languages, the names of text features.

    Raises:
      UserError: An unknown data set, config, version, split or language; an incomplete
        data set; a missing data set and no network; TensorFlow is not installed.
    """

    spec: str
    source: str
    target: str

    def __post_init__(self):
        # Both only check here, so that mistakes show before anything is trained.
        if self._find() is None:
            self._code()
        else:
            self._shards()

    @functools.cached_property
    def _parts(self) -> tuple[str, str, str, str]:
        """The name, config, version and split; config and version may be empty."""
        if not (parts := SPEC.fullmatch(self.spec)):
            raise UserError(
                f"{self.spec}: want tfds:NAME:SPLIT, tfds:NAME/CONFIG:SPLIT or "
                "tfds:NAME/CONFIG:VERSION:SPLIT, such as "
                "tfds:wmt14_translate/de-en:train"
            )
        name, config, version, split = (part or "" for part in parts.groups())
        return name, config, version, split

    @property
    def name(self) -> str:
        """The spec as part of a file name: `wmt14_translate-de-en-train-to5pct`."""
        name = "-".join(filter(None, self._parts))
        for sign, word in {"[": "-", "]": "", ":": "to", "%": "pct"}.items():
            name = name.replace(sign, word)
        return re.sub(r"[^\w.+-]", "_", name)

    def is_prepared(self) -> bool:
        """True if the data set is on this machine; else reading it downloads it."""
        return self._find() is not None

    def pairs(self) -> Iterator[tuple[str, str]]:
        """Yields (source line, target line) in the order of the records.

        A sentence must be one line of the files that are written from it. So line feeds
        and carriage returns around a sentence are dropped, and those inside it become a
        space.
        """
        count = 0
        for batch in self._batches():
            sides = [
                self._lines(batch[language], language, count)
                for language in self._features
            ]
            yield from zip(*sides, strict=True)
            count += len(sides[0])
        if not count:
            raise UserError(f"{self.spec} is empty; name a split with sentences")

    def fingerprint(self) -> str:
        """A hash of the split's record files; reads all of them."""
        parts = [f"lines {LINES}", *self._features]
        for shard in self._shards():
            with epath.Path(shard.filename).open("rb") as f:
                digest = hashlib.file_digest(f, "sha256").hexdigest()
            parts.append(f"{digest} {shard.skip} {shard.take}")
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()

    def _lines(
        self, raw: Iterable[bytes], language: str, examples_before: int
    ) -> list[str]:
        """Decodes sentences; `examples_before` examples came earlier in the split."""
        lines = []
        for number, sentence in enumerate(raw, examples_before + 1):
            try:
                line = sentence.decode("utf-8")
            except UnicodeDecodeError as e:
                raise UserError(
                    f"{self.spec}, example {number:,}, {language!r}: byte "
                    f"{e.start + 1} (0x{sentence[e.start]:02x}) is not UTF-8; prepare "
                    "the data set again with text in UTF-8"
                ) from None
            if "\n" in line or "\r" in line:
                line = re.sub(r"[\r\n]+", " ", line.strip("\r\n"))
            lines.append(line)
        return lines

    def _batches(self) -> Iterator[dict[str, Any]]:
        """Yields batches of sentences as bytes, keyed by language."""
        tf, _ = import_tfds(self.spec)
        text = tf.io.FixedLenFeature((), tf.string)
        features = dict.fromkeys(self._features, text)
        for shard in self._shards():
            records = tf.data.TFRecordDataset(shard.filename)
            records = records.skip(shard.skip).take(shard.take).batch(BATCH)
            batches = records.map(lambda r: tf.io.parse_example(r, features))
            count = 0
            try:
                for batch in batches.prefetch(1).as_numpy_iterator():
                    yield batch
                    count += len(batch[self._features[0]])
            except tf.errors.OpError as e:
                raise self._broken(f"{shard.filename}: {e.message}") from None
            # A file cut off between two records reads without an error.
            if count != shard.take:
                raise self._broken(
                    f"{shard.filename} has {shard.skip + count:,} examples; "
                    f"dataset_info.json says {shard.examples_in_shard:,}"
                )

    def _shards(self) -> list:
        """The record files of the split, in order, from TFDS.

        Each has a `filename` and the records to `skip` and `take`. Checks the
        languages, the format, the split and the presence of the files.
        """
        info = self._builder.info
        self._languages(info)
        if info.file_format.value != "tfrecord":
            raise UserError(
                f"{self.spec} is stored as {info.file_format.value}; want tfrecord, "
                "of download_and_prepare(file_format='tfrecord')"
            )
        splits = self._parts[-1]
        for part in splits.split("+"):
            split = part.partition("[")[0].strip()
            if split not in info.splits and split != "all":
                hint = did_you_mean(split, info.splits)
                raise UserError(f"{self.spec}: no such split {split!r}{hint}")
        try:
            shards = info.splits[splits].file_instructions
        except (ValueError, NotImplementedError) as e:  # a wrong slice
            raise UserError(f"{self.spec}: {str(e).splitlines()[-1]}") from None
        for shard in shards:
            if not epath.Path(shard.filename).exists():
                raise self._broken(f"{shard.filename} is missing")
        return shards

    @functools.cached_property
    def _features(self) -> list[str]:
        """The features of source and target, such as `de` for `deu_Latn`."""
        return self._languages(self._builder.info)

    def _languages(self, info) -> list[str]:
        _, tfds = import_tfds(self.spec)
        text = tfds.features.Text
        features = dict(info.features or {}).items()
        languages = sorted(name for name, kind in features if isinstance(kind, text))
        pair_features = []
        for language in (self.source, self.target):
            if (feature := nearest(language, languages)) is None:
                raise UserError(
                    f"{self.spec} has no {language!r} (config.data.source="
                    f"{self.source!r}, config.data.target={self.target!r}); its "
                    f"languages are: {', '.join(languages) or 'none'}"
                )
            pair_features.append(feature)
        return pair_features

    def _broken(self, damage: str) -> UserError:
        return UserError(
            f"{self.spec} is incomplete or damaged: {damage}. Copy it again to "
            f"{data_folder()}, or delete it there to have it downloaded again"
        )

    @functools.cached_property
    def _builder(self):
        """TFDS's reader of the data set; downloads and prepares a missing one."""
        if builder := self._find():
            return builder
        self._prepare()
        return self._find()

    def _find(self):
        """TFDS's reader of the data set, or None if it is not prepared."""
        _, tfds = import_tfds(self.spec)
        name, config, version, _ = self._parts
        try:
            return tfds.core.read_only_builder.builder_from_files(
                name,
                data_dir=data_folder(),
                config=config or None,
                version=version or None,
            )
        except tfds.core.registered.DatasetNotFoundError:
            return None
        except Exception as e:  # damaged JSON files raise many types
            raise self._broken(str(e)) from e

    def _code(self):
        """TFDS's code that downloads and prepares the data set; refuses wrong names."""
        _, tfds = import_tfds(self.spec)
        name, config, version, split = self._parts
        try:
            code = tfds.builder_cls(name)
        except tfds.core.registered.DatasetNotFoundError:
            raise UserError(
                f"{self.spec} is not in {data_folder()}" + self._instead(tfds)
            ) from None
        configs = [*code.builder_configs]
        if config and config not in configs:
            hint = did_you_mean(config, configs) if configs else "; leave it out"
            raise UserError(f"{self.spec}: {name} has no config {config!r}{hint}")
        try:
            builder = code(
                data_dir=data_folder(), config=config or None, version=version or None
            )
        except (AssertionError, ValueError) as e:  # no such version
            raise UserError(f"{self.spec}: {e}") from None
        self._languages(builder.info)
        urls = [builder.info.homepage or ""]
        # url_infos imports importlib_resources, which TFDS 4.9.10 does not install.
        with contextlib.suppress(ImportError):
            urls += builder.url_infos or []
        if reason := unreachable(urls, NETWORK_SECONDS):
            dataset = self.spec.removeprefix("tfds:").removesuffix(f":{split}")
            raise UserError(
                f"{self.spec} is not in {data_folder()}, and there is no network to "
                f"download it ({reason}). Prepare it on a machine with network: "
                'python -c "import tensorflow_datasets as tfds; '
                f"tfds.builder('{dataset}').download_and_prepare()\", then copy its "
                f"~/tensorflow_datasets/{name} here, or set TFDS_DATA_DIR. Or train on "
                "your own files: --config.data.train=PREFIX --config.data.dev=PREFIX "
                f"--config.data.test=PREFIX for PREFIX.{self.source} and "
                f"PREFIX.{self.target}"
            )
        return builder

    def _instead(self, tfds) -> str:
        """A hint about a data set that TFDS has no code for: folders or near names."""
        name = self._parts[0]
        folder = epath.Path(data_folder(), name)
        if folder.is_dir():  # the user's own data set: the config or version is wrong
            present = sorted(f.name for f in folder.iterdir() if f.name[0] != ".")
            return f"; {folder} has: {', '.join(present)}"
        names = tfds.list_builders(with_community_datasets=False)
        if not difflib.get_close_matches(name, names):  # do not list hundreds
            names = [n for n in names if "translate" in n]
        return f", and TensorFlow Datasets has no {name!r}{did_you_mean(name, names)}"

    def _prepare(self) -> None:
        """Downloads and prepares the data set."""
        _, tfds = import_tfds(self.spec)
        builder = self._code()
        say(f"downloading {builder.info.full_name} to {data_folder()}, once")
        try:
            builder.download_and_prepare(
                download_config=tfds.download.DownloadConfig(try_download_gcs=False)
            )
        except Exception as e:  # hosts, disks and the data set's code raise many types
            hint = f"; pip install {e.name}" if isinstance(e, ImportError) else ""
            raise UserError(
                f"{self.spec} could not be prepared: {type(e).__name__}: {e}{hint}"
            ) from e


def data_folder() -> str:
    """`$TFDS_DATA_DIR` or `~/tensorflow_datasets`.

    Read here, because TFDS itself reads the variable only once, when it is imported.
    """
    folder = os.environ.get("TFDS_DATA_DIR") or "~/tensorflow_datasets"
    return expand_home(folder)


def import_tfds(spec: str):
    """Imports TensorFlow and TFDS: no messages, no accelerators, no Google Cloud.

    Raises:
      UserError: One of them is not installed; the message names the spec.
    """
    try:
        tf = import_tensorflow()
        import tensorflow_datasets as tfds
        from tensorflow_datasets.core.utils import gcs_utils
    except ImportError as e:
        raise UserError(
            f"{spec} is read by TensorFlow Datasets, which is not installed ({e}): "
            "pip install tensorflow tensorflow-datasets; or name two text files by "
            "their prefix, such as news for news.en and news.de"
        ) from None
    # Without a network, TFDS's look-up in its bucket would hang for minutes.
    gcs_utils._is_gcs_disabled = True
    return tf, tfds


def unreachable(urls: Iterable[str], seconds: float) -> str:
    """Returns why no host of some URLs, or its proxy, can be reached; "" if one can.

    A look-up of a host name can hang and cannot be interrupted. So each host is tried
    in a thread of its own, and none is waited for longer than `seconds`.
    """
    proxies = urllib.request.getproxies()
    addresses = {}  # a dict as an ordered set
    for url in urls:
        parts = urllib.parse.urlsplit(url)
        proxy = proxies.get(parts.scheme)
        if proxy and not urllib.request.proxy_bypass(parts.hostname or ""):
            parts = urllib.parse.urlsplit(proxy)
        if parts.hostname:
            port = {"https": 443, "ftp": 21}.get(parts.scheme, 80)
            addresses[parts.hostname, parts.port or port] = None
    answers: queue.SimpleQueue[str] = queue.SimpleQueue()

    def connect(address: tuple[str, int]) -> None:
        try:
            socket.create_connection(address, seconds).close()
            answers.put("")
        except (OSError, UnicodeError) as e:
            answers.put(f"{address[0]}: {e}")

    for address in addresses:
        threading.Thread(target=connect, args=[address], daemon=True).start()
    deadline = time.monotonic() + seconds
    reason = ""
    for _ in addresses:
        try:
            reason = answers.get(timeout=max(0.0, deadline - time.monotonic()))
        except queue.Empty:
            return f"{next(iter(addresses))[0]} did not answer within {seconds:g} s"
        if not reason:  # one host is enough
            break
    return reason


def import_tensorflow():
    """Imports TensorFlow so that it prints nothing and leaves accelerators to JAX."""
    # TensorFlow only reads and feeds data here, so oneDNN gains nothing, and it would
    # print a notice. Both variables must be set before the import.
    os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    import tensorflow as tf

    # Otherwise TensorFlow would reserve memory of the devices that JAX uses.
    tf.config.set_visible_devices([], "GPU")
    tf.config.set_visible_devices([], "TPU")
    return tf
