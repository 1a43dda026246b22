"""Text to text: several tasks in one model, told apart by a tag before each source.

As in T5 (Raffel et al. 2020); translation into several languages is as in Google's
multilingual system (Johnson et al. 2017): `<2de> The dog barks.` asks for German.

Corpora are named `SUBTASK:CORPUS`, in a config and in --test of the commands:

    en-de:news             a direction: the files news.en and news.de; its tag is <2de>
    de-en:grammar:train    the built-in corpus, from German; <2en>
    copy:news.en           one-sided text, to be repeated; <copy>
    spans:news.en          one-sided text, whose spans are to be restored; <spans>. It
                           is for training: it has a dev loss, but no answers
    parsing:wsj            an entry of TASKS that writes text, with its own corpus
"""

import dataclasses
import itertools
import re
from collections.abc import Sequence
from fnmatch import fnmatchcase
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from t2t_jax.config import Config, TaskConfig
from t2t_jax.data.corpus import TABLE_NAME, Corpus, Pair
from t2t_jax.data.tokenizers.vocabulary import Vocabulary
from t2t_jax.extensions.data.noise import SENTINELS, Noise, SpanCorruption
from t2t_jax.extensions.data.one_sided_text import copied, open_lines, tagged
from t2t_jax.io.errors import UserError, did_you_mean
from t2t_jax.io.locations import split_names
from t2t_jax.metrics import classification
from t2t_jax.metrics.measures import Measure, percent, with_count
from t2t_jax.sections import table_of
from t2t_jax.tasks.task import Task
from t2t_jax.text.languages import distance, nearest

if TYPE_CHECKING:
    from t2t_jax.decoding.translator import Translator

SPANS = "spans"


