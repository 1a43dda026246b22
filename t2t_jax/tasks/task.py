"""What a task is: how text becomes examples, and how answers are scored.

An example is a pair (source, target) of lines. A task is a subclass of `Task` and a
line in `tasks/table.py`; docs/your-task.md adds one. The defaults are those of text to
text: two aligned files, an encoder-decoder, beam search.
"""

import dataclasses
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar

from t2t_jax.config import Config, DataConfig, SearchOptions
from t2t_jax.data.corpus import (
    TABLE_NAME,
    Corpus,
    Pair,
    check_files,
    distinct,
    heaviest_first,
    open_corpus,
    open_specs,
    symbols_of,
)
from t2t_jax.data.filling import NO_ARRAYS, TokenArrays
from t2t_jax.data.pairs import Examples
from t2t_jax.data.tokenizers.training import make_tokenizer
from t2t_jax.data.tokenizers.vocabulary import Vocabulary, parse_symbols
from t2t_jax.decoding.search_options import (
    PreservingOptions,
    SamplingOptions,
    option_names,
)
from t2t_jax.io.errors import UserError
from t2t_jax.metrics import measures
from t2t_jax.metrics.likelihoods import perplexity
from t2t_jax.metrics.measures import Measure
from t2t_jax.sections import at_address

if TYPE_CHECKING:
    from t2t_jax.decoding.results import Translation
    from t2t_jax.decoding.translator import Translator

# Options of `translate` that are about a search or what it finds.
OF_SEARCH = (
    *option_names(SearchOptions),
    *("prefix", "must", "must_not", "choose", "alignments", "sample"),
    *option_names(SamplingOptions),
    *("confidence", "min_confidence"),
    *option_names(PreservingOptions),
)


