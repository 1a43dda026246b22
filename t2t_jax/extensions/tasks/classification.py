"""Classification: a sentence in, one of a few labels out.

A spec is the prefix of a file PREFIX.tsv, plain or `.gz`, with a sentence, a tab and a
label in each line; or `grammar:SPLIT`, whose sentences are labeled by their last mark.
"""

import collections
import dataclasses
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from t2t_jax.data.corpus import (
    Corpus,
    Pair,
    derived,
    in_folder,
    named_hash,
    open_corpus,
    open_specs,
    scheme_of,
)
from t2t_jax.data.text_files import file_hash, find_file, not_empty, read_lines
from t2t_jax.data.tokenizers.table import pack
from t2t_jax.data.tokenizers.training import make_source_tokenizer
from t2t_jax.data.tokenizers.vocabulary import Vocabulary, parse_symbols
from t2t_jax.decoding.results import Translation
from t2t_jax.extensions.data.variation import text_variation_of
from t2t_jax.io.errors import UserError, did_you_mean
from t2t_jax.metrics import classification
from t2t_jax.metrics.measures import Measure, compared
from t2t_jax.sections import field
from t2t_jax.tasks.task import OF_SEARCH, Task

if TYPE_CHECKING:
    from t2t_jax.decoding.translator import Translator

MARKS = {".": "statement", "?": "question"}


class Classification(Task):
    """Labels for sentences; text is in files of sentence, tab, label."""

    @dataclasses.dataclass(frozen=True)
    class Options:
        """Options of classification."""

        # The labels, separated by commas; empty: those of the training text.
        labels: str = field("")

    predicts = "label"
    varies = ("augment", "subword_dropout")
    unused = OF_SEARCH
    measures: ClassVar[dict[str, Measure]] = (
        classification.LABEL_MEASURES | classification.PROBABILITY_MEASURES
    )

    def open(self, spec: str, folder: str = "") -> Corpus:
        """Opens labeled text: PREFIX.tsv, or `grammar:SPLIT`."""
        data = self.config.data
        return open_labelled(spec, data.source, data.target, folder)

    @property
    def vocab_sizes(self) -> tuple[int, ...]:
        """The numbers of labels (2 if the text decides), and of pieces."""
        if self.config.data.joint_vocabulary:
            raise UserError(
                "config.task.kind='classification' with config.data.joint_vocabulary="
                "True; labels and tokens of text are two vocabularies: set "
                "config.data.joint_vocabulary=False"
            )
        return len(self._given_labels()) or 2, self.config.data.vocab_sizes[-1]

    def vocabulary(
        self, corpora: Sequence[Corpus], inherited: Vocabulary | None = None
    ) -> Vocabulary:
        """Numbers the labels, and loads or trains the tokenizer of the sentences.

        `inherited` is of `train.init_from`; its source encodes the sentences.
        """
        labels = pack("labels", labels=self._labels(corpora))
        source = inherited and inherited.source
        source = source or make_source_tokenizer(corpora, self.data())
        return Vocabulary(labels, "the labels", source)

    def check_variation(self) -> None:
        """Checks the fields; the text of a sentence may vary, but not its label."""
        super().check_variation()
        data = self.config.data
        augment = data.augment
        variation = text_variation_of(augment, parse_symbols(data.symbols))
        if variation and (names := variation.changing_target):
            raise UserError(
                f"config.data.augment={augment!r}: {' and '.join(names)} may change "
                "targets, which are labels here; leave it out"
            )

    def _given_labels(self) -> list[str]:
        """Returns the labels that the config names."""
        return [x for x in map(str.strip, self.options.labels.split(",")) if x]

    def _labels(self, corpora: Sequence[Corpus]) -> list[str]:
        """Returns the labels in the order of their ids.

        Refuses unknown labels of the dev and test text (with
        `config.task.options.labels` also of the training text), labels without an
        example, and fewer than two labels.
        """
        counts: collections.Counter[str] = collections.Counter()
        for corpus in corpora:
            counts.update(label for _, label in corpus.pairs())
        labels = self._given_labels() or sorted(counts)
        for label in labels:
            if not counts[label]:
                raise UserError(
                    f"config.task.options.labels has {label!r}, of which the training "
                    "text has no example; add some, or leave the label out"
                    + did_you_mean(label, counts)
                )
        if self._given_labels() and len(labels) < 2:
            raise UserError(
                f"config.task.options.labels={self.options.labels!r} is one label; "
                "want at least two, separated by commas"
            )
        if len(labels) < 2:
            raise UserError(
                f"all of {', '.join(c.spec for c in corpora)} has the label "
                f"{labels[0]!r}; want examples of at least two labels to tell apart"
            )
        remedy = "Add it to config.task.options.labels, correct it, or remove the line"
        for corpus in corpora:
            check_labels(corpus.pairs(), labels, corpus.spec, remedy)
        data = self.config.data
        for specs in (data.dev, data.test):
            for corpus in open_specs(specs, self.open, data.dir):
                check_labels(corpus.pairs(), labels, corpus.spec)
        return labels

    def respond(
        self,
        translator: "Translator",
        lines: Sequence[str],
        search: Callable[..., list[Translation]],
        nbest: int = 1,
        first_line: int = 1,
    ) -> list[Translation]:
        """Finds the most probable labels of lines; scores are their probabilities."""
        predictions = translator.classify(lines, first_line=first_line)
        return [
            Translation(line, prediction.ranked()[:nbest])
            for line, prediction in zip(lines, predictions, strict=True)
        ]

    def answers(
        self, translator: "Translator", pairs: Sequence[Pair], warn: bool = True
    ) -> list[str]:
        """Computes the label of each sentence, and the probabilities of all labels."""
        vocabulary = translator.vocabulary
        labels = [vocabulary.piece(i) for i in range(len(vocabulary))]
        check_labels(pairs, labels, "the test set")
        predictions = translator.classify([text for text, _ in pairs], warn=warn)
        return [
            classification.answer_line(x.label, x.probabilities) for x in predictions
        ]

    def compare(
        self,
        answers: Sequence[str],
        baseline: Sequence[str],
        pairs: Sequence[Pair],
        corpus: Corpus,
    ) -> dict[str, dict]:
        """Compares with another system; by its labels alone if it has no more."""
        _, labels = classification.probabilities_of(answers)
        # A file of something else, such as sentences, would only be wrong everywhere.
        baseline_pairs = [("", label) for label in classification.labels_of(baseline)]
        remedy = (
            "Want the other system's label of each sentence, as the model writes it"
        )
        check_labels(baseline_pairs, labels, "--baseline", remedy)
        # Not the labels alone.
        has_probabilities = all("\t" in line for line in baseline)
        measures = self.measures if has_probabilities else classification.LABEL_MEASURES
        return compared(measures, answers, baseline, pairs)


