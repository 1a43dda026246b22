"""MEASURES: what rows of experiments may measure of what they have trained."""

import functools
import itertools
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from t2t_jax.costs.timing import median_seconds
from t2t_jax.data import prepare
from t2t_jax.data.corpus import Corpus
from t2t_jax.decoding.translator import Translator
from t2t_jax.evaluation.scores import scores_and_answers
from t2t_jax.io.errors import UserError, did_you_mean
from t2t_jax.metrics.likelihoods import perplexity
from t2t_jax.metrics.plain import corpus_scores
from t2t_jax.tools.experiment.results import Context

EDGES = (0.25, 0.5, 0.75, 1.0, 1.25, 1.5)


class Line(NamedTuple):
    """A translated line of a test set: plain text, and tokens with EOS."""

    output: str
    reference: str
    source_pieces: int
    output_pieces: int
    reference_pieces: int
    log_prob: float  # of the reference given the source


def by_length(
    context: Context,
    sets: Sequence[str] = (),
    longest: int = 0,
    edges: Sequence[float] = EDGES,
) -> dict[str, Any]:
    """Scores groups of test lines whose sources are equally long.

    Lengths are in tokens, relative to the longest source of the training text, as it is
    after cleaning (`config.data.max_length`). In training, positions count from the
    beginning of each sentence, packed or not; so the encoder has seen no position
    beyond that length. Translations are read from the workdir if they are there.

    Args:
      sets: names of test sets of the config, whose lines are taken together; all if
        empty.
      longest: lengths are relative to this one instead, to compare rows whose training
        texts differ; 0 for that of the training text.
      edges: between groups; a group includes its upper edge.

    Returns:
      `longest`, in tokens; `groups`, a list with the scores of each group that has
      lines, as `scores_of` returns them, and its edges `above` and `up_to` (None for
      the last one); `seen.NAME` and `beyond.NAME` of the same scores, for the lines up
      to the longest source of training and for those beyond.

    Raises:
      UserError: the row trains nothing; no such test set; a reference is longer than
        the search may write.
    """
    if context.config is None:
        raise UserError("the row trains no model; by_length needs a config to train")
    context.check_translates("by_length")
    corpora, language = _test_sets(context, sets), context.config.data.target
    translator = Translator.load(context.workdir)
    if not longest:  # The text comes from the cache, unless it was deleted since.
        train, data = context.corpora("train"), context.config.data
        pairs = prepare.prepared_pairs(train, translator.vocabulary, data)
        longest = int(pairs.source.lengths.max())  # EOS included
    workdir = context.workdir
    lines = [line for corpus in corpora for line in _lines(translator, corpus, workdir)]
    scored = [
        {"above": above, "up_to": up_to, **scores_of(group, language)}
        for above, up_to, group in groups_of(lines, longest, edges)
    ]
    totals = {
        f"{'seen' if up_to else 'beyond'}.{name}": value
        for _, up_to, group in groups_of(lines, longest, [1.0])
        for name, value in scores_of(group, language).items()
    }
    return {"longest": longest, "groups": scored, **totals}


def groups_of(
    lines: Sequence[Line], longest: int, edges: Sequence[float]
) -> list[tuple[float, float | None, list[Line]]]:
    """Divides lines by the length of their source, relative to `longest`.

    Returns:
      (above, up to, lines) of each group that has lines, from short to long; the last
      group has no upper edge.
    """
    groups = []
    for above, up_to in itertools.pairwise([0.0, *sorted(edges), math.inf]):
        if group := [x for x in lines if above < x.source_pieces / longest <= up_to]:
            groups.append((above, None if up_to == math.inf else up_to, group))
    return groups


