"""Lines that a teacher translates for a student, and how it does.

Kim and Rush 2016, section 3.2: the source lines of a parallel text with the teacher's
best translations, found by beam search. Section 3.3, "sequence-level interpolation":
of its N best, the one nearest to the reference.
"""

import dataclasses
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from t2t_jax import __version__
from t2t_jax.config import DecodeConfig
from t2t_jax.data.corpus import Corpus, Pair, open_corpus, open_places
from t2t_jax.data.text_files import file_hash, find_file, read_lines
from t2t_jax.decoding.results import Translation
from t2t_jax.io.errors import UserError, did_you_mean
from t2t_jax.metrics.text_measures import UTILITIES

PROBABILITY = "probability"
CRITERIA = (PROBABILITY, *UTILITIES)


@dataclasses.dataclass(frozen=True)
class Recipe:
    """Options of a teacher's text: everything but the teacher and the lines.

    Attributes:
      nbest: the number of translations that one is chosen of.
      by: `probability`, the teacher's own score; or the metric of sentences by which
        the nearest to the reference is chosen. "" is `chrf` if there are several.
      search: some of `SearchOptions`; the others are the teacher's, but with a beam of
        at least `nbest`.

    Raises:
      UserError: a choice that does not exist, or that chooses from one.
    """

    nbest: int = 1
    by: str = ""
    search: Mapping = dataclasses.field(default_factory=dict)

    def __post_init__(self):
        if self.nbest < 1:
            raise UserError(f"--nbest={self.nbest}; want at least 1")
        if not self.by:
            by = PROBABILITY if self.nbest == 1 else "chrf"
            object.__setattr__(self, "by", by)
        if self.by not in CRITERIA:
            raise UserError(f"--by={self.by!r}{did_you_mean(self.by, CRITERIA)}")
        if self.by != PROBABILITY and self.nbest == 1:
            raise UserError(
                f"--by={self.by} chooses among several translations; add --nbest=8 or "
                "so, or leave --by out"
            )

    def options(self, decode: DecodeConfig) -> dict:
        """The options of the search; those of `decode`, the teacher's, if not given."""
        given = {name: x for name, x in self.search.items() if x is not None}
        beam = max(decode.beam, self.nbest)
        options = decode.override(**{"beam": beam} | given)
        nbest = self.nbest if self.by != PROBABILITY else 1
        return {"nbest": nbest, **options.recorded()}

    def chooser(self, language: str) -> Callable[[Translation, str], str]:
        """Returns a function (translation, reference) -> the text that is kept.

        It is empty if the line was cut, or no translation ended within its longest
        length: half a translation would teach to leave things out. Training drops such
        pairs.
        """
        nearness = UTILITIES.get(self.by)  # None: by probability

        def choose(translation: Translation, reference: str) -> str:
            texts = [h.text for h in translation.hypotheses if h.ended]
            if translation.cut or not texts:
                return ""
            if not nearness:
                return texts[0]
            # Of equally near ones `argmax` takes the first, which is the most probable;
            # the last decimals are rounding, which must not decide.
            near_h1 = nearness(texts, [reference], language).round(9)
            return texts[near_h1.argmax()]

        return choose


def _source_lines(file: Path, corpus: Corpus) -> Corpus:
    """A corpus of which only the source file exists; its references are empty."""
    return dataclasses.replace(
        corpus,
        pairs=lambda: ((line, "") for line in read_lines(file)),
        fingerprint=lambda: file_hash(file),
    )


def open_input(places: str, source: str, target: str, references: bool) -> list[Corpus]:
    """Opens the text whose source lines a teacher translates.

    Args:
      places: as `config.data.train` without weights, relative to the current folder.
      source, target: the languages of the teacher.
      references: True if both sides are needed; else the source file is enough.

    Raises:
      UserError: a place cannot be opened, or has no lines of the source.
    """

    def open_one(place: str, folder: str) -> Corpus:
        corpus = open_corpus(place, source, target, folder)
        if not (prefix := corpus.prefix):
            return corpus
        if not (file := find_file(prefix, source)):
            there = sorted(f.name for f in prefix.parent.glob(f"{prefix.name}.*"))
            raise UserError(
                f"--input={place} has no {prefix.name}.{source} (or .gz), and the "
                f"teacher translates {source} -> {target}; there "
                + (f"are {', '.join(there[:6])}" if there else "is no such file")
            )
        alone = not references and not find_file(prefix, target)
        return _source_lines(file, corpus) if alone else corpus

    corpora = open_places(places, open_one)
    if not corpora:
        raise UserError(f"--input={places!r} names no text; want a PREFIX")
    return corpora


class Lines:
    """The lines of a text, or of the part of it that one machine of several does.

    A job reads them as `jobs.InputFile`: a line is a source and its reference, with a
    line feed between them, which no line contains.

    Attributes:
      first: the number of pairs before the part.
      count: the number of its pairs.
    """

    def __init__(self, corpora: Sequence[Corpus], shard: tuple[int, int] = (1, 1)):
        self._corpora = corpora
        # Reading it all once also reports invalid lines before any work is done.
        self.total = sum(1 for _ in self._pairs())
        number, count = shard
        self.first = self.total * (number - 1) // count
        self.count = self.total * number // count - self.first
        if not self.count:
            raise UserError(
                f"part {number} of {count} of {self.total:,} pairs is empty; want at "
                "most as many parts as pairs"
            )

    def _pairs(self) -> Iterator[Pair]:
        return itertools.chain.from_iterable(c.pairs() for c in self._corpora)

    def lines(self) -> Iterator[str]:
        """Yields the lines of the part."""
        part = itertools.islice(self._pairs(), self.first, self.first + self.count)
        for source, reference in part:
            yield f"{source}\n{reference}"


def provenance(
    teacher: Mapping,
    decode: DecodeConfig,
    recipe: Recipe,
    corpora: Sequence[Corpus],
    pairs: int,
) -> dict:
    """Returns everything that a teacher's text depends on.

    Args:
      teacher: `Translator.provenance()`.
      decode: the teacher's.
      pairs: the number of pairs of all corpora.
    """
    return {
        "teacher": dict(teacher),
        "search": recipe.options(decode),
        "by": recipe.by,
        "input": [corpus.fingerprint() for corpus in corpora],
        "pairs": pairs,
        "t2t_jax": __version__,
    }
