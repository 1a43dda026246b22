"""What a search is asked for, its options, and the algorithms that they build.

The options of beam search are `SearchOptions` of config.py; those of sampling, and of
what a translation preserves, are below. Flags, checks, help and keyword arguments
follow from their fields.
"""

import dataclasses
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from t2t_jax.config import SearchOptions
from t2t_jax.data.tokenizers.vocabulary import Vocabulary
from t2t_jax.io.errors import UserError
from t2t_jax.sections import field

if TYPE_CHECKING:  # they import JAX, which flags and checks do without
    from t2t_jax.search.beam import BeamSearch
    from t2t_jax.search.sampling import Sampling


@dataclasses.dataclass(frozen=True)
class SamplingOptions:
    """Options of sampling, each declared here, once: `search/sampling.py`."""

    temperature: float = field(
        1.0,
        above=0,
        help="Sampling: below 1 favors more probable translations.",
        hint="towards 0 it is greedy search, a beam of 1",
    )
    top_k: int = field(
        0, low=0, help="Sampling: only the K most probable tokens; 0 means all."
    )
    top_p: float = field(
        1.0,
        above=0,
        high=1,
        help="Sampling: only the most probable tokens, up to this probability.",
    )
    epsilon: float = field(
        0.0,
        low=0,
        below=1,
        help="Sampling: no tokens of a smaller probability, but for the most probable "
        "one.",
    )
    seed: int = field(
        0, low=0, below=1 << 32, help="Sampling: seed of the random numbers."
    )


@dataclasses.dataclass(frozen=True)
class PreservingOptions:
    """What a translation preserves, by default nothing.

    See `extensions/decoding/preserving.py`.
    """

    format: str = field(
        "",
        choices=("", "whole", "srt", "po"),
        help="The input is one text, and not one in each line: whole, a page or a text "
        "with paragraphs; srt, subtitles of SubRip; po, messages of gettext.",
    )
    markup: str = field(
        "", choices=("", "html", "xml"), help="Keep the markup of texts: html or xml."
    )
    ignored: str = field(
        "", help="With markup: elements that stay as they are, separated by commas."
    )
    split: str = field(
        "",
        choices=("", "sentences"),
        help="sentences: translate each sentence of a line by itself, and parts of "
        "those that are too long for the model.",
    )
    placeholders: bool = field(
        False, help="Keep placeholders such as %1$s, {name} and URLs."
    )
    # A file, or `extensions.text.terms.Terms`.
    terms: str = field("", help="File of terms, SOURCE<TAB>TARGET in each line.")
    term_mode: str = field(
        "",
        choices=("", "soft", "hard", "check"),
        help="soft: show the terms to the model, which inflects them; hard: demand "
        "them as they are; check: only count them. Default: soft if the model has "
        "learned it (config.data.augment=terms), else hard.",
    )

    def __post_init__(self):
        if self.term_mode and not self.terms:
            raise UserError(f"term_mode={self.term_mode!r} needs terms, a file")
        if self.ignored and not self.markup:
            raise UserError(f"ignored={self.ignored!r} needs markup=html or xml")

    def __bool__(self) -> bool:
        return self != PreservingOptions()


@dataclasses.dataclass(frozen=True)
class SearchRequest:
    """What one line asks of a search, or all lines of a call alike.

    Attributes:
      nbest: hypotheses to return, at most the beam.
      search: fields of `SearchOptions` by name; the config has the others.
      prefix, must, must_not: as for `Translator.translate`; a prefix of "" is none.
      samples: hypotheses to draw at random instead of a search; 0: search.
      seed: of the samples.
      batch_size, first_line, warn: of a call, as for `Translator.translate`.
    """

    nbest: int = 1
    search: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    prefix: str | Sequence[str | None] | None = None
    must: str | Sequence = ()
    must_not: str | Sequence = ()
    samples: int = 0
    seed: int = 0
    batch_size: int | None = None
    first_line: int = 1
    warn: bool = True

    def for_lines(self, rows: Sequence[int]) -> "SearchRequest":
        """The request for some of the lines, by their numbers from 0."""
        changes = {}
        if not isinstance(self.prefix, str | None):
            changes["prefix"] = [self.prefix[row] for row in rows]
        for name in ("must", "must_not"):
            phrases = getattr(self, name)
            if any(not isinstance(entry, str) for entry in phrases):
                changes[name] = [phrases[row] for row in rows]
        return dataclasses.replace(self, **changes)


