"""Sequence-level knowledge distillation (Kim and Rush 2016): a teacher's text trains.

PREFIX ─► the teacher's translations ─► STUDENT/distilled.en, .de, .hashes ─► STUDENT
"""

import collections
from collections.abc import Sequence
from pathlib import Path

from t2t_jax import config as fields
from t2t_jax.config import Config, TaskConfig
from t2t_jax.data.corpus import Corpus, open_specs
from t2t_jax.data.tokenizers.training import existing_tokenizer
from t2t_jax.data.tokenizers.vocabulary import TOKENIZER_FILES
from t2t_jax.decoding.translator import Translator
from t2t_jax.extensions.run.teacher_text import (
    CHUNK,
    PROBABILITY,
    Lines,
    Recipe,
    TeacherText,
    open_input,
    provenance,
)
from t2t_jax.io.errors import UserError
from t2t_jax.io.locations import is_local, join_names, split_names
from t2t_jax.io.messages import say
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
        theirs = teacher.config()
        _check_teacher(theirs, teachers, workdir)
        data = theirs.data
        mixed = [spec.partition("@")[0] for spec in split_names(mix)]
        references = recipe.by != PROBABILITY or ORIGINAL in mixed
        corpora = open_input(specs, data.source, data.target, references)
        config = student_config(config, teachers, prefix, corpora, mix, word_level)
        trains = only != "translate" and part[1] == 1
        if trains:
            _check_student(config, workdir, teacher)
    text = TeacherText(prefix, data.source, data.target)
    options = {"checkpoint": checkpoint, "dtype": dtype}
    if only == "train" and not processes.from_first("the text", text.record):
        raise UserError(
            f"--only=train, but the teacher's text {prefix} is not complete; leave "
            "--only out to make it first"
        )
    make_text(text, teachers, theirs, recipe, corpora, options, part, batch_size)
    return train(config, workdir) if trains else {}


def make_text(
    text: TeacherText,
    teachers: Sequence[str],
    theirs: Config,
    recipe: Recipe,
    corpora: Sequence[Corpus],
    options: dict,
    part: tuple[int, int],
    batch_size: int,
) -> None:
    """Makes a teacher's text, or a part of it, or checks the one that is there.

    Args:
      options: `checkpoint` and `dtype` of the teachers.
    """
    named = {"teachers": [*map(str, teachers)], **options}

    def sources(teacher: dict, pairs: int) -> dict:
        return provenance(teacher, theirs.decode, recipe, corpora, pairs)

    def is_complete() -> bool:
        """True for a complete text of teachers of these names, which is checked."""
        record = text.record()
        if not record or not named.items() <= record.items():
            return False
        # The teacher is not loaded, which takes long: its names have to be enough.
        made = record["made_from"]
        text.check(sources(made["teacher"], made["pairs"]))
        say(f"{text.prefix}.{text.target} has the teacher's {record['pairs']:,} pairs")
        return True

    if processes.from_first("the teacher's text", is_complete, processes.LONG_TIMEOUT):
        return
    translator = Translator.load([*teachers], **options)
    made_from, lines = {}, None

    def state() -> str:
        """Says what is there: "text", "part", all "parts", or "" and lines to read."""
        nonlocal made_from, lines
        lines = Lines(corpora, part)
        made_from = sources(translator.provenance(), lines.total)
        if text.record():
            text.check(made_from)
            return "text"
        if part[1] == 1 and text.parts():
            return "parts"
        if (made := text.part(part)).exists():
            text.check(made_from, made)
            return "part"
        return ""

    present = processes.from_first("the parts", state, processes.LONG_TIMEOUT)
    if not present:
        say(repr(translator))
        text.translate(translator, recipe, lines, made_from, part, batch_size)
    with processes.fail_together("joining the text", processes.LONG_TIMEOUT):
        if not processes.is_first() or present == "text":
            return
        if part[1] > 1:
            say(f"part {part[0]} of {part[1]} is complete: {text.part(part)}")
            say("when all are, the same command without --part joins them and trains")
            return
        text.join(text.parts() or [text.part(part)], made_from, named)


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
    theirs = teacher.config()
    for name in ("source", "target"):
        one, other = getattr(theirs.data, name), getattr(config.data, name)
        if one != other:
            raise UserError(
                f"the teacher {teacher} translates {theirs.data.source} -> "
                f"{theirs.data.target}, but the student's config.data.{name}={other!r};"
                " a student has the languages of its teacher"
            )
    if not (config.data.tokenizer or config.train.init_from):
        if not is_local(teacher):
            raise UserError(
                f"{teacher}: the student reads the teacher's tokenizer from disk; copy "
                "the workdir here, or give --config.data.tokenizer"
            )
        joint = theirs.data.joint_vocabulary
        sides = zip(FIELDS[: 1 if joint else 2], TOKENIZER_FILES, strict=False)
        tokenizers = {name: str((teacher / file).absolute()) for name, file in sides}
        config = fields.changed(
            config,
            "data",
            **tokenizers,
            joint_vocabulary=joint,
            source_vocab_size=0,
            symbols=theirs.data.symbols,
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
        ours = Workdir(start).vocabulary().sides
    else:
        sides = 1 if config.data.joint_vocabulary else 2
        ours = [existing_tokenizer(config.data, name) for name in FIELDS[:sides]]
    theirs = teacher.vocabulary().sides
    if [side.model for side in ours if side] != [side.model for side in theirs]:
        raise UserError(
            "--word_level compares the probabilities of tokens, so the student needs "
            f"the tokenizer of its teacher {teacher}; leave out --config.data.tokenizer"
            " and --config.train.init_from, or --word_level"
        )


def _mixed(mix: str, corpora: Sequence[Corpus]) -> list[str]:
    """The specs of `mix`, in which `original` is replaced by those of the corpora."""
    specs = []
    for spec in split_names(mix):
        name, at, weight = spec.partition("@")
        if name != ORIGINAL:
            specs.append(spec)
            continue
        for corpus in corpora:
            # A relative spec of a config would start at `config.data.dir`.
            whole = corpus.prefix.absolute() if corpus.prefix else corpus.spec
            specs.append(f"{whole}{at}{weight}")
    return specs


def _check_teacher(
    theirs: Config, teachers: Sequence[str], workdir: str | Path
) -> None:
    kind = theirs.task.kind
    if kind != TaskConfig().kind:
        raise UserError(
            f"{teachers[0]} has config.task.kind={kind!r}; want a teacher that "
            f"translates, {TaskConfig().kind!r}"
        )
    ours = Workdir.open(workdir).path.absolute()
    if any(Workdir.open(teacher).path.absolute() == ours for teacher in teachers):
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
