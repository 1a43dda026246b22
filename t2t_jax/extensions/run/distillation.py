"""Sequence-level knowledge distillation (Kim and Rush 2016): a teacher's text trains.

PREFIX ─► the teacher's translations ─► STUDENT/distilled.en, .de, .hashes ─► STUDENT
"""

import collections
import dataclasses
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from t2t_jax import __version__
from t2t_jax import config as fields
from t2t_jax.config import Config, TaskConfig
from t2t_jax.data.corpus import (
    Corpus,
    Pair,
    file_corpus,
    open_corpus,
    open_specs,
    scheme_of,
)
from t2t_jax.data.text_files import file_hash, find_file, read_lines
from t2t_jax.data.tokenizers.training import existing_tokenizer
from t2t_jax.data.tokenizers.vocabulary import TOKENIZER_FILES
from t2t_jax.decoding.jobs import InputLines
from t2t_jax.decoding.results import Translation
from t2t_jax.decoding.translator import Translator
from t2t_jax.extensions.run.synthetic_text import (
    CHUNK,
    PROBABILITY,
    Recipe,
    TextFiles,
    run_text_job,
    write_sides,
)
from t2t_jax.io import atomic, parts
from t2t_jax.io.errors import UserError
from t2t_jax.io.locations import is_local, join_names, split_names
from t2t_jax.io.lock import exclusive
from t2t_jax.io.messages import say
from t2t_jax.io.output_files import changes
from t2t_jax.model.model import build
from t2t_jax.parallel import processes
from t2t_jax.run.train import train
from t2t_jax.tasks.table import task_of
from t2t_jax.workdir import Workdir

ORIGINAL = "original"  # stands for the input in `mix`
NAME = "distilled"  # of the text in the student's workdir
FIELDS = "tokenizer", "source_tokenizer"  # of `config.data`, as `Vocabulary.sides`


def distill(
    teachers: Sequence[str],
    specs: str,
    config: Config,
    workdir: str | Path,
    *,
    recipe: Recipe | None = None,
    mix: str = "",
    word_level: bool = False,
    prefix: str | Path = "",
    checkpoint: str | None = None,
    dtype: str | None = None,
    part: tuple[int, int] = (1, 1),
    only: str = "",
    batch_size: int = CHUNK,
) -> dict[str, dict]:
    """Has a teacher translate a text, and trains a student on it; continues both.

    Args:
      teachers: workdirs; several are an ensemble.
      specs: the text whose source lines are translated, as `config.data.train` without
        weights; relative to the current folder. Without references, the source file is
        enough.
      config: the student's; its `data.train` is replaced, and its tokenizer is the
        teacher's unless it names another one.
      workdir: the student's.
      recipe: what is searched and chosen; by default the teacher's best translation.
      mix: further specs of training text, with weights; `original` is `specs`.
      word_level: whether the student also learns the teacher's distributions of tokens.
      prefix: of the text's files; by default `distilled` in the workdir.
      checkpoint, dtype: the teacher's, as for `Translator.load`.
      part: (I, N): makes only the I-th of N parts of the text.
      only: "translate" ends when the text is complete, "train" begins with it.
      batch_size: the number of lines translated together; the text does not depend on
        it.

    Returns:
      Scores of the student by test set; empty if it was not trained.
    """
    recipe = recipe or Recipe()
    teacher = Workdir.open(teachers[0])
    if not prefix:
        if not is_local(workdir):
            raise UserError(
                f"--workdir={workdir}: the teacher's text is read from disk; name "
                "files for it: --text=PREFIX"
            )
        prefix = Path(workdir) / NAME
    prefix = Path(prefix).expanduser().absolute()
    with processes.fail_together("opening the teacher and the text"):
        teacher_config = teacher.config()
        _check_teacher(teacher_config, teachers, workdir)
        data = teacher_config.data
        mixed = [spec.partition("@")[0] for spec in split_names(mix)]
        references = recipe.by != PROBABILITY or ORIGINAL in mixed
        corpora = open_input(specs, data.source, data.target, references)
        config = student_config(config, teachers, prefix, corpora, mix, word_level)
        trains = only != "translate" and part[1] == 1
        if trains:
            _check_student(config, workdir, teacher)
    options = {"checkpoint": checkpoint, "dtype": dtype}
    text = TeacherText(prefix, teachers, teacher_config, recipe, corpora, options)
    if only == "train" and not processes.from_first("the text", text.record):
        raise UserError(
            f"--only=train, but the teacher's text {prefix} is not complete; leave "
            "--only out to make it first"
        )
    text.make(part, batch_size)
    return train(config, workdir) if trains else {}