DEFAULTS = SearchRequest()
# Fields of `SearchOptions` that sampling has, too.
SHARED = "alpha", "penalty", "no_repeat_ngram", "repetition_penalty"


def option_names(kind: type) -> tuple[str, ...]:
    """Returns the names of the fields of a dataclass of options."""
    return tuple(option.name for option in dataclasses.fields(kind))


def takes(*kinds: type) -> Callable[[Callable], Callable]:
    """Returns a decorator for a function whose `**options` are fields of dataclasses.

    The function's signature, as `help` and notebooks show it, names each of them; None
    stands for the default.
    """

    def decorate(function: Callable) -> Callable:
        signature = inspect.signature(function)
        named = [p for p in signature.parameters.values() if p.kind != p.VAR_KEYWORD]
        named += [
            inspect.Parameter(
                option.name,
                inspect.Parameter.KEYWORD_ONLY,
                default=None,
                annotation=type(option.default) | None,
            )
            for kind in kinds
            for option in dataclasses.fields(kind)
        ]
        function.__signature__ = signature.replace(parameters=named)
        return function

    return decorate


def beam_search_algorithm(
    options: SearchOptions, vocabulary: Vocabulary, nbest: int = 1
) -> "BeamSearch":
    """Returns the beam search of these options, which have been checked."""
    if not 1 <= nbest <= options.beam:
        raise UserError(
            f"nbest={nbest} with beam={options.beam}; want 1 <= nbest <= beam: set "
            f"beam={max(nbest, 1)} or more, or a smaller nbest"
        )
    if options.beam > len(vocabulary):
        raise UserError(
            f"beam={options.beam}, but the vocabulary has {len(vocabulary):,} tokens, "
            "so a beam cannot be that wide after the first token; want a beam such as "
            f"4, and at most {len(vocabulary)}"
        )
    return unchecked_beam_search(options, nbest, **_special_tokens(vocabulary))


def unchecked_beam_search(
    options: SearchOptions, nbest: int, **special_tokens: Any
) -> "BeamSearch":
    """Returns the beam search of options that fit together."""
    from t2t_jax.search.beam import BeamSearch

    fields = _fields_of(BeamSearch, options, option_names(SearchOptions))
    return BeamSearch(nbest=nbest, **fields, **special_tokens)


def sampling_algorithm(
    options: SamplingOptions,
    search: SearchOptions,
    vocabulary: Vocabulary,
    samples: int = 1,
) -> "Sampling":
    """Returns the sampling of these options; `search` has the `SHARED` ones."""
    from t2t_jax.search.sampling import Sampling

    if samples < 1:
        raise UserError(f"samples={samples}; want at least 1")
    fields = _fields_of(Sampling, options, option_names(SamplingOptions))
    fields |= _fields_of(Sampling, search, SHARED) | _special_tokens(vocabulary)
    return Sampling(samples=samples, **fields)


def _fields_of(algorithm: type, options: Any, names: Iterable[str]) -> dict[str, Any]:
    """The options of these names that an algorithm has."""
    return {n: getattr(options, n) for n in {*names} & {*option_names(algorithm)}}


def _special_tokens(vocabulary: Vocabulary) -> dict[str, Any]:
    names = "bos", "eos", "pad", "never"
    return {name: getattr(vocabulary, name) for name in names}
