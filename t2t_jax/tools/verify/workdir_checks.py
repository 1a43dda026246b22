"""Checks of a workdir: its files are intact, it trains on, and its scores follow.

Scores follow from translations, and these from the model. No check writes into the
workdir. Each judges one thing: behind a fault that another check reports, it is
unavailable, so that a fault is reported once.
"""

import contextlib
import dataclasses
import itertools
import math
import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import jax
import numpy as np

from t2t_jax.config import Config, DecodeConfig, SearchOptions
from t2t_jax.data.corpus import Corpus, Pair, open_specs
from t2t_jax.data.feeding import Position, feed
from t2t_jax.data.pairs import Pairs
from t2t_jax.data.tokenizers.vocabulary import Vocabulary
from t2t_jax.decoding.translator import Translator
from t2t_jax.evaluation.provenance import hashed
from t2t_jax.evaluation.scores import (
    SCORES,
    SCORES_VERSION,
    TRANSLATIONS,
    checked_answers,
)
from t2t_jax.extensions.run.rerun import newest_intact, open_text
from t2t_jax.io import sealed
from t2t_jax.io.atomic import read_checked_json
from t2t_jax.io.errors import UserError, first_line
from t2t_jax.model.layers import Parameters
from t2t_jax.model.model import build
from t2t_jax.parallel import mesh as meshes
from t2t_jax.parallel.batch_placement import local_layout, place_batch
from t2t_jax.parallel.machine import describe_machine
from t2t_jax.tasks.table import task_of
from t2t_jax.tasks.task import Task
from t2t_jax.text.languages import pair_of
from t2t_jax.tools.verify.check import (
    Context,
    Measured,
    Unavailable,
    all_equal,
    with_details,
)
from t2t_jax.training import checkpoint_folders
from t2t_jax.training.checkpoint import read_state
from t2t_jax.training.checkpoint_folders import KINDS
from t2t_jax.training.divergence import Rollbacks
from t2t_jax.training.frozen_models import open_frozen
from t2t_jax.training.metrics_log import METRICS, read_log
from t2t_jax.training.step import compile_steps
from t2t_jax.workdir import IMPORTED, Workdir

MOST_LINES = 2_000  # of the dev text that are encoded and decoded
# Lines in which a tokenizer could lose something.
HARD_LINES = (
    *("", " ", "two  spaces, one at the end ", "\ttab", "no-break\u00a0space"),
    *("ein Käfer, 1.000,50 €", "«guillemets» — dash", "日本語のテキスト", "👩‍👩‍👧 🇩🇪"),
    *("e\u0301 decomposed", "</s> <s> <unk> <pad>", "zero\u200bwidth", "ﬁ ligature"),
)


def _workdir_of(context: Context) -> Workdir:
    """Returns the workdir of --workdir; unavailable if there is none."""
    if not context.workdir:
        raise Unavailable("no --workdir is given")
    workdir = Workdir(context.workdir)
    if not workdir.has_run():
        workdir.config()  # raises, and says why
    return workdir


@contextlib.contextmanager
def judged_by(check: str) -> Iterator[None]:
    """Turns a UserError inside into `Unavailable`: another check reports it."""
    try:
        yield
    except UserError as e:
        raise Unavailable(f"{first_line(e)} (see the check {check})") from None


def opened(context: Context) -> tuple[Workdir, Config, Vocabulary]:
    """Opens the workdir, for checks that do not judge its config and tokenizer."""
    workdir = _workdir_of(context)
    with judged_by("tokenizer"):
        return workdir, workdir.config(), workdir.vocabulary()


def check_here(corpus: Corpus) -> Corpus:
    """Returns a corpus; refuses one that would be downloaded when it is read."""
    if not corpus.is_here():
        raise UserError(f"{corpus.spec} is not on this machine, and not downloaded")
    return corpus


