"""A workdir: everything that a run writes, and all that a translator needs.

config.json        the experiment as data, with hashes of itself and of the next files
training_text.json hashes of the prepared training text, of the dev text and of models
                   that the loss reads, which must not change during a run; counts of
                   the pairs that cleaning removed
tokenizer.model    SentencePiece, or another tokenizer (data/tokenizers/table.py)
source_tokenizer.model  that of the source, if the vocabulary is not joint
checkpoints/       training/checkpoint.py
time.jsonl         where the time went: `training/time_log.py`
starts.jsonl       of each start of the run: the machine, the versions of libraries and
                   the modules of --ideas
metrics.jsonl      metrics, one JSON object per line; tensorboard/ plots the same
wandb.id           id of the run in W&B, and mlflow.id in MLflow, if they track it
alarms/            sentences of batches whose gradient was not finite or very large
rollbacks.json     when the run returned to an earlier checkpoint, if it did
scores/            SET.json; earlier scores of a set are SET.1.json, SET.2.json, ...
translations/      SET.ENDING, the answer to each example of the set, one a line
ensembles/         HASH/scores/, HASH/translations/ of this model with those of other
                   workdirs; HASH depends on the parameters of all members
distilled.*        of a student: the text of its teacher (`distill`)
imported.json      of an imported model: its files and how it compares with the original

An export for CTranslate2 has such a folder, `t2t_jax`, without checkpoints.

A workdir is a folder on disk or in a bucket of Google Cloud Storage. It is data:
nothing in it is executed, and nothing in it names a file elsewhere to read or write,
but for the workdirs whose models re-rank its translations (config.decode.options), and
the base of an adapter (config.train.init_from).
"""

import dataclasses
import hashlib
import json
import re
import tempfile
import uuid
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import NamedTuple, Union

from etils import epath

from t2t_jax import config as fields
from t2t_jax.config import Config
from t2t_jax.data.tokenizers.vocabulary import Vocabulary
from t2t_jax.io import ideas, lock
from t2t_jax.io.atomic import checked_json, read_checked_json, write_atomically
from t2t_jax.io.errors import UserError
from t2t_jax.io.json_lines import read_lines
from t2t_jax.io.locations import is_local, locate
from t2t_jax.parallel import processes

CONFIG, TEXT, EXPORTED = "config.json", "training_text.json", "t2t_jax"
STARTS = "starts.jsonl"
IMPORTED = "imported.json"
CHECK = "check"  # key of config.json: the SHA-256 of itself, TEXT and the tokenizers


class Start(NamedTuple):
    """A start of a run: a line of starts.jsonl."""

    step: int  # the step that it continued after; 0 for the first
    machine: dict[str, str | int]  # as `describe_machine` returned it
    ideas: dict[str, str]  # the SHA-256 of each module of --ideas

    @classmethod
    def parsed(cls, line: dict) -> "Start":
        """Reads a line."""
        ideas = {str(k): str(v) for k, v in line.get("ideas", {}).items()}
        return cls(int(line["step"]), dict(line["machine"]), ideas)


