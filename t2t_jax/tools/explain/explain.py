"""Explains translations: the search traced, and each target read token by token."""

from collections.abc import Iterable, Sequence
from typing import Any

import jax

from t2t_jax import __version__
from t2t_jax.config import SearchOptions
from t2t_jax.data.tokenizers.vocabulary import Vocabulary, show_sizes
from t2t_jax.decoding.batch_decoding import to_text
from t2t_jax.decoding.batches import longest_output
from t2t_jax.decoding.constraints import Constraints
from t2t_jax.decoding.inputs import InputReader, Member, Source, check_lines
from t2t_jax.decoding.results import Hypothesis
from t2t_jax.decoding.search_options import SearchRequest, takes
from t2t_jax.decoding.translator import Translator
from t2t_jax.io.errors import UserError
from t2t_jax.io.messages import Progress
from t2t_jax.model.layers import compute_dtype
from t2t_jax.parallel import processes
from t2t_jax.search.algorithm import Hypotheses
from t2t_jax.search.beam import BeamSearch
from t2t_jax.tools.explain import MOST
from t2t_jax.tools.explain.beam_tree import build_tree, judge_reference
from t2t_jax.tools.explain.explanation import (
    ExplainedModel,
    ExplainedSentence,
    Explanation,
)
from t2t_jax.tools.explain.readings import Ids, read_of, read_targets
from t2t_jax.tools.explain.trace import Explained, trace_search
from t2t_jax.tools.explain.words import explained_words


@takes(SearchOptions)
def explain(
    translator: Translator,
    lines: str | Sequence[str],
    target: str | Sequence[str | None] | None = None,
    *,
    nbest: int = 1,
    prefix: str | Sequence[str | None] | None = None,
    must: str | Sequence = (),
    must_not: str | Sequence = (),
    alternatives: int = MOST,
    name: str = "model",
    warn: bool = True,
    **search: Any,
) -> Explanation:
    """Explains the translation of each line; a notebook shows it as a page.

    Holds the probability of each token and what else was probable, the beam tree with
    each hypothesis's cause of death, attention, alignment, the layers' predictions and
    attributions. The search is that of `Translator.translate`, bit for bit.

    Args:
      lines: a sentence, or several; for a model without a source, the beginning of each
        text.
      target: a translation to compare with, one for each line: where the search lost
        it, and why the model said something else.
      alternatives: the most tokens of a translation after which the page shows what the
        search would have said instead.
      name: of the model on the page.
      others: as for `Translator.translate`; the beam has one group.

    Raises:
      UserError: an option is out of its range, a line has no visible character, or the
        beam has several groups or avoids repetitions.
    """
    lines, targets = _lines_and_targets(lines, target)
    translator = translator.with_extra_length(search.get("extra_length"))
    options = translator.config.decode.override(**search)
    if options.groups > 1:
        raise UserError(
            f"config.decode.groups={options.groups}, but an explanation shows the tree "
            "of one plain beam; explain translator.with_options(groups=1)"
        )
    if options.no_repeat_ngram or options.repetition_penalty != 1:
        raise UserError(
            "an explanation is of the model's own probabilities; explain with "
            "no_repeat_ngram=0 and repetition_penalty=1, which do not change them"
        )
    beam_search = translator.beam_search(nbest, **search)
    request = SearchRequest(prefix=prefix, must=must, must_not=must_not, warn=warn)
    sources, constraints = translator.encode(lines, request)
    _check(sources, alternatives)
    reader = translator.reader(1, warn)
    references = _encoded(targets, reader)
    model = Explained(
        translator.members, translator.vocabulary, translator.phrases, beam_search
    )
    sentences = []
    with Progress("explaining", "sentences", total=len(lines)) as progress:
        for number, line_inputs in enumerate(
            zip(lines, sources, constraints, references, targets, strict=True), 1
        ):
            sentences.append(_sentence(model, number, *line_inputs, alternatives))
            if number < len(lines):  # no progress is reported for the rest
                progress.add(1)
    data, vocabulary = translator.config.data, translator.vocabulary
    explained = ExplainedModel(
        name=name,
        kind=translator.config.model.kind,
        direction=(data.source, data.target),
        passport=passport(model.members, vocabulary, beam_search.algorithm),
        piece_of=tuple(map(vocabulary.piece, range(len(vocabulary)))),
        sentences=tuple(sentences),
    )
    return Explanation((explained,))


