"""Checks that a workdir's scores follow from its translations, these from its model.

Nothing is written into the workdir.
"""

import dataclasses
import math
import re
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from t2t_jax.config import DecodeConfig
from t2t_jax.data.corpus import Corpus, Pair
from t2t_jax.decoding.translator import Translator
from t2t_jax.evaluation.provenance import hashed
from t2t_jax.evaluation.scores import (
    SCORES,
    SCORES_VERSION,
    TRANSLATIONS,
    checked_answers,
)
from t2t_jax.io.atomic import read_checked_json
from t2t_jax.io.errors import UserError
from t2t_jax.parallel.machine import describe_machine
from t2t_jax.tasks.table import task_of
from t2t_jax.tasks.task import Task
from t2t_jax.tools.verify.check import (
    Context,
    Measured,
    Unavailable,
    all_equal,
    with_details,
)
from t2t_jax.tools.verify.workdir_files import (
    check_here,
    judged_by,
    opened,
)
from t2t_jax.workdir import Workdir

QUICK_LINES, FULL_LINES = 16, 200  # of all sets together, translated again
# Near-equal hypotheses may swap on another machine, where sums round otherwise.
ELSEWHERE = 10  # of so many lines one may differ
PERPLEXITY_ERROR = 1e-4  # relative; on another machine sums round otherwise


class Scored(NamedTuple):
    """A set that was scored: what is stored of it, and its text on this machine.

    Attributes:
      scores: the content of `scores/SET.json`.
      answers: the lines of `translations/SET.ENDING`.
      corpus, pairs: the set as it is read here; None and empty if it is not here.
    """

    name: str
    scores: dict
    answers: list[str]
    corpus: Corpus | None
    pairs: list[Pair]


def scores(context: Context) -> Measured:
    """Computes stored scores again, from the translations and references on disk.

    Scores are equal to the last digit. With --full also their intervals, and all
    metrics; else those that are logged during training.
    """
    workdir, config, _ = opened(context)
    task = task_of(config)
    faults, notes, compared = [], [], 0
    for name in _names(workdir):
        try:
            scored = _read(workdir, task, name)
        except UserError as e:
            faults.append(f"{name}: {e}")
            compared += 1
            continue
        if reason := _not_comparable(scored):
            notes.append(f"{name}: {reason}")
            continue
        of_set = task.of(scored.corpus)
        if context.full:
            again = of_set.scores(scored.answers, scored.pairs, scored.corpus)
        else:
            again = of_set.quick_scores(scored.answers, scored.pairs)
        compared += len(again)
        faults += [
            f"{name}: {score} is {scored.scores.get(score)}, and comes to {value} now"
            for score, value in again.items()
            if not _same(value, scored.scores.get(score))
        ]
    if not compared:
        raise Unavailable("; ".join(notes) or f"{workdir} has no scores")
    return with_details(all_equal(len(faults), compared, "scores"), [*faults, *notes])


def _names(workdir: Workdir) -> list[str]:
    """The sets that were scored; not earlier scores of them, SET.1.json, SET.2.json."""
    folder = workdir / SCORES
    files = folder.glob("*.json") if folder.exists() else []
    names = sorted(file.name.removesuffix(".json") for file in files)
    return [n for n in names if re.sub(r"\.\d+$", "", n) not in {*names} - {n}]


def _read(workdir: Workdir, task: Task, name: str) -> Scored:
    """Reads what is stored of a set."""
    try:
        stored = read_checked_json(workdir / SCORES / f"{name}.json")
    except (OSError, ValueError) as e:
        raise UserError(f"the scores of {name} cannot be read: {e}") from None
    try:
        corpus = task.open(stored["set"], task.config.data.dir)
        ending = corpus.target
    except UserError:
        corpus, ending = None, stored["direction"].split("-")[-1]
    answers = checked_answers(stored, workdir / TRANSLATIONS / f"{name}.{ending}")
    pairs = []
    try:
        if corpus is not None:
            pairs = task.of(corpus).examples(check_here(corpus))
    except (UserError, OSError):
        corpus = None  # its files are not on this machine
    return Scored(name, stored, answers, corpus, pairs)


def _not_comparable(scored: Scored) -> str:
    """Says why scores cannot be computed again here; empty if they can."""
    if scored.corpus is None:
        return f"its text, {scored.scores['set']}, is not on this machine"
    sides = zip(*scored.pairs, strict=True)
    hashes = [hashed(side) for side in sides]
    recorded = [scored.scores[f"{side}_sha256"] for side in ("source", "reference")]
    if hashes != recorded:
        return f"the text at {scored.scores['set']} is another than what was scored"
    if scored.scores.get("layout") != SCORES_VERSION:
        return "another version of t2t_jax computed its scores"
    return ""