def scores_of(lines: Sequence[Line], language: str) -> dict[str, float]:
    """Scores lines as if they were a test set.

    Returns:
      `lines`, their number; `bleu`, `chrf`; `perplexity` per token, EOS included;
      `ratio`, the tokens of all outputs by those of all references; `pieces`, the mean
      length of a source.
    """
    outputs, references = ([line[side] for line in lines] for side in (0, 1))
    plain = corpus_scores(outputs, references, language)
    pieces = sum(line.reference_pieces for line in lines)
    return {
        "lines": len(lines),
        "bleu": plain["bleu"],
        "chrf": plain["chrf"],
        "perplexity": perplexity(-math.fsum(line.log_prob for line in lines) / pieces),
        "ratio": sum(line.output_pieces for line in lines) / pieces,
        "pieces": sum(line.source_pieces for line in lines) / len(lines),
    }


def _test_sets(context: Context, sets: Sequence[str]) -> list[Corpus]:
    """The test sets of these names, or all."""
    named = {corpus.name: corpus for corpus in context.corpora("test")}
    for name in sets:
        if name not in named:
            hint = did_you_mean(name, named)
            raise UserError(f"by_length: config.data.test has no set {name!r}{hint}")
    return [named[name] for name in sets or named]


def _lines(translator: Translator, corpus: Corpus, workdir: Path) -> list[Line]:
    """All lines of a test set, with their translations and log-probabilities."""
    vocabulary, pairs = translator.vocabulary, list(corpus.pairs())
    sources, references = zip(*pairs, strict=True)
    source_pieces = [len(ids) + 1 for ids in vocabulary.source.encode(sources)]
    reference_pieces = [*map(len, vocabulary.encode(references, end=True))]
    check_room(source_pieces, reference_pieces, translator.config.decode.extra_length)
    _, outputs = scores_and_answers(translator, corpus, workdir)
    output_pieces = map(len, vocabulary.encode(outputs, end=True))
    log_probs = (score.log_prob for score in translator.score(pairs))
    columns = outputs, references, source_pieces, output_pieces, reference_pieces
    return [Line(*line) for line in zip(*columns, log_probs, strict=True)]


def check_room(
    source_pieces: Sequence[int], reference_pieces: Sequence[int], extra: int
) -> None:
    """Refuses references that are longer than the search may write."""
    needed = max(r - s for s, r in zip(source_pieces, reference_pieces, strict=True))
    if needed > extra:
        raise UserError(
            f"config.decode.extra_length={extra}, but a reference has {needed} tokens "
            "more than its source: the search could not write it, so lengths would not "
            f"compare; set config.decode.extra_length={needed} or more"
        )


def speed(context: Context, lines: int = 200, repeats: int = 3) -> dict[str, Any]:
    """Measures sentences translated in a second, by the config's beam and greedily.

    Args:
      lines: the number of lines, the first of the first test set.
      repeats: passes over them, of which the median counts; one more, before them,
        compiles.

    Returns:
      `sentences_per_second`, `greedy_sentences_per_second`, `lines` and `beam`.

    Raises:
      UserError: the config has no test set.
    """
    context.check_translates("speed")
    corpora = context.corpora("test")
    if not corpora:
        raise UserError(
            "speed is measured on the first test set, and config.data.test is empty; "
            "name one"
        )
    sources = [source for source, _ in itertools.islice(corpora[0].pairs(), lines)]
    translator = Translator.load(context.workdir)

    def rate(beam: int) -> float:
        translate = functools.partial(translator.translate, sources, beam=beam)
        return len(sources) / median_seconds(translate, repeats)

    beam = context.config.decode.beam
    return {
        "sentences_per_second": rate(beam),
        "greedy_sentences_per_second": rate(1),
        "lines": len(sources),
        "beam": beam,
    }


# (context, **arguments) -> what is stored as measures/NAME.json; the context is a
# `t2t_jax.tools.experiment.results.Context`.
MeasureFunction = Callable[..., dict[str, Any]]

# Add your measure here. Those of single experiments are in experiments/measures/, and
# are added when the experiment's file imports them.
MEASURES: dict[str, MeasureFunction] = {
    "by_length": by_length,
    "speed": speed,
}