def checkpoints(context: Context) -> Measured:
    """Hashes every file of every checkpoint, and compares with the manifests.

    The newest checkpoint of a kind may lack its manifest: a run that was killed while
    it saved leaves one such, and does not use it. Any other without one is a fault.
    """
    workdir = _workdir_of(context)
    folders = [workdir.checkpoints / kind for kind in KINDS]
    folders = [folder for folder in folders if folder.exists()]
    if not any(map(checkpoint_folders.sealed_steps, folders)):
        raise Unavailable(f"{workdir} has no complete checkpoint yet")
    faults, notes, size, count = [], [], 0, 0
    for folder in folders:
        kind, steps = folder.name, checkpoint_folders.steps_in(folder)
        for step in steps:
            path = folder / str(step)
            if not sealed.is_sealed(path) and step == steps[-1] and len(steps) > 1:
                notes.append(f"{kind}/{step} has no manifest yet: it does not count")
                continue
            count += 1
            size += sealed.size(path)
            if trouble := checkpoint_folders.damage(path):
                faults.append(f"{kind}/{step}: {trouble}")
    result = all_equal(len(faults), count, "checkpoints", bytes=size)
    return with_details(result, [*faults, *notes])


def tokenizer(context: Context) -> Measured:
    """Compares the tokenizer with its recorded hash; encodes and decodes lines.

    The lines are those of the dev set, where it is on this machine, and a dozen hard
    ones. A tokenizer that was trained elsewhere may lose something: then lines that
    change are reported only.
    """
    workdir = _workdir_of(context)
    try:  # these read and compare the hashes
        config, vocabulary = workdir.config(), workdir.vocabulary()
        workdir.text()
    except UserError as e:
        return Measured(first_line(e), "as recorded", False)
    task, sides = task_of(config), {}
    if 0 in task.sides:
        sides["source"] = vocabulary.source
    if 1 in task.sides and task.predicts != "label":
        sides["target"] = vocabulary
    lines, note = _dev_lines(config, sides)
    trained_here = not (config.data.tokenizer or config.train.init_from)
    trained_here &= not (workdir / IMPORTED).exists()
    changed = []
    for side, side_vocabulary in sides.items():
        texts = [*lines[side], *HARD_LINES]
        decoded = side_vocabulary.decode(side_vocabulary.encode(texts))
        changed += [
            f"{side}: {line!r} becomes {round_trip!r}"
            for line, round_trip in zip(texts, decoded, strict=True)
            if line != round_trip
        ]
    count = sum(map(len, lines.values())) + len(sides) * len(HARD_LINES)
    result = all_equal(len(changed), count, "lines, encoded and decoded,")
    result = dataclasses.replace(
        result, figure=f"as recorded; {len(changed)} of {count:,} lines change"
    )
    if changed and not trained_here:
        note = "the tokenizer was not trained by this run, so it may lose something"
        result = dataclasses.replace(result, held=None, bound="")
    return with_details(result, [*([note] if note else []), *changed])


def _dev_lines(
    config: Config, sides: Iterable[str]
) -> tuple[dict[str, list[str]], str]:
    """Lines of the dev set by side, and a note if they cannot be read."""
    task, data, pairs, note = task_of(config), config.data, [], ""
    try:
        for corpus in open_specs(data.dev, task.open, data.dir):
            lines = check_here(corpus).pairs()
            pairs += itertools.islice(lines, MOST_LINES - len(pairs))
    except (UserError, OSError) as e:
        pairs, note = [], f"the dev set cannot be read here: {first_line(e)}"
    lines = {"source": [s for s, _ in pairs], "target": [t for _, t in pairs]}
    return {side: lines[side] for side in sides}, note


def metrics(context: Context) -> Measured:
    """Reads metrics.jsonl, and compares its steps and scores with the checkpoints.

    Up to the newest state each logging interval must be there, in order. The best
    checkpoints must have the scores that were logged at their steps.
    """
    workdir = _workdir_of(context)
    with judged_by("tokenizer"):
        config = workdir.config()
    file = workdir / METRICS
    states = checkpoint_folders.sealed_steps(workdir.checkpoints / "state")
    if not file.exists() and not states:
        raise Unavailable(f"{workdir} holds no training: no state and no log")
    log = read_log(file)
    entries = log.counted()
    faults = [f"line {number} is not an entry" for number in log.damaged]
    expected = 0
    if states:
        every = config.train.log_every
        steps = [*range(every, states[-1] + 1, every)]
        missing = {*steps} - {e["step"] for e in entries if e["kind"] == "train"}
        expected = len(steps)
        faults += [f"step {step:,} is not logged" for step in sorted(missing)]
    faults += _in_order(entries, config.train.steps)
    score_faults, compared = _best_scores(workdir, config, entries)
    count = expected + compared + len(entries)
    if not count:
        raise Unavailable(f"{workdir} has not logged its first step yet")
    result = all_equal(len(faults) + len(score_faults), count, "entries and scores")
    return with_details(result, [*faults, *score_faults])