class TeacherText:
    """A text that a teacher translates for a student.

    Args:
      teachers: workdirs; several are an ensemble.
      config: of the first teacher.
      corpora: the lines and their references, of `open_input`.
      options: `checkpoint` and `dtype`, as for `Translator.load`.
    """

    def __init__(
        self,
        prefix: Path,
        teachers: Sequence[str],
        config: Config,
        recipe: Recipe,
        corpora: Sequence[Corpus],
        options: dict,
    ):
        self._prefix, self._teachers, self._config = prefix, teachers, config
        self._recipe, self._corpora, self._options = recipe, corpora, options
        self._languages = config.data.source, config.data.target
        self._files = TextFiles.named(prefix, *self._languages)
        self._job = Path(f"{prefix}.pairs")
        self._made_from: dict = {}

    def record(self) -> dict | None:
        """Returns the record of a complete text; None if there is none."""
        file = self._files.record
        if not file.exists():
            return None
        remedy = f"remove {self._prefix}.* to have it made again"
        try:
            record = atomic.read_checked_json(file)
        except (OSError, ValueError) as e:
            raise UserError(f"{file} is damaged ({e}); {remedy}") from None
        if self._fingerprint() != record["fingerprint"]:
            raise UserError(
                f"{self._files.originals} or .{self._languages[1]} was changed after "
                f"the teacher wrote it; restore it, or {remedy}"
            )
        return record

    def make(self, part: tuple[int, int], batch_size: int = CHUNK) -> None:
        """Makes the text, or a part of it; continues a stopped job.

        A text or a part that is there already is checked instead.
        """
        complete = processes.from_first(
            "the teacher's text", self._is_complete, processes.LONG_TIMEOUT
        )
        if complete:
            return None
        translator = Translator.load([*self._teachers], **self._options)
        text, file = None, parts.part_of(self._job, part)

        def state() -> str:
            """Says what is there: the "text", its "pairs", or "" and lines to read."""
            nonlocal text
            text = self._open(part)
            self._made_from = self._origin(translator.provenance(), text.total)
            if self.record():
                self._check(self._files.record)
                return "text"
            if part[1] == 1 and self._finished_parts():
                return "pairs"
            if file.exists():
                self._check(file)
                return "pairs"
            return ""

        present = processes.from_first("the parts", state, processes.LONG_TIMEOUT)
        if not present:
            say(repr(translator))
            self._translate(translator, text, file, batch_size)
        with processes.fail_together("joining the text", processes.LONG_TIMEOUT):
            if not processes.is_first() or present == "text":
                return None
            if part[1] == 1:
                return self._join()
            say(f"part {part[0]} of {part[1]} is complete: {file}")
            say("when all are, the same command without --part joins them and trains")
            return None

    def _is_complete(self) -> bool:
        """True for a complete text of teachers of these names, which is checked."""
        record = self.record()
        if not record or not self._names().items() <= record.items():
            return False
        # The teacher is not loaded, which takes long: its names have to be enough.
        self._made_from = self._origin(
            record["made_from"]["teacher"], record["made_from"]["pairs"]
        )
        self._check(self._files.record)
        say(f"{self._files.translations} has the teacher's {record['pairs']:,} pairs")
        return True

    def _names(self) -> dict:
        """Names the teachers, for the record."""
        return {"teachers": [*map(str, self._teachers)], **self._options}

    def _fingerprint(self) -> str:
        return file_corpus(self._prefix, *self._languages).fingerprint()

    def _origin(self, teacher: Mapping, pairs: int) -> dict:
        """Returns all that the text depends on."""
        return {
            "teacher": dict(teacher),
            "search": self._recipe.options(self._config.decode),
            "by": self._recipe.by,
            "input": [corpus.fingerprint() for corpus in self._corpora],
            "pairs": pairs,
            "t2t_jax": __version__,
        }

    def _open(self, part: tuple[int, int]) -> InputLines:
        """The pairs of a part as lines: a source, a line feed and its reference."""
        text = InputLines(
            lambda: (f"{s}\n{r}" for c in self._corpora for s, r in c.pairs()),
            part,
            keep=True,
        )
        if not text.count:
            raise UserError(
                f"part {part[0]} of {part[1]} of {text.total:,} pairs is empty; want "
                "at most as many parts as pairs"
            )
        return text

    def _finished_parts(self) -> list[Path]:
        """The parts of several machines that are complete, if any are begun."""
        return parts.finished_parts(self._job, needed=False)

    def _check(self, file: Path) -> None:
        """Checks that the complete text, or a part, is the one that is asked for.

        Args:
          file: the record of the text, or the file of pairs of a part.
        """
        complete = file == self._files.record
        record = self.record() if complete else parts.read_record(file)
        recorded = record["made_from"]
        # As it is stored: tuples are lists.
        expected = json.loads(json.dumps(self._made_from))
        # Any version of t2t_jax may have made it, also one that recorded more, or less
        # of the teacher.
        recorded = {name: recorded.get(name) for name in expected} | {
            "t2t_jax": expected["t2t_jax"]
        }
        recorded["teacher"] = expected["teacher"] | recorded["teacher"]
        for teacher in (recorded["teacher"], expected["teacher"]):
            teacher.pop("t2t_jax", None)
        if changed := changes(recorded, expected):
            raise UserError(
                f"{file} is of another text of a teacher:{changed}\n"
                "Give the same options again, another --text, or remove the files of "
                f"{self._prefix}"
            )

    def _translate(
        self,
        translator: Translator,
        text: InputLines | None,
        file: Path,
        batch_size: int,
    ) -> None:
        """Translates a part to its file of pairs; the text is process 0's only."""
        choose = self._recipe.chooser(self._languages[1])
        options = self._recipe.options(translator.config.decode)

        def translate(lines: list[str], number: int) -> list[Translation]:
            sources = [line.partition("\n")[0] for line in lines]
            return translator.translate(sources, first_line=number, **options)

        def rows(line: str, translation: Translation, _: int) -> tuple[str, str]:
            source, reference = line.split("\n")
            return source, choose(translation, reference)

        # Parts of different divisions have different names, so none is continued as
        # another.
        path = file if processes.is_first() else None
        if path:
            path.parent.mkdir(parents=True, exist_ok=True)
        run_text_job(translate, rows, text, path, self._made_from, True, batch_size)

    def _join(self) -> None:
        """Writes the text from its files of pairs, in order, and then removes them."""
        *sides, record = self._files
        with exclusive(self._prefix.parent):
            if record.exists():  # another process was faster
                return self._check(record)
            files = self._finished_parts() or [self._job]
            with atomic.together(sides, replace=True) as drafts:
                written = write_sides(drafts, self._pairs_of(files), self._languages)
            content = {
                "pairs": written.lines,
                "empty": written.empty,
                "fingerprint": self._fingerprint(),
                **self._names(),
                "made_from": self._made_from,
            }
            atomic.write_atomically(record, atomic.checked_json(content))
        for file in files:
            # With what a job leaves that was killed just after its last line.
            for ending in ("", ".json", ".partial", ".partial.json"):
                Path(f"{file}{ending}").unlink(missing_ok=True)
        say(
            f"{written.lines:,} pairs of the teacher are in {sides[1]}; "
            f"{written.empty:,} have no complete translation, and training drops them"
        )
        return None

    def _pairs_of(self, files: Sequence[Path]) -> Iterator[Pair]:
        """Yields the pairs of files of pairs, which are checked."""
        for file in files:
            self._check(file)
        for file in parts.checked_parts(files):
            lines = read_lines(file)
            yield from zip(lines, lines, strict=True)