class Task(Examples):
    """A task of a config: `config.task`.

    How text becomes examples is that of `Examples` (data/pairs.py), unless overridden.

    Attributes:
      Options: a frozen dataclass of hyperparameters, `config.task.options`.
      predicts: what the outputs of its model are about: "target" (the next token of
        the target), "source" (tokens of the source, in place) or "label" (one label
        for each sentence). `Architecture.predicts` of the model must be the same.
      has_source: False for a language model; then the source of a pair is "".
      symbols: strings that the tokenizer keeps as one token.
      drops_uneven: whether `config.data.max_ratio` applies: only if both sides say the
        same.
      varies: the fields of `config.data` that make its training text vary from epoch
        to epoch, "augment" and "subword_dropout", as far as they apply.
      unused: options of `translate` that mean nothing for this task: it refuses them.
      measures: the scores of a set by name.
      chosen_by: the score that chooses checkpoints ("best", patience); by default the
        first of `measures`.
      printed: scores -> descriptions for people; by default those of `measures`.
    """

    Options: ClassVar[type | None] = None
    predicts: ClassVar[str] = "target"
    has_source: ClassVar[bool] = True
    symbols: ClassVar[tuple[str, ...]] = ()
    drops_uneven: ClassVar[bool] = False
    varies: ClassVar[tuple[str, ...]] = ()
    unused: ClassVar[tuple[str, ...]] = ()
    measures: ClassVar[dict[str, Measure]] = {}
    chosen_by: str = ""
    printed: ClassVar[dict[str, str]] = {}

    def __init__(self, config: Config):
        self.config = config
        self.options = config.task.own_options(type(self))
        self.chosen_by = self.chosen_by or next(iter(self.measures), "")
        described = {name: m.description for name, m in self.measures.items()}
        self.printed = self.printed or described

    @property
    def higher_is_better(self) -> bool:
        """True if a higher `chosen_by` is better."""
        measure = self.measures.get(self.chosen_by)
        return measure is None or measure.higher_is_better

    @property
    def searches(self) -> bool:
        """True if the answers to the examples of a set are found by a search."""
        return self.predicts == "target" and self.has_source

    @property
    def predicted_share(self) -> float:
        """The share of the tokens at the places of outputs that are predicted."""
        return 1.0

    # ------------------------------------------------------ text becomes examples

    def data(self) -> DataConfig:
        """Returns `config.data` as this task uses it, to prepare the training text."""
        data = self.config.data
        named = [s for s in map(str.strip, data.symbols.split(",")) if s]
        symbols = dict.fromkeys([*named, *self.symbols])
        return dataclasses.replace(
            data,
            symbols=",".join(symbols),
            max_ratio=data.max_ratio if self.drops_uneven else 0.0,
        )

    def open(self, spec: str, folder: str = "") -> Corpus:
        """Opens the corpus at a spec (see `data/corpus.py`).

        Its fingerprint must differ from that of another task's examples of the same
        text. Its `target` is the ending of the file of answers.

        Raises:
          UserError: it does not exist, or is not what the task needs.
        """
        data = self.config.data
        return open_corpus(spec, data.source, data.target, folder, data)

    @property
    def vocab_sizes(self) -> tuple[int, ...]:
        """The numbers of tokens of new tokenizers, as `model.build` takes them.

        Where they follow from the text, any number: it is for checks before the text is
        read.
        """
        return self.config.data.vocab_sizes

    def vocabulary(
        self, corpora: Sequence[Corpus], inherited: Vocabulary | None = None
    ) -> Vocabulary:
        """Loads or trains the tokenizer of the training text.

        Args:
          inherited: the tokenizer of `train.init_from`, for the text; None if there is
            none, or if its embeddings are not taken over.
        """
        if inherited:
            remedy = "start from a run that was trained with it"
            inherited.check_symbols(self.symbols, remedy)
            return inherited
        return make_tokenizer(corpora, self.data(), self.sides)

    def further(self, pairs, corpora, vocabulary) -> TokenArrays:
        """Returns the arrays of a training text that the loss needs, if any."""
        make = self.config.train.variant("loss").further
        if isinstance(make, str):
            make = at_address(make)
        return make(self.config, pairs, corpora, vocabulary) if make else NO_ARRAYS

    def check_variation(self) -> None:
        """Checks the fields that make the training text vary from epoch to epoch.

        Raises:
          UserError: one does not apply to this task, or is wrong by itself.
        """
        data = self.config.data
        for name, unset in (("augment", ""), ("subword_dropout", 0.0)):
            if (value := getattr(data, name)) != unset and name not in self.varies:
                raise UserError(
                    f"config.data.{name}={value!r} does not apply to config.task.kind="
                    f"{self.config.task.kind!r}; leave it at {unset!r}"
                )
        if data.augment:  # refuses unknown names, and symbols that are not tokens
            check = at_address("extensions.data.variation.text_variation_of")
            check(data.augment, parse_symbols(data.symbols))

    # ------------------------------------------------------- answers are scored

    def of(self, corpus: Corpus) -> "Task":
        """Returns the task that scores a corpus: this one, unless it is a mixture."""
        return self

    def chosen(
        self, subtask: str, translator: "Translator"
    ) -> tuple["Task", "Translator"]:
        """Returns one task of a mixture, and the translator that answers its lines.

        Raises:
          UserError: the model has no such subtask, or one task alone.
        """
        raise UserError(
            f"--task={subtask} asks a model of several tasks for one of them; this one "
            f"has config.task.kind={self.config.task.kind!r} alone: leave --task out"
        )

    def check_sources(self, lines: Sequence[str], first_line: int = 1) -> None:
        """Checks lines that the model shall answer; all are good to most tasks.

        Raises:
          UserError: it cannot; the message has the line's number from `first_line`.
        """

    def respond(
        self,
        translator: "Translator",
        lines: Sequence[str],
        search: Callable[..., "list[Translation]"],
        nbest: int = 1,
        first_line: int = 1,
    ) -> "list[Translation]":
        """Answers lines of `translate`: here with what the search finds.

        Args:
          search: (translator, lines, first_line=...) -> translations, by beam search or
            sampling with the user's options.
          nbest: the number of answers to each line, for tasks that do not search.
        """
        self.check_sources(lines, first_line)
        return search(translator, lines, first_line=first_line)

    def examples(self, corpus: Corpus) -> list[Pair]:
        """Returns the examples of a set as they are scored.

        A mixture leaves out what it adds to the sources of its training text.
        """
        return list(corpus.pairs())

    def score_options(self, corpus: Corpus) -> dict:
        """Returns what scores of a set depend on, other than the config, by name.

        Scores are stored with it, and computed again when it changes.
        """
        return {}

    def answers(
        self, translator: "Translator", pairs: Sequence[Pair], warn: bool = True
    ) -> list[str]:
        """Computes the model's answer to each example, a line; scores follow from it.

        All processes call it, with the same pairs. `warn` is as for `Translator`.
        """
        translations = translator.translate([source for source, _ in pairs], warn=warn)
        return [str(translation) for translation in translations]

    def extra_scores(self, translator: "Translator", pairs: Sequence[Pair]) -> dict:
        """Computes scores that do not follow from the answers; in all processes.

        By default, if answers are searched for, `perplexity`: per token of the target,
        EOS included.
        """
        if not self.searches:
            return {}
        scores = translator.score(pairs)
        # fsum: no rounding errors accumulate over thousands of sentences.
        nll = -math.fsum(score.log_prob for score in scores)
        return {"perplexity": perplexity(nll / sum(len(s.pieces) for s in scores))}

    def scores(
        self, answers: Sequence[str], pairs: Sequence[Pair], corpus: Corpus
    ) -> dict:
        """Computes all scores of a set: `NAME` and `NAME_interval` of each measure."""
        scores = {}
        for name, measure in self.measures.items():
            statistics_nk = measure.statistics(answers, pairs)
            scores[name] = measures.measured(measure, statistics_nk)
            scores[f"{name}_interval"] = measures.interval(measure, statistics_nk)
        return scores

    def quick_scores(
        self, answers: Sequence[str], pairs: Sequence[Pair]
    ) -> dict[str, float]:
        """Computes the scores that are logged during training."""
        return {
            name: measures.measured(measure, measure.statistics(answers, pairs))
            for name, measure in self.measures.items()
        }

    def dev_sets(
        self, corpora: Sequence[Corpus], most: int
    ) -> dict[str, tuple["Task", list[Pair]]]:
        """Chooses what is answered and scored during training.

        Returns:
          By name, a task and its examples: here the first `most` of all corpora.
        """
        pairs = (pair for corpus in corpora for pair in self.examples(corpus))
        return {"": (self, list(itertools.islice(pairs, most)))}

    def joined_scores(self, scores: dict[str, dict[str, float]]) -> dict[str, float]:
        """Joins the scores of `dev_sets`, of which there is one unless overridden."""
        (joined,) = scores.values()
        return joined

    def example(self, answer: str, pair: Pair) -> list[str]:
        """Formats an answer next to its example, for a person to watch training."""
        source, target = pair
        rows = {"source": source, "answer": answer, "reference": target}
        return [f"{name:12} {line}" for name, line in rows.items() if line]

    def measures_of(self, corpus: Corpus) -> Mapping[str, Measure]:
        """Returns the scores of a set by which systems are compared, by name."""
        return self.measures

    def compare(
        self,
        answers: Sequence[str],
        baseline: Sequence[str],
        pairs: Sequence[Pair],
        corpus: Corpus,
    ) -> dict[str, dict]:
        """Compares with another system's answers to the same examples, by measure.

        Returns:
          For each score of `printed_of` with a measure, what `measures.paired` does.
        """
        by_name, printed = self.measures_of(corpus), self.printed_of(corpus)
        printed = {name: by_name[name] for name in printed if name in by_name}
        return measures.compared(printed, answers, baseline, pairs)

    def significance(
        self,
        score: str,
        answers: Sequence[str],
        baseline: Sequence[str],
        pairs: Sequence[Pair],
        corpus: Corpus,
    ) -> dict[str, float]:
        """Tests by `measures.significance` whether two systems differ in one score."""
        measure = self.measures_of(corpus)[score]
        return measures.significance(measure, answers, baseline, pairs)

    def printed_of(self, corpus: Corpus) -> dict[str, str]:
        """Returns those of `printed` that mean something for a set."""
        return self.printed

    def row(self, scores: dict, corpus: Corpus) -> str:
        """Formats a set's scores as a row for people, after its name and size."""
        return "   ".join(
            f"{name} {scores[name]:.{measure.digits}f}"
            for name, measure in self.measures.items()
        )

    def compare_with(self, corpus: Corpus) -> str:
        """Says with which results the scores of a set compare, in one line.

        "" leaves it to `evaluation/provenance.py`, which knows translation.
        """
        if "grammar" in corpus.spec.split(":")[:-1]:
            return (
                "synthetic text of the built-in grammar, without published numbers; "
                "compare only with runs on the same split and version"
            )
        return (
            "no published number is known for this text; compare only with systems "
            f"scored on the same examples of {corpus.spec}"
        )