def _same(a, b) -> bool:
    """Compares values of JSON; numbers up to their last digit."""
    if isinstance(a, float) and isinstance(b, int | float):
        return math.isclose(a, b, rel_tol=1e-12)
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(_same(a[key], b[key]) for key in a)
    return a == b


def translations(context: Context) -> Measured:
    """Translates lines again, with the recorded checkpoints, search and type.

    The parameters must have the recorded hash. On the same machine and versions all
    lines come out equal, elsewhere nine of ten. With --full more lines, and perplexity.
    """
    workdir, config, _ = opened(context)
    task = task_of(config)
    sets, notes = [], []
    for name in _names(workdir):
        with judged_by("scores"):
            scored = _read(workdir, task, name)
        if reason := _not_comparable(scored):
            notes.append(f"{name}: {reason}")
        else:
            sets.append(scored)
    if not sets:
        raise Unavailable("; ".join(notes) or f"{workdir} has no translations")
    most = FULL_LINES if context.full else QUICK_LINES
    faults, compared, others = [], 0, set()
    for scored in sets:
        translator = _recorded(workdir, scored.scores)
        if translator is None:
            faults.append(
                f"{scored.name}: the parameters are not those that translated it: "
                "their SHA-256 differs"
            )
            compared += 1
            continue
        of_set = task.of(scored.corpus)
        rows = _sample(len(scored.pairs), max(1, most // len(sets)), of_set.searches)
        again = of_set.answers(translator, [scored.pairs[row] for row in rows], False)
        compared += len(rows)
        faults += [
            f"{scored.name}, line {row + 1:,}: {line!r} here, {scored.answers[row]!r} "
            "on disk"
            for row, line in zip(rows, again, strict=True)
            if line != scored.answers[row]
        ]
        if context.full:
            compared += 1
            faults += _perplexity_faults(of_set, translator, scored)
        others |= _differences(scored.scores)
    result = all_equal(len(faults), compared, "lines, translated again,")
    if others:
        allowed = compared // ELSEWHERE
        notes.append(f"the run's machine differs: {', '.join(sorted(others))}")
        result = dataclasses.replace(
            result, bound=f"<= {allowed}", held=len(faults) <= allowed
        )
    return with_details(result, [*faults, *notes])


def _recorded(workdir: Workdir, stored: dict) -> Translator | None:
    """The translator that answered a set; None if its parameters are others now."""
    steps = ",".join(map(str, stored["checkpoints"]))
    with judged_by("checkpoints"):
        weights = stored.get("weights", "float32")
        translator = Translator.load(workdir, steps, stored["dtype"], weights)
    if translator.members[0].parameters_sha256() != stored["parameters_sha256"]:
        return None
    fields = {field.name for field in dataclasses.fields(DecodeConfig)}
    search = {k: v for k, v in stored["decode"].items() if k in fields}
    translator = translator.with_options(**search)
    if translator.decode_options() != stored["decode"]:
        raise Unavailable(
            "the recorded search cannot be set up again: "
            f"{stored['decode']} was {translator.decode_options()} now"
        )
    return translator


def _sample(count: int, most: int, apart: bool) -> list[int]:
    """Numbers of lines to answer again.

    Args:
      apart: spread over the set; else the first ones, as what a task hides in a line
        may depend on the line's number.
    """
    if not apart:
        return [*range(min(count, most))]
    return np.unique(np.linspace(0, count - 1, min(count, most)).astype(int)).tolist()


def _perplexity_faults(
    task: Task, translator: Translator, scored: Scored
) -> Iterator[str]:
    """Compares scores that do not follow from the answers, such as perplexity."""
    for name, value in task.extra_scores(translator, scored.pairs).items():
        stored = scored.scores.get(name, math.nan)
        if not math.isclose(value, stored, rel_tol=PERPLEXITY_ERROR):
            yield f"{scored.name}: {name} {value} here, {stored} on disk"


def _differences(stored: dict) -> set[str]:
    """The parts of machine and versions that differ from those that made scores."""
    then = stored.get("machine", {}) | stored.get("versions", {})
    here = describe_machine()
    return {f"{k} {then.get(k)} -> {v}" for k, v in here.items() if then.get(k) != v}