def _in_order(entries: list[dict], last_step: int) -> list[str]:
    """Faults in the order of steps: each kind has a step once, none after the last."""
    faults, newest = [], {}
    for entry in entries:
        step, kind = entry["step"], entry["kind"]
        if step <= newest.get(kind, -1):
            faults.append(f"{kind} of step {step:,} follows step {newest[kind]:,}")
        if step > last_step:
            faults.append(f"{kind} of step {step:,}: the run has {last_step:,} steps")
        newest[kind] = step
    return faults


def _best_scores(
    workdir: Workdir, config: Config, entries: list[dict]
) -> tuple[list[str], int]:
    """Compares the scores of the best checkpoints with the log; counts them."""
    task = task_of(config)
    best = checkpoint_folders.best_steps(workdir.checkpoints / "best")
    scores = {e["step"]: e for e in entries if e["kind"] == "dev"}
    faults = []
    for step, goodness in best.items():
        score = scores.get(step, {}).get(task.chosen_by)
        best_score = goodness if task.higher_is_better else -goodness
        if score is None or not math.isclose(score, best_score, rel_tol=1e-9):
            faults.append(
                f"best/{step} was kept for {task.chosen_by} {best_score}; the log has "
                f"{score}"
            )
    return faults, len(best)


NEAR = 0.25  # a step's loss may be so far, relatively, from the last one logged


def trains(context: Context) -> Measured:
    """Trains one step from the newest state, on the batch that would come next.

    On one device, in memory. The loss must be near the last one logged, and parameters
    must change and stay finite.
    """
    workdir, config, vocabulary = opened(context)
    folder = workdir.checkpoints / "state"
    if not folder.exists():
        raise Unavailable(f"{workdir} holds no state to continue from")
    try:
        pairs = open_text(workdir).pairs
        model = build(config.model, *vocabulary.sizes)
        frozen = open_frozen(config, model, vocabulary)
    except UserError as e:
        raise Unavailable(str(e)) from None
    mesh = meshes.make_mesh(devices=jax.devices()[:1])
    steps = compile_steps(model, config, mesh, vocabulary.bos, frozen.models)
    number = newest_intact(workdir, checkpoint_folders.sealed_steps(folder))
    if not number:
        raise Unavailable(
            f"{folder} has no intact checkpoint (see the check checkpoints)"
        )
    state, progress = read_state(folder / str(number), steps.shapes)
    position = Rollbacks(workdir).position(number, progress.position)
    batch = _batch(config, pairs, position, mesh)
    placed = jax.device_put(state, jax.tree.map(lambda x: x.sharding, steps.shapes))
    frozen_arrays = tuple(
        jax.device_put(p, jax.tree.map(lambda x: x.sharding, shapes))
        for p, shapes in zip(frozen.read(), steps.frozen, strict=True)
    )
    trained_state, values = steps.train(placed, batch, *frozen_arrays)
    loss, rate = float(values["loss"]), float(values["learning_rate"])
    # A schedule may have fallen to 0 at the end of the run.
    if not _trained(state.parameters, trained_state.parameters, moved=rate > 0):
        figure = f"loss {loss:.3f}; no parameter changed, or one is not finite"
        return Measured(figure, "parameters change, and stay finite", False)
    logged = read_log(workdir / METRICS).metrics("train").items()
    losses = [m["loss"] for step, m in logged if step <= number and m.get("loss")]
    return _judged(number, loss, losses[-1] if losses else math.nan)


def _batch(
    config: Config, pairs: Pairs, position: Position, mesh: jax.sharding.Mesh
) -> dict[str, jax.Array]:
    """The batch at a data position, on the device."""
    # Both feeders give the same bytes; this one needs no TensorFlow.
    data = dataclasses.replace(config.data, feeder="numpy")
    accumulate = config.train.accumulate

    def local(layout):
        return local_layout(mesh, layout, accumulate)

    batches = feed(pairs, data, config.train.seed, position, local)
    try:
        return place_batch(mesh, next(batches)[1])
    finally:
        batches.close()


def _trained(before: Parameters, after: Parameters, moved: bool) -> bool:
    """True if parameters are finite, and, if `moved`, not all as they were."""
    finite = jax.tree.all(jax.tree.map(lambda x: np.isfinite(x).all(), after))
    unchanged = jax.tree.all(jax.tree.map(np.array_equal, before, after))
    return bool(finite) and not (moved and unchanged)