def _lines_and_targets(
    lines: str | Sequence[str], target: str | Sequence[str | None] | None
) -> tuple[list[str], list[str | None]]:
    """Returns a list of lines, and a target or None for each."""
    lines = _as_list(lines, "lines")
    targets = [None] * len(lines) if target is None else _as_list(target, "target")
    if not lines:
        raise UserError("there is no line to explain; want at least one sentence")
    if len(lines) != len(targets):
        raise UserError(
            f"got {len(lines):,} lines and {len(targets):,} targets; want one target "
            "for each line (None or an empty one for a line without)"
        )
    return lines, [text if text and str(text).strip() else None for text in targets]


def _as_list(value: str | Sequence[str], name: str) -> list:
    if isinstance(value, str):
        return [value]
    if not isinstance(value, Iterable):
        raise UserError(f"{name}={value!r}; want a sentence, or a list of them")
    return [*value]


def _sentence(
    model: Explained,
    number: int,
    line: str,
    source: Source,
    constraints: Constraints,
    reference: Ids | None,
    target: str | None,
    alternatives: int,
) -> ExplainedSentence:
    """Explains one line."""
    vocabulary = model.vocabulary
    tree = build_tree(
        trace_search(model, source.ids, constraints),
        model.search.algorithm,
        vocabulary,
        longest_output(len(source.ids), model.decode),
        bool(constraints.must),
        reference,
    )
    batch_of_one = Hypotheses(*(leaf[None] for leaf in tree.result))
    translation = next(to_text(batch_of_one, vocabulary))[0]
    if not translation.tokens:
        raise UserError(
            f"line {number}: {translation.failure}; change prefix, must or must_not, "
            "or the checkpoint"
        )
    targets = {"translation": translation}
    if reference is not None:
        ended, unknown = reference[-1] == vocabulary.eos, float("nan")
        tokens = tuple(reference)
        targets["target"] = Hypothesis(target, unknown, unknown, ended, tokens)
    source_vocabulary, read = vocabulary.source, read_of(model, source)
    # Tokens that were cut, or are not read, have no words.
    uncut_line = line if len(read) == len(source.ids) and not source.cut else None
    words = explained_words(source_vocabulary, read, uncut_line)
    readings = read_targets(model, source, words, constraints, targets, alternatives)
    score = None
    if reference is not None:
        log_prob = readings[-1].hypothesis.log_prob
        score = judge_reference(tree, log_prob, translation.score, vocabulary)
    return ExplainedSentence(
        source=line,
        pieces=tuple(map(source_vocabulary.piece, read)),
        words=words,
        cut=source.cut,
        tree=tree,
        readings=readings,
        reference_score=score,
    )


def _encoded(targets: Sequence[str | None], reader: InputReader) -> list[Ids | None]:
    """The tokens of each target, with EOS."""
    check_lines([target for target in targets if target is not None])
    encoded = reader.targets([target or "" for target in targets])
    return [t and ids for t, ids in zip(targets, encoded, strict=True)]


def _check(sources: Sequence[Source], alternatives: int) -> None:
    if processes.distributed():
        raise UserError("explanations are computed by one process; start a single one")
    if alternatives < 0:
        raise UserError(f"alternatives={alternatives}; want 0 (none) or more")
    empty = [str(number) for number, source in enumerate(sources, 1) if not source.ids]
    if empty:
        raise UserError(
            f"nothing to explain in line {', '.join(empty)}: it has no visible "
            "character; leave it out"
        )


# ----------------------------------------------------------------------------- passport

Rows = tuple[tuple[str, str], ...]


def passport(
    members: Sequence[Member], vocabulary: Vocabulary, algorithm: BeamSearch
) -> Rows:
    """Returns (name, value) rows: of each member, of the search, of the program."""
    rows, device = [], jax.devices()[0].device_kind
    for number, member in enumerate(members, 1):
        prefix = f"model {number}: " if len(members) > 1 else ""
        rows += [(prefix + name, value) for name, value in _member(member)]
    search = (
        f"beam {algorithm.beam}, {algorithm.nbest} best, alpha {algorithm.alpha:g}, "
        f"penalty {algorithm.penalty}, stop {algorithm.stop}"
    )
    rows += [
        ("vocabulary", f"{show_sizes(vocabulary.sizes)} tokens"),
        ("search", search),
        ("computed by", f"t2t_jax {__version__}, jax {jax.__version__} on {device}"),
    ]
    return tuple(rows)


def _member(member: Member) -> list[tuple[str, str]]:
    model, data = member.config.model, member.config.data
    steps = ", ".join(f"{step:,}" for step in member.steps) or "none"
    average = "average of steps " if len(member.steps) > 1 else "step "
    return [
        ("model", f"{model.kind}, {member.model.count():,} parameters"),
        ("direction", f"{data.source} to {data.target}"),
        ("trained on", str(data.train)),
        ("checkpoint", average + steps),
        ("SHA-256 of the parameters", member.parameters_sha256()),
        ("type of activations", compute_dtype(model).name),
    ]
