"""Explains translations: the search traced, and each target read piece by piece."""

from collections.abc import Sequence

from t2t_jax.decoding.batch_decoding import check_room, to_text
from t2t_jax.decoding.constraints import Constraints
from t2t_jax.decoding.explaining.beam_tree import (
    BeamTree,
    build_tree,
    judge_reference,
)
from t2t_jax.decoding.explaining.explanation import (
    ExplainedModel,
    ExplainedSentence,
    Explanation,
    Reading,
)
from t2t_jax.decoding.explaining.passport import passport
from t2t_jax.decoding.explaining.readings import (
    Explained,
    Ids,
    Target,
    read_targets,
)
from t2t_jax.decoding.explaining.trace import trace_search
from t2t_jax.decoding.explaining.words import words_of
from t2t_jax.decoding.inputs import InputReader, Source
from t2t_jax.decoding.results import Hypothesis
from t2t_jax.decoding.shapes import longest_output
from t2t_jax.parallel import processes
from t2t_jax.search.hypotheses import Hypotheses
from t2t_jax.terminal.errors import UserError


def explained_lines(
    lines: str | Sequence[str], target: str | Sequence[str | None] | None
) -> tuple[list[str], list[str | None]]:
    """Returns a list of lines, and a target or None for each.

    Raises:
      UserError: there is no line, or another number of targets.
    """
    lines = [lines] if isinstance(lines, str) else [*lines]
    targets = [target] if isinstance(target, str) else target
    targets = [None] * len(lines) if targets is None else [*targets]
    if not lines:
        raise UserError("there is no line to explain; want at least one sentence")
    if len(lines) != len(targets):
        raise UserError(
            f"got {len(lines):,} lines and {len(targets):,} targets; want one target "
            "for each line (None or an empty one for a line without)"
        )
    return lines, [each or None for each in targets]


def explain_lines(
    model: Explained,
    lines: Sequence[str],
    targets: Sequence[str | None],
    constraints: Sequence[Constraints],
    reader: InputReader,
    alternatives: int,
) -> Explanation:
    """Explains the translation of each line.

    Args:
      targets: a translation to compare with, for each line, or None.
      alternatives: of a target, the most whose continuation is searched for.

    Raises:
      UserError: a line has nothing to translate, or no translation.
    """
    sources = reader.sources(lines)
    _check(sources, alternatives)
    for number, pair in enumerate(zip(sources, constraints, strict=True), 1):
        check_room(*pair, number, model.decode)
    searches = [
        _search_for(model, *of_line)
        for of_line in zip(
            sources, constraints, _encoded(lines, targets, reader), strict=True
        )
    ]
    wanted = []
    for place, (tree, found) in enumerate(searches):
        if found is not None:
            wanted.append(Target(place, "translation", found))
        if tree.reference is not None:
            wanted.append(_target(model, place, tree, targets[place]))
        if found is None and tree.reference is None:
            raise UserError(
                f"line {place + 1} has no translation that meets its constraints; "
                "change the constraints, or give a target to explain"
            )
    readings = read_targets(model, sources, constraints, wanted, alternatives)
    sentences = []
    for place, line in enumerate(lines):
        of_line = tuple(
            reading
            for target, reading in zip(wanted, readings, strict=True)
            if target.sentence == place
        )
        sentences.append(
            _sentence(model, line, sources[place], searches[place][0], of_line)
        )
    data = model.members[0].config.data
    vocabulary = model.vocabulary
    explained = ExplainedModel(
        name=model.name,
        kind=model.members[0].config.model.kind,
        direction=(data.source, data.target),
        passport=passport(model.members, vocabulary, model.search.algorithm),
        piece_of=tuple(map(vocabulary.piece, range(len(vocabulary)))),
        sentences=tuple(sentences),
    )
    return Explanation((explained,))


def _sentence(
    model: Explained,
    line: str,
    source: Source,
    tree: BeamTree,
    readings: tuple[Reading, ...],
) -> ExplainedSentence:
    score = None
    if tree.reference is not None:
        log_prob = readings[-1].hypothesis.log_prob
        best = readings[0].hypothesis.score
        score = judge_reference(tree, log_prob, best, model.vocabulary)
    own = model.vocabulary.source
    return ExplainedSentence(
        source=line,
        pieces=tuple(map(own.piece, source.ids)),
        words=words_of(own, source.ids),
        cut=source.cut,
        tree=tree,
        readings=readings,
        reference_score=score,
    )


def _encoded(
    lines: Sequence[str], targets: Sequence[str | None], reader: InputReader
) -> list[Ids | None]:
    """The tokens of each target, with EOS."""
    texts = [(line, target or "") for line, target in zip(lines, targets, strict=True)]
    return [
        None if target is None else ids
        for target, (_, ids) in zip(targets, reader.pairs(texts), strict=True)
    ]


def _check(sources: Sequence[Source], alternatives: int) -> None:
    if processes.distributed():
        raise UserError("explanations are computed by one process; start a single one")
    if alternatives < 0:
        raise UserError(f"alternatives={alternatives}; want 0 (none) or more")
    empty = [number for number, source in enumerate(sources, 1) if not source.ids]
    if empty:
        listed = ", ".join(map(str, empty))
        raise UserError(
            f"nothing to explain in line {listed}: it has no visible character; leave "
            "it out"
        )


def _search_for(
    model: Explained, source: Source, constraints: Constraints, reference: Ids | None
) -> tuple[BeamTree, Hypothesis | None]:
    """Traces the search for one line; returns its tree and its best hypothesis."""
    steps = trace_search(
        model.search,
        source.ids,
        constraints,
        model.vocabulary,
        model.phrases,
        model.decode,
    )
    tree = build_tree(
        steps,
        model.search.algorithm,
        model.vocabulary,
        longest_output(len(source.ids), model.decode),
        bool(constraints.must),
        reference,
    )
    batch_of_one = Hypotheses(*(leaf[None] for leaf in tree.result))
    best = next(to_text(batch_of_one, model.vocabulary))[0]
    return tree, best if best.tokens else None


def _target(model: Explained, place: int, tree: BeamTree, text: str) -> Target:
    """The given target of a line; its log-probability is not known yet."""
    ids = tree.reference.tokens
    ended = ids[-1] == model.vocabulary.eos
    nan = float("nan")
    return Target(place, "target", Hypothesis(text, nan, nan, ended, ids))