def open_text(task: Task) -> tuple[list[Corpus], list[Corpus], list[Corpus]]:
    """Opens the training, dev and test sets of a task's config.

    Raises:
      UserError: a set that does not exist, or that cannot be what it is named for.
    """
    data = task.config.data
    if not data.train:
        raise UserError(
            "config.data.train is empty; name the training text: --config.data.train="
            "PREFIX for the files PREFIX.en and PREFIX.de, or grammar:train. The "
            "corpora of other tasks are in docs/tasks.md"
        )
    written = open_specs(data.train, task.open, data.dir, weights=True)
    training = heaviest_first(written)
    _check_symbols(task, training)
    dev, tests = (
        open_specs(specs, task.open, data.dir) for specs in (data.dev, data.test)
    )
    check_files(corpora := [*training, *dev, *tests])
    off = {"columns": "", "score_column": "", "min_score": 0}
    flags = [f"--config.data.{n}={v}" for n, v in off.items() if getattr(data, n) != v]
    # One-sided text has whole lines of any file, and no source.
    if flags and not any(c.source and TABLE_NAME.search(c.spec) for c in corpora):
        raise UserError(
            f"no corpus is a .tsv or .jsonl file of pairs; want {' '.join(flags)}"
        )
    return training, dev, distinct(tests)


def _check_symbols(task: Task, training: list[Corpus]) -> None:
    """Refuses pairs made by machine whose tag is not a symbol of the tokenizer."""
    symbols = parse_symbols(task.data().symbols)
    for corpus in training:
        tags = symbols_of(corpus.prefix) if corpus.prefix else ()
        if lacking := [s for s in tags if s not in symbols]:
            suggestion = ",".join([*symbols, *lacking])
            raise UserError(
                f"{corpus.prefix}.json says that lines have the symbol "
                f"{' and '.join(lacking)}, and config.data.symbols="
                f"{','.join(symbols)!r} does not: the tokenizer would split it into "
                f"letters; want --config.data.symbols='{suggestion}'"
            )