def open_input(specs: str, source: str, target: str, references: bool) -> list[Corpus]:
    """Opens the text whose source lines a teacher translates.

    Args:
      specs: as `config.data.train` without weights, relative to the current folder.
      references: True if both sides are needed; else the source file is enough.
    """

    def open_one(spec: str, folder: str) -> Corpus:
        corpus = open_corpus(spec, source, target, folder)
        if not (prefix := corpus.prefix):
            return corpus
        if not (file := find_file(prefix, source)):
            similar = sorted(f.name for f in prefix.parent.glob(f"{prefix.name}.*"))
            raise UserError(
                f"--input={spec} has no {prefix.name}.{source} (or .gz), and the "
                f"teacher translates {source} -> {target}; there "
                + (f"are {', '.join(similar[:6])}" if similar else "is no such file")
            )
        if references or find_file(prefix, target):
            return corpus
        # Only the source file exists; the references are empty.
        return dataclasses.replace(
            corpus,
            pairs=lambda: ((line, "") for line in read_lines(file)),
            fingerprint=lambda: file_hash(file),
        )

    corpora = open_specs(specs, open_one)
    if not corpora:
        raise UserError(f"--input={specs!r} names no text; want a PREFIX")
    return corpora


def student_config(
    config: Config,
    teachers: Sequence[str],
    prefix: Path,
    corpora: Sequence[Corpus] = (),
    mix: str = "",
    word_level: bool = False,
) -> Config:
    """Returns the config of a student of a teacher's text at `prefix`.

    Args:
      corpora: the input, which `original` in `mix` stands for.
    """
    teacher = Workdir.open(teachers[0])
    teacher_config = teacher.config()
    for name in ("source", "target"):
        language = getattr(config.data, name)
        if language != getattr(teacher_config.data, name):
            raise UserError(
                f"the teacher {teacher} translates {teacher_config.data.source} -> "
                f"{teacher_config.data.target}, but the student's config.data.{name}="
                f"{language!r}; a student has the languages of its teacher"
            )
    if not (config.data.tokenizer or config.train.init_from):
        if not is_local(teacher):
            raise UserError(
                f"{teacher}: the student reads the teacher's tokenizer from disk; copy "
                "the workdir here, or give --config.data.tokenizer"
            )
        joint = teacher_config.data.joint_vocabulary
        sides = zip(FIELDS[: 1 if joint else 2], TOKENIZER_FILES, strict=False)
        tokenizers = {name: str((teacher / file).absolute()) for name, file in sides}
        config = fields.changed(
            config,
            "data",
            **tokenizers,
            joint_vocabulary=joint,
            source_vocab_size=0,
            symbols=teacher_config.data.symbols,
        )
    if word_level:
        _check_pieces(config, teacher)
        options = {**config.train.options, "teacher": join_names(map(str, teachers))}
        config = fields.changed(config, "train", loss="distillation", options=options)
    specs = [str(prefix), *_mixed(mix, corpora)]
    return fields.changed(config, "data", train=join_names(specs))