class TextToText(Task):
    """A mixture of subtasks; each dev and test set is scored by its own.

    During training, the mean of the first scores of the dev sets chooses checkpoints.
    Subtasks have the default options of their tasks.
    """

    chosen_by = "mean"
    varies = ("subword_dropout",)  # not text: a target may be a label or a tree

    # ------------------------------------------------------------------ subtasks

    @cached_property
    def trained(self) -> tuple[str, ...]:
        """The subtasks of the training text, in order."""
        specs = split_names(self.config.data.train)
        return tuple(dict.fromkeys(_split(spec)[0] for spec in specs))

    @cached_property
    def tags(self) -> tuple[str, ...]:
        """The tags that the model knows: of the training text, and of other symbols."""
        named = map(str.strip, self.config.data.symbols.split(","))
        tags = filter(re.compile("<.+>").fullmatch, named)
        return tuple(dict.fromkeys([*map(_tag, self.trained), *tags]))

    @property
    def symbols(self) -> tuple[str, ...]:
        """The tags, and what subtasks keep as one piece."""
        symbols = (s for name in self.trained for s in self.subtask(name).symbols)
        return tuple(dict.fromkeys([*self.tags, *symbols]))

    def subtask(self, name: str) -> Task:
        """Returns the task that a subtask is without its tag."""
        if languages := _languages(name):
            source, target = languages
            if distance(source, target) == 0:
                raise UserError(
                    f"{name} translates {source} into itself; want two languages such "
                    "as en-de, or copy:FILE for text to be repeated"
                )
            return _task(self.config, "translation", source=source, target=target)
        if name in OWN:
            return OWN[name](self.config)
        if name not in (names := _names()):
            raise UserError(
                f"{name!r} is not a subtask; want a direction such as en-de, or "
                f"{' or '.join(names)}, and corpora such as en-de:grammar:train"
                + did_you_mean(name, [*names, *filter(_languages, self.trained)])
            )
        task = _task(self.config, name)
        return Label(task) if task.predicts == "label" else task

    def tag(self, name: str) -> str:
        """Returns the tag of a subtask; raises UserError unless the model knows it."""
        self.subtask(name)
        tag = _tag(name)
        if languages := _languages(name):  # the model may spell the target otherwise
            targets = (tag[2:-1] for tag in self.tags if tag.startswith("<2"))
            tag = f"<2{nearest(languages[1], targets) or languages[1]}>"
        if tag not in self.tags:
            raise UserError(
                f"{name}: no corpus of config.data.train has its tag {tag}, only "
                f"{', '.join(self.tags)}; train on such text, or leave {name} out "
                "(of config.data.dev and config.data.test, too)"
            )
        return tag

    def chosen(
        self, subtask: str, translator: "Translator"
    ) -> tuple[Task, "Translator"]:
        """Returns a subtask, and the translator that puts its tag before each line."""
        return self.subtask(subtask), translator.tagged(self.tag(subtask))

    # ------------------------------------------------------ text becomes examples

    def open(self, spec: str, folder: str = "") -> Corpus:
        """Opens the corpus at `SUBTASK:CORPUS`."""
        name, place = _split(spec)
        tag = self.tag(name)
        data, languages = self.config.data, _languages(name)
        if languages and TABLE_NAME.search(place) and (data.columns or ".tsv" in place):
            reverse = f"{languages[1]}-{languages[0]}:{place}"
            specs = map(split_names, (data.train, data.dev, data.test))
            named = (s.rpartition("@")[0] or s for s in itertools.chain(*specs))
            if any(fnmatchcase(reverse, written) for written in named):
                raise UserError(
                    f"{spec} and {reverse}: columns are those of source and target, so "
                    "a table is of one direction; want a .jsonl, without config.data."
                    "columns, whose keys are called like the languages, or two files"
                )
        return tagged(self.subtask(name).open(place, folder), name, tag)

    def check_sources(self, lines: Sequence[str], first_line: int = 1) -> None:
        """Raises UserError at a line, not blank, that begins with none of the tags."""
        for number, line in enumerate(lines, first_line):
            if line.strip() and not line.startswith(self.tags):
                raise UserError(
                    f"line {number} begins with no tag: {line[:40]!r}; the model has "
                    f"several tasks: name one for all lines, such as --task="
                    f"{self.trained[0]}, or begin each line with one of "
                    + ", ".join(self.tags)
                )

    def check_variation(self) -> None:
        """Checks the fields; spans are cut out of text that does not vary."""
        super().check_variation()
        if (value := self.config.data.subword_dropout) and SPANS in self.trained:
            raise UserError(
                f"config.data.subword_dropout={value} with corpora of {SPANS}, which "
                "change from epoch to epoch themselves; leave one of the two out"
            )

    def noise(
        self, vocabulary: Vocabulary, texts: Sequence[tuple[Corpus, int]]
    ) -> Noise | None:
        """Cuts spans out of the examples of the subtask "spans"."""
        corrupted = [np.full(size, corpus.subtask == SPANS) for corpus, size in texts]
        applies_p = np.concatenate(corrupted)
        if not applies_p.any():
            return None
        return SpanCorruption(vocabulary, applies_p=applies_p, tag=_tag(SPANS))

    # --------------------------------------------------------- answers are scored

    def of(self, corpus: Corpus) -> "Tagged":
        """Returns the subtask of a corpus."""
        # Another run's parameters may have learned more than this run's text shows.
        learned = corpus.subtask in self.trained or self.config.train.init_from
        return Tagged(self.subtask(corpus.subtask), corpus, zero_shot=not learned)

    def dev_sets(
        self, corpora: Sequence[Corpus], most: int
    ) -> dict[str, tuple[Task, list[Pair]]]:
        """Returns the first examples of each dev set, with the subtask, by its name."""
        sets = {}
        for corpus in (c for c in corpora if c.subtask != SPANS):
            name = corpus.spec if corpus.name in sets else corpus.name
            task = self.of(corpus)
            sets[name] = task, task.examples(corpus)[:most]
        return sets

    def joined_scores(self, scores: dict[str, dict[str, float]]) -> dict[str, float]:
        """Joins the scores of dev sets: the `mean` of the first, then `SET.SCORE`.

        All of the first are from 0 to 100.
        """
        main_scores = [next(iter(rows.values())) for rows in scores.values()]
        return {"mean": float(np.mean(main_scores))} | {
            f"{name}.{score}": value
            for name, rows in scores.items()
            for score, value in rows.items()
        }


def _split(spec: str) -> tuple[str, str]:
    """Splits `SUBTASK:CORPUS`."""
    name, _, corpus = spec.partition(":")
    if not corpus:
        raise UserError(
            f"{spec} names no subtask; want SUBTASK:CORPUS, such as en-de:{spec}"
        )
    return name.strip(), corpus.strip()


def _languages(name: str) -> tuple[str, str] | None:
    """Splits a direction such as en-de; None for another subtask."""
    match = re.fullmatch(r"(\w+)-(\w+)", name)
    return match and match.groups()