class Workdir:
    """The folder of one run.

    Reading methods check hashes; writing methods are for process 0.

    Attributes:
      path: where it is, as an `epath.Path`.
      export: the export that it is in; None if it is that of a run.

    Raises:
      UserError: not a folder name or gs://BUCKET/FOLDER, or an unusable bucket.
    """

    def __init__(self, place: epath.PathLike):
        self.path, self.export = locate(place), None
        if is_local(self.path) and (self.path / EXPORTED / CONFIG).exists():
            self.path, self.export = self.path / EXPORTED, self.path

    @classmethod
    def open(cls, place: Union["Workdir", epath.PathLike]) -> "Workdir":
        """`place` itself if it is a `Workdir`."""
        return place if isinstance(place, cls) else cls(place)

    def __str__(self) -> str:
        return str(self.path)

    def __fspath__(self) -> str:
        return str(self.path)

    def __truediv__(self, name: str) -> epath.Path:
        return self.path / name

    @property
    def checkpoints(self) -> epath.Path:
        """Absolute on disk, as Orbax requires."""
        folder = self.path / "checkpoints"
        return folder.absolute() if is_local(folder) else folder

    def has_run(self) -> bool:
        """True once a run has started in this folder."""
        # The config is the last file that `store` writes.
        return (self / CONFIG).exists()

    def config(self) -> Config:
        """The config of the run.

        Raises:
          UserError: this is not a workdir, its config is damaged, or another version
            wrote it.
        """
        return self._read_config()[0]

    def vocabulary(self) -> Vocabulary:
        """The tokenizer of the run.

        Raises:
          UserError: it is missing or damaged.
        """
        return self._vocabulary(self.config(), self._read_checked)

    def text(self) -> dict:
        """The `text` argument of `store`: hashes of the run's training and dev text.

        Raises:
          UserError: it is missing or damaged.
        """
        return json.loads(self._read_checked(TEXT))

    def config_and_vocabulary(self) -> tuple[Config, Vocabulary]:
        """`config` and `vocabulary`, read by process 0 and sent to all processes."""
        # As JSON and bytes, from process 0: the others may not see the workdir's disk.
        config = fields.from_config_dict(
            processes.from_first(
                "the config", lambda: dataclasses.asdict(self.config())
            )
        )

        def read(name: str) -> bytes:
            return processes.bytes_from_first(name, lambda: self._read_checked(name))

        return config, self._vocabulary(config, read)

    def changes(self, config: Config) -> dict:
        """The differences from the run's config, as `config.differences` returns them.

        Raises:
          UserError: a field differs that makes it another experiment.
        """
        if self.path.exists() and not self.path.is_dir():
            raise UserError(
                f"--workdir={self} is a file; want a new folder, or that of a run"
            )
        if not self.has_run():
            if self.checkpoints.exists():
                raise UserError(
                    f"{self} has checkpoints but no config.json: it was lost. Restore "
                    "it from a copy, or give another --workdir"
                )
            return {}
        if self.export:
            raise UserError(
                f"{self.export} is an export, which is not trained; give the workdir "
                "that it was made from, or a new one"
            )
        if (self / IMPORTED).exists():
            raise UserError(
                f"{self} holds an imported or saved model, not trained in place; start "
                f"a run from it in a new folder: --config=finetune:{self} --workdir=NEW"
            )
        recorded = self.config()
        if config.model.products == "auto":  # stands for what the run has chosen
            products = recorded.model.products
            config = fields.changed(config, "model", products=products)
        if config.train.save_minutes:  # the steps that it stands for are the run's
            steps = recorded.train.save_every
            config = fields.changed(config, "train", save_every=steps)
        changed = fields.differences(recorded, config)
        # Fields such as the number of steps may change during a run; see `config.py`.
        unsafe = {name: pair for name, (*pair, safe) in changed.items() if not safe}
        if unsafe:
            listed = "".join(
                f"\n  --config.{name}: {old!r} there, {new!r} now"
                + _reason(config, name)
                for name, (old, new) in unsafe.items()
            )
            same_model = not any(name.startswith("model.") for name in unsafe)
            start = f", with --config.train.init_from={self}" * same_model
            raise UserError(
                f"{self} was made with another config:{listed}\n"
                "Change these back, or give another --workdir for a new run"
                + (start and f"{start} to start from these parameters")
            )
        return changed

    def store(self, config: Config, vocabulary: Vocabulary, text: dict) -> None:
        """Writes the files that make a folder a workdir, the config last.

        Args:
          text: of `prepare.text_summary`; its `prepared` and `dev` are hashes. If
            training reads other models, `frozen` lists their parameters' hashes.

        Raises:
          UserError: the run began with another training or dev text, or read other
            models.
        """
        begun = self.has_run()
        if begun:
            self._check_same_text(text)
        written = {
            TEXT: json.dumps(text, indent=2).encode() + b"\n",
            **vocabulary.files,
        }
        # A continued run keeps the hashes from its start.
        if begun:
            check = self._read_config()[1]
        else:
            check = {name: _sha256(content) for name, content in written.items()}
        written[CONFIG] = checked_json(dataclasses.asdict(config) | {CHECK: check})
        # The config holds the hashes of the other files: they are written once, at the
        # start of the run, and before the config.
        for name in [CONFIG] if begun else written:
            file = self / name
            if not file.exists() or file.read_bytes() != written[name]:
                write_atomically(file, written[name])

    def hold(self) -> AbstractContextManager[Callable[[], None]]:
        """Keeps the workdir for one run; see `lock.hold`. Only process 0 does."""
        if not processes.is_first():
            return nullcontext(lambda: None)
        return lock.hold(self.path)

    def check_writable(self) -> None:
        """Raises a UserError if the folder is not writable, before hours of work."""
        # A write, since permission bits do not show a read-only or full disk.
        try:
            if is_local(self.path):
                with tempfile.TemporaryFile(dir=self.path) as trial:  # never has a name
                    trial.write(b"\n")
            else:
                trial = self / f".trial-{uuid.uuid4().hex}"
                trial.write_bytes(b"")
                trial.unlink()
        except OSError as e:
            raise UserError(f"{self} cannot be written: {e}") from None

    def _vocabulary(self, config: Config, read: Callable[[str], bytes]) -> Vocabulary:
        """The vocabulary of a config; `read` returns a file's content by its name."""
        return Vocabulary.from_files(self.path, config.data.joint_vocabulary, read)

    def _check_same_text(self, text: dict) -> None:
        before = self.text()
        for name, what in (("prepared", "training"), ("dev", "dev")):
            if before.get(name) != text.get(name):
                raise UserError(
                    f"the {what} text of {self} is not what it was when the run "
                    "began, or another version of t2t_jax prepared it, so the run "
                    "cannot continue; put the text back, or give another --workdir"
                )
        if before.get("frozen") != text.get("frozen"):
            was, now = (
                ", ".join(sha256[:12] for sha256 in of.get("frozen", [])) or "none"
                for of in (before, text)
            )
            raise UserError(
                f"the parameters of the models that {self} reads in training are not "
                f"what they were when the run began: SHA-256 {was} then, {now} now, so "
                "the run cannot continue; put their checkpoints back, or give another "
                "--workdir"
            )

    def _read_config(self) -> tuple[Config, dict[str, str]]:
        """The config, and the SHA-256 of the files that were written with it."""
        file = self / CONFIG
        if not file.is_file():
            raise UserError(
                f"{self} is not a workdir: it has no config.json. A workdir is created "
                "by python -m t2t_jax.main --workdir=DIR"
            )
        try:
            content = read_checked_json(file)
        except ValueError as e:
            raise UserError(
                f"{file} is not a config as this version of t2t_jax writes it: {e}. "
                "Restore it from a copy; to change fields, give --config flags to "
                "t2t_jax.main. Of another library's model t2t_jax import makes a "
                "workdir; an export of an older version is to be exported again"
            ) from None
        try:
            check = dict(content.pop(CHECK))
            # Earlier versions took larger ones: JAX used the lower 32 bits, the order
            # of the text all. Such a run is read; it would continue in another order.
            if "seed" in (train := content.get("train", {})):
                train["seed"] %= 1 << 32
            return fields.from_config_dict(content), check
        # Intact JSON, but with unknown fields or values: written by another version.
        except (ValueError, TypeError, LookupError) as e:
            if missing := self._missing_ideas():
                what = re.split("; |: ", str(e))[0]  # config.SECTION.FIELD='VALUE'
                raise UserError(
                    f"{self} uses {what}, which this installation does not have; it "
                    f"was trained with {missing}: give it to this command, too"
                ) from None
            raise UserError(
                f"{file} does not fit this version of t2t_jax: {e}"
            ) from None

    def starts(self) -> list["Start | None"]:
        """The starts of the run, oldest first; None for each that is damaged."""
        starts, tail = read_lines(self / STARTS, Start.parsed)
        # Each start is written with its line end, so a tail is not one of them.
        return [*starts, None] if tail else starts

    def last_start(self) -> "Start | None":
        """The last start of the run; None if there is none, or it is damaged."""
        return (self.starts() or [None])[-1]

    def _missing_ideas(self) -> str:
        """The modules that the last start had and this program lacks, as flags."""
        last = self.last_start()
        return " ".join(
            f"--ideas={name}"
            for name, sha256 in (last.ideas if last else {}).items()
            if name not in ideas.imported and sha256 not in ideas.imported.values()
        )

    def _read_checked(self, name: str) -> bytes:
        """A file that must be unchanged since the config was written."""
        file = self / name
        _, check = self._read_config()
        if not file.is_file():
            raise UserError(f"{self} is not a complete workdir: it has no {name}")
        content = file.read_bytes()
        if _sha256(content) != check.get(name):
            raise UserError(
                f"{file} was changed after it was written: its SHA-256 differs. "
                "Restore it from a copy"
            )
        return content


def _reason(config: Config, name: str) -> str:
    """Explains why a field that is otherwise safe may not change; else empty."""
    section, field = name.split(".", 1)
    choice = getattr(config, section).fixed_by(field)
    return f" (the run depends on it, because of {section}.{choice})" if choice else ""


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