def check_labels(
    pairs: Iterable[Pair],
    labels: Collection[str],
    spec: str,
    remedy: str = "The training text has no example of it: correct it, or remove the "
    "line",
) -> None:
    """Raises UserError at the first label that is not one of `labels`."""
    for number, (_, label) in enumerate(pairs, 1):
        if label not in labels:
            raise UserError(
                f"{spec}, line {number:,}: unknown label {label!r}"
                f"{did_you_mean(label, labels)}. {remedy}"
            )


def open_labelled(spec: str, source: str, target: str, folder: str = "") -> Corpus:
    """Opens labeled text at one spec; sentences of the grammar are in `source`.

    Raises UserError if the grammar has no such split, or the spec holds no labels.
    """
    if (scheme := scheme_of(spec)) == "grammar":
        return derived(
            open_corpus(spec, source, target, folder),
            f"last marks {MARKS}",
            lambda pairs: ((line[:-1], MARKS[line[-1]]) for line, _ in pairs),
            source="text",
            target="label",
        )
    if scheme:
        raise UserError(
            f"{spec} holds pairs of sentences and no labels; want the prefix of a "
            "file PREFIX.tsv, or grammar:train"
        )
    return labelled_file(in_folder(spec, folder))


def labelled_file(prefix: Path) -> Corpus:
    """A file with a sentence, a tab and a label in each line.

    Reading it raises UserError if the file is missing, damaged, empty or not UTF-8, or
    a line is not a sentence, a tab and a label.
    """

    def pairs() -> Iterator[Pair]:
        file = _file(prefix)
        want = f"{file} is empty; want a sentence, a tab and a label in each line"
        for number, line in enumerate(not_empty(read_lines(file), want), 1):
            yield _parsed(line, f"{file}, line {number:,}", number == 1)

    return Corpus(
        str(prefix),
        prefix.name,
        "text",
        "label",
        pairs,
        lambda: named_hash("labelled", file_hash(_file(prefix))),
    )


def _file(prefix: Path) -> Path:
    """The file, plain or gzipped; raises UserError if it is missing."""
    if file := find_file(prefix, "tsv"):
        return file
    name = prefix.name.removesuffix(".gz").removesuffix(".tsv")
    tables = prefix.parent.glob("*.tsv*")
    names = sorted({f.name.removesuffix(".gz").removesuffix(".tsv") for f in tables})
    hint = f"; that folder has {', '.join(names[:6])}" if names else ""
    if name in names:
        hint = f"; write {name!r}, without the ending"
    raise UserError(
        f"{prefix}.tsv does not exist, nor does {prefix.name}.tsv.gz; want a file with "
        "a sentence, a tab and a label in each line. Its prefix names it: 'reviews' "
        f"stands for reviews.tsv{hint}"
    )


def _parsed(line: str, position: str, heading_possible: bool) -> Pair:
    """Splits a line at its tab; raises UserError if it is not text, tab, label."""
    tabs = line.count("\t")
    if tabs != 1:
        fix = "add the label after a tab"
        if not line.strip():
            fix = "remove the empty line"
        elif tabs:
            fix = "neither contains a tab: replace the others by spaces"
        raise UserError(
            f"{position}: {tabs or 'no'} tab{'s' * (tabs != 1)} in {line[:60]!r}; want "
            f"one between the sentence and its label; {fix}"
        )
    text, label = line.split("\t")
    label = label.strip()  # "1 " and "1" are one class
    if not label:
        raise UserError(
            f"{position}: there is no label after the tab in {line[:60]!r}; write one, "
            "or remove the line"
        )
    if heading_possible and label.lower() == "label":
        raise UserError(f"{position}: {line!r} is a heading, not an example; remove it")
    return text, label