def _tag(name: str) -> str:
    """`<2de>` for a direction into German, `<parsing>` for the subtask "parsing"."""
    languages = _languages(name)
    return f"<2{languages[1]}>" if languages else f"<{name}>"


def _names() -> list[str]:
    """The subtasks that are not directions."""
    # TASKS, as the config finds it: its module imports this one.
    (kind,) = (f for f in dataclasses.fields(TaskConfig) if f.name == "kind")
    written = [
        name
        for name, task in table_of(kind).items()
        if task.predicts in ("target", "label") and task.sides == (0, 1)
    ]
    return [*OWN, *(n for n in written if n not in ("translation", "text_to_text"))]


def _task(config: Config, kind: str, **languages: str) -> Task:
    """A task of TASKS, with the data of a mixture's config."""
    task = TaskConfig(kind=kind)
    data = dataclasses.replace(config.data, **languages)
    config = dataclasses.replace(config, task=task, data=data)
    return task.variant("kind")(config)


def _matches(answers: Sequence[str], pairs: Sequence[Pair]) -> np.ndarray:
    """1 for an answer that is the target, and 1 for each example, [n, 2]."""
    examples = zip(answers, pairs, strict=True)
    return with_count([answer == target for answer, (_, target) in examples])


class Copy(Task):
    """Repeats a line; an answer is right if no character differs."""

    measures: ClassVar = {"accuracy": Measure("% of exact answers", _matches, percent)}

    def open(self, spec: str, folder: str = "") -> Corpus:
        """Opens one-sided text; `grammar:` and `tfds:` have their target side."""
        data = self.config.data
        return copied(open_lines(spec, data.source, data.target, folder))


class Spans(Copy):
    """Restores spans that were cut out of a line; for training alone."""

    symbols = SENTINELS

    def examples(self, corpus: Corpus) -> list[Pair]:
        """Raises UserError: it has no examples that are scored."""
        raise UserError(
            f"{SPANS}:{corpus.spec}: {SPANS} has no answers to be scored; name this "
            "text in config.data.dev, which measures its loss"
        )


class Label(Task):
    """Classification as text: the answer is the label, without probabilities."""

    measures = classification.LABEL_MEASURES

    def __init__(self, task: Task):
        super().__init__(task.config)
        self.open = task.open


class Tagged:
    """A subtask that scores a set of a mixture; other attributes are the subtask's.

    Examples are scored without their tag, which the translator puts back.
    """

    def __init__(self, subtask: Task, corpus: Corpus, zero_shot: bool):
        self._subtask, self._corpus, self._zero_shot = subtask, corpus, zero_shot

    def __getattr__(self, name: str):
        return getattr(self._subtask, name)

    def examples(self, corpus: Corpus) -> list[Pair]:
        """Returns the examples without their tag."""
        return self._subtask.examples(corpus.made_of)

    def answers(
        self, translator: "Translator", pairs: Sequence[Pair], warn: bool = True
    ) -> list[str]:
        """Computes the answers to examples of this subtask."""
        return self._subtask.answers(translator.tagged(self._corpus.tag), pairs, warn)

    def extra_scores(self, translator: "Translator", pairs: Sequence[Pair]) -> dict:
        """Computes scores that do not follow from the answers."""
        return self._subtask.extra_scores(translator.tagged(self._corpus.tag), pairs)

    def scores(
        self, answers: Sequence[str], pairs: Sequence[Pair], corpus: Corpus
    ) -> dict:
        """Computes the scores of the subtask, and whether training lacked it."""
        scores = self._subtask.scores(answers, pairs, corpus.made_of)
        return scores | {"subtask": corpus.subtask, "zero_shot": self._zero_shot}

    def compare(self, answers, baseline, pairs, corpus: Corpus) -> dict:
        """Compares with another system's answers to the same examples."""
        return self._subtask.compare(answers, baseline, pairs, corpus.made_of)

    def row(self, scores: dict, corpus: Corpus) -> str:
        """Formats the scores as the subtask does."""
        return self._subtask.row(scores, corpus.made_of) + (
            "   zero-shot" if self._zero_shot else ""
        )

    def compare_with(self, corpus: Corpus) -> str:
        """Says with which published results scores compare; "" if none is known."""
        return self._subtask.compare_with(corpus.made_of)


OWN = {"copy": Copy, SPANS: Spans}  # subtasks that are not in TASKS