def _check_pieces(config: Config, teacher: Workdir) -> None:
    """Raises UserError unless the student has the tokens of its teacher."""
    if start := config.train.init_from:
        tokenizers = Workdir(start).vocabulary().sides
    else:
        sides = 1 if config.data.joint_vocabulary else 2
        tokenizers = [existing_tokenizer(config.data, name) for name in FIELDS[:sides]]
    models = [tokenizer.model for tokenizer in tokenizers if tokenizer]
    if models != [side.model for side in teacher.vocabulary().sides]:
        raise UserError(
            "--word_level compares the probabilities of tokens, so the student needs "
            f"the tokenizer of its teacher {teacher}; leave out --config.data.tokenizer"
            " and --config.train.init_from, or --word_level"
        )


def _mixed(mix: str, corpora: Sequence[Corpus]) -> list[str]:
    """The specs of `mix`, in which `original` is replaced by those of the corpora."""
    specs = []
    for spec in split_names(mix):
        name, separator, weight = spec.partition("@")
        if name != ORIGINAL:
            specs.append(spec)
            continue
        for corpus in corpora:
            # A relative spec of a config would start at `config.data.dir`.
            files = not scheme_of(corpus.spec)
            path = Path(corpus.spec).absolute() if files else corpus.spec
            specs.append(f"{path}{separator}{weight}")
    return specs


def _check_teacher(
    teacher_config: Config, teachers: Sequence[str], workdir: str | Path
) -> None:
    kind = teacher_config.task.kind
    if kind != TaskConfig().kind:
        raise UserError(
            f"{teachers[0]} has config.task.kind={kind!r}; want a teacher that "
            f"translates, {TaskConfig().kind!r}"
        )
    student = Workdir.open(workdir).path.absolute()
    if any(Workdir.open(teacher).path.absolute() == student for teacher in teachers):
        raise UserError(
            f"--workdir={workdir} is the teacher; give the student a folder of its own"
        )


def _check_student(config: Config, workdir: str | Path, teacher: Workdir) -> None:
    """Refuses a student that cannot be trained, before hours of translating."""
    if processes.is_first():
        Workdir.open(workdir).changes(config)
    task = task_of(config)
    build(config.model, *teacher.vocabulary().sizes)
    for specs in (config.data.dev, config.data.test):
        for corpus in open_specs(specs, task.open, config.data.dir):
            collections.deque(corpus.pairs(), maxlen=0)