def _judged(step: int, loss: float, recorded: float) -> Measured:
    """Compares the loss of a step with the one recorded before it."""
    numbers = {"step": step + 1, "loss": loss, "recorded": recorded}
    if math.isnan(recorded):
        numbers["recorded"] = None
        return Measured(f"loss {loss:.3f}", "finite", math.isfinite(loss), numbers)
    low, high = sorted((recorded * (1 - NEAR), recorded * (1 + NEAR)))
    return Measured(
        f"loss {loss:.3f} at step {step + 1:,}",
        f"{low:.3f} to {high:.3f} (logged: {recorded:.3f})",
        bool(low <= loss <= high),
        numbers,
    )


# ---------------------------------------------------------- scores and translations

QUICK_LINES, FULL_LINES = 16, 200  # of all sets together, translated again
# Near-equal hypotheses may swap on another machine, where sums round otherwise.
ELSEWHERE = 10  # of so many lines one may differ
PERPLEXITY_ERROR = 1e-4  # relative; on another machine sums round otherwise


class Scored(NamedTuple):
    """A set that was scored: what is stored of it, and its text on this machine."""

    name: str
    scores: dict  # the content of `scores/SET.json`
    answers: list[str]  # the lines of `translations/SET.ENDING`
    corpus: Corpus | None  # the set as it is read here; None if it is not here
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
        set_task = task.of(scored.corpus)
        if context.full:
            computed = set_task.scores(scored.answers, scored.pairs, scored.corpus)
        else:
            computed = set_task.quick_scores(scored.answers, scored.pairs)
        compared += len(computed)
        faults += [
            f"{name}: {score} is {scored.scores.get(score)}, and comes to {value} now"
            for score, value in computed.items()
            if not _equal_values(value, scored.scores.get(score))
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
        codes = pair_of(stored["direction"])
        corpus, ending = None, (codes or stored["direction"].split("-"))[-1]
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


def _equal_values(a, b) -> bool:
    """Compares values of JSON; numbers up to their last digit."""
    if isinstance(a, float) and isinstance(b, int | float):
        return math.isclose(a, b, rel_tol=1e-12)
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(_equal_values(a[key], b[key]) for key in a)
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
    limit = FULL_LINES if context.full else QUICK_LINES
    faults, compared, changes = [], 0, set()
    for scored in sets:
        translator = _recorded(workdir, scored.scores)
        if translator is None:
            faults.append(
                f"{scored.name}: the parameters are not those that translated it: "
                "their SHA-256 differs"
            )
            compared += 1
            continue
        set_task = task.of(scored.corpus)
        rows = _sample(len(scored.pairs), max(1, limit // len(sets)), set_task.searches)
        answers = set_task.answers(
            translator, [scored.pairs[row] for row in rows], False
        )
        compared += len(rows)
        faults += [
            f"{scored.name}, line {row + 1:,}: {line!r} here, {scored.answers[row]!r} "
            "on disk"
            for row, line in zip(rows, answers, strict=True)
            if line != scored.answers[row]
        ]
        if context.full:
            compared += 1
            faults += _perplexity_faults(set_task, translator, scored)
        changes |= _differences(scored.scores)
    result = all_equal(len(faults), compared, "lines, translated again,")
    if changes:
        allowed = compared // ELSEWHERE
        notes.append(f"the run's machine differs: {', '.join(sorted(changes))}")
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
    # Options at their default are not recorded.
    search = {
        option.name: option.default for option in dataclasses.fields(SearchOptions)
    }
    search |= {k: v for k, v in stored["decode"].items() if k in fields}
    translator = translator.with_options(**search)
    if translator.decode_options() != stored["decode"]:
        raise Unavailable(
            "the recorded search cannot be set up again: "
            f"{stored['decode']} was {translator.decode_options()} now"
        )
    return translator


def _sample(count: int, limit: int, spread: bool) -> list[int]:
    """Numbers of lines to answer again.

    Args:
      spread: over the set; else the first ones, as what a task hides in a line
        may depend on the line's number.
    """
    if not spread:
        return [*range(min(count, limit))]
    return np.unique(np.linspace(0, count - 1, min(count, limit)).astype(int)).tolist()


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
    recorded = stored.get("machine", {}) | stored.get("versions", {})
    current = describe_machine()
    return {
        f"{k} {recorded.get(k)} -> {v}"
        for k, v in current.items()
        if recorded.get(k) != v
    }
