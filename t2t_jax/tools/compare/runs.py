"""`compare --runs`: where two workdirs part, as text or JSON; changes nothing."""

import itertools
import json
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from t2t_jax import config as fields
from t2t_jax.config import Config
from t2t_jax.data.feeding import BatchLookup, Position
from t2t_jax.data.pairs import Pairs
from t2t_jax.data.tokenizers.vocabulary import Vocabulary
from t2t_jax.extensions.run.rerun import (
    RunText,
    describe_arrays,
    open_text,
    position_of_step,
    state_shapes,
)
from t2t_jax.io.errors import UserError
from t2t_jax.io.messages import Progress, printable
from t2t_jax.io.tables import text_table
from t2t_jax.model.model import build
from t2t_jax.parallel.machine import EFFECTS
from t2t_jax.run.differences import (
    CLOCKS,
    compare_trees,
    first_difference,
    stored_arrays,
)
from t2t_jax.tools.pages.run_log import short_names
from t2t_jax.training import checkpoint_folders
from t2t_jax.training.checkpoint_folders import KINDS
from t2t_jax.training.divergence import Rollbacks
from t2t_jax.training.metrics_log import METRICS, Metrics, read_log
from t2t_jax.training.provenance_log import Start, read_starts
from t2t_jax.training.step import TrainState
from t2t_jax.workdir import Workdir


class Section(NamedTuple):
    """One part of the comparison of two runs.

    Attributes:
      differs: True if the runs part here; None if it cannot be compared.
      facts: what was found, as JSON.
      lines: the same for a person.
    """

    differs: bool | None
    facts: dict[str, Any]
    lines: list[str]


class OpenedRun:
    """A run, with a short name; each part is read when it is first asked for."""

    def __init__(self, workdir: Workdir, name: str):
        self.workdir, self.name = workdir, name
        self.config: Config = workdir.config()  # raises now if it is not a workdir

    @cached_property
    def vocabulary(self) -> Vocabulary:
        return self.workdir.vocabulary()

    @cached_property
    def text(self) -> RunText:
        """Its training text, if it is on this machine."""
        return open_text(self.workdir)

    @cached_property
    def lookup(self) -> BatchLookup:
        return BatchLookup(self.text.config, self.text.pairs, self.text.vocabulary)

    @cached_property
    def rollbacks(self) -> Rollbacks:
        """The steps at which the run went back and skipped data."""
        return Rollbacks(self.workdir)

    @cached_property
    def starts(self) -> list[Start]:
        return read_starts(self.workdir)

    @cached_property
    def logged(self) -> dict[str, dict[int, Metrics]]:
        """The logged metrics of each step, by kind: of training, and of the dev set."""
        log = read_log(self.workdir / METRICS)
        return {kind: log.metrics(kind) for kind in ("train", "dev")}

    @cached_property
    def shapes(self) -> TrainState:
        model = build(self.config.model, *self.vocabulary.sizes)
        return state_shapes(model, self.config)

    @cached_property
    def stored(self) -> dict[str, list[int]]:
        """The steps of its complete checkpoints, by kind."""
        folder = self.workdir.checkpoints
        return {kind: checkpoint_folders.sealed_steps(folder / kind) for kind in KINDS}

    @property
    def steps(self) -> int:
        """The number of steps trained, as far as checkpoints and the log show."""
        checkpoint_steps = (step for steps in self.stored.values() for step in steps)
        return max([*checkpoint_steps, *self.logged["train"], 0])


# ---------------------------------------------------------------------- config and data


def config_section(a: OpenedRun, b: OpenedRun) -> Section:
    """Lists the fields of the config that differ."""
    changed = fields.differences(a.config, b.config)
    facts = {name: [old, new] for name, (old, new, _) in changed.items()}
    lines = [f"{name}: {old!r} | {new!r}" for name, (old, new) in facts.items()]
    return Section(bool(facts), facts, lines or ["the same fields"])


def data_section(a: OpenedRun, b: OpenedRun) -> Section:
    """Compares the hashes of prepared text, dev text and tokenizers.

    The hash of the training text covers the text, the tokenizer and the options of
    cleaning, so another tokenizer alone changes it.
    """
    texts = [run.workdir.text() for run in (a, b)]
    tokenizers = [run.vocabulary.sha256 for run in (a, b)]
    values = {
        "tokenizer": tokenizers,
        "prepared text": [text["prepared"] for text in texts],
        "dev text": [text["dev"] for text in texts],
        "pairs": [text["kept"] for text in texts],
        "models that the loss reads": [text.get("frozen", []) for text in texts],
    }
    facts = {
        name: {"values": pair, "same": pair[0] == pair[1]}
        for name, pair in values.items()
    }
    lines = [
        f"{name}: {'the same' if fact['same'] else _pair(fact['values'])}"
        for name, fact in facts.items()
        if any(fact["values"])
    ]
    return Section(not all(fact["same"] for fact in facts.values()), facts, lines)


def _pair(values: list) -> str:
    """Both values; hashes by their first digits."""
    return " | ".join(
        f"{value:,}"
        if isinstance(value, int)
        else ", ".join(h[:12] for h in ([value] if isinstance(value, str) else value))
        or "none"
        for value in values
    )


# ----------------------------------------------------------------------------- machines


def machines_section(a: OpenedRun, b: OpenedRun) -> Section:
    """Lists the starts of both runs, and the fields that are not alike in all."""
    starts = [(run, start) for run in (a, b) for start in run.starts]
    facts = {
        "starts": [[start._asdict() for start in run.starts] for run in (a, b)],
        "fields": [],
    }
    if not (a.starts and b.starts):
        return Section(None, facts, ["not compared: a run has no readable starts"])
    names = {name: None for _, start in starts for name in start.machine}
    shared = []
    for name in names:
        values = {str(start.machine.get(name)) for _, start in starts}
        if len(values) > 1:
            facts["fields"].append(name)
        elif any(values):
            shared.append(f"{name} {values.pop()}")
    lines = [f"all starts: {', '.join(shared)}"]
    for run, start in starts:
        details = [f"{name} {start.machine.get(name)}" for name in facts["fields"]]
        details += [f"--ideas {name} {sha[:12]}" for name, sha in start.ideas.items()]
        head = f"{run.name}, start after step {start.step:,}"
        lines.append(": ".join([head, ", ".join(details)] if details else [head]))
    lines += [f"{n}: {EFFECTS[n]}" for n in facts["fields"] if n in EFFECTS]
    ideas = [{sha for s in run.starts for sha in s.ideas.values()} for run in (a, b)]
    return Section(bool(facts["fields"]) or ideas[0] != ideas[1], facts, lines)


# ------------------------------------------------------------------------------ batches

# Fields of config.data that change no batch once the prepared pairs are the same.
UNUSED = {
    "dir",
    "dev",
    "test",
    "feeder",
    "tokenizer_lines",
    "tokenizer",
    "source_tokenizer",
    "vocab_size",
    "source_vocab_size",
}


def batches_section(a: OpenedRun, b: OpenedRun) -> Section:
    """Finds the first step of both runs that they train on other tokens.

    The batches are made again from the plan. If text, seed and options are the same,
    equal positions have equal batches, and only rollbacks make the positions differ.
    """
    steps = min(a.steps, b.steps)
    if not steps:
        return Section(None, {"steps": 0}, ["not compared: no step is trained"])
    try:
        lookups = a.lookup, b.lookup
    except UserError as e:
        return Section(None, {"error": str(e)}, [f"not compared: {e}"])
    planned_alike = same_plan(a, b)
    if planned_alike:
        step = first_other_position(a, b, steps)
    else:
        step = first_other_batch(a, b, steps)
    facts = {"steps": steps, "same plan": planned_alike, "first": step}
    if step is None:
        return Section(False, facts, [f"the same in all {steps:,} common steps"])
    positions = [
        position_of_step(lookup, run.rollbacks, step)
        for lookup, run in zip(lookups, (a, b), strict=True)
    ]
    pairs = [
        [*lookup.pairs(position)]
        for lookup, position in zip(lookups, positions, strict=True)
    ]
    places = [{(pair["corpus"], pair["line"]) for pair in batch} for batch in pairs]
    common = len(places[0] & places[1])
    facts |= {
        "positions": [position._asdict() for position in positions],
        "pairs": [len(batch) for batch in pairs],
        "common": common,
    }
    lines = [
        f"first difference: step {step:,} of {steps:,}, with {len(pairs[0]):,} | "
        f"{len(pairs[1]):,} pairs, {common:,} of them the same lines"
    ]
    for run, position, batch in zip((a, b), positions, pairs, strict=True):
        example = batch[0]
        lines.append(
            f"{run.name}: batch {position.batch:,} of epoch {position.epoch:,} begins "
            f"with {example['corpus']}, line {example['line']:,}: {example['source']}"
        )
    return Section(True, facts, lines)


def same_plan(a: OpenedRun, b: OpenedRun) -> bool:
    """True if both runs have equal batches at equal positions, by what makes them.

    False does not mean that they differ.
    """
    for changed in fields.differences(a.config, b.config):
        section, _, name = changed.partition(".")
        data = section == "data" and name not in UNUSED
        if data or section == "task" or changed == "train.seed":
            return False
    models = [[side.model for side in run.vocabulary.sides] for run in (a, b)]
    return models[0] == models[1] and _same_pairs(a.text.pairs, b.text.pairs)


def _same_pairs(a: Pairs, b: Pairs) -> bool:
    if (a.sizes, a.weights, a.block) != (b.sizes, b.weights, b.block):
        return False
    if a.key == b.key:  # a hash of all that the arrays depend on
        return True
    return all(
        np.array_equal(x.offsets, y.offsets) and np.array_equal(x.tokens, y.tokens)
        for x, y in ((a.source, b.source), (a.target, b.target))
    )


def first_other_position(a: OpenedRun, b: OpenedRun, steps: int) -> int | None:
    """The first step that the runs train at another position of the same plan."""
    jumps = [run.rollbacks.in_effect() for run in (a, b)]
    if jumps[0] == jumps[1]:
        return None
    # Positions part only behind a step that a run returned to: the next position is
    # else a function of this one. Both runs have the same plan, so one serves.
    for step in sorted({*jumps[0], *jumps[1]}):
        if step >= steps:
            break
        position_a, position_b = (
            position_of_step(a.lookup, run.rollbacks, step + 1) for run in (a, b)
        )
        if position_a != position_b:
            return step + 1
    return None


def first_other_batch(a: OpenedRun, b: OpenedRun, steps: int) -> int | None:
    """The first step whose batches have other arrays, one step after the other."""
    with Progress("comparing batches", "steps", steps) as progress:
        for step, *batches in zip(
            range(1, steps + 1), _batches(a), _batches(b), strict=False
        ):
            if not compare_trees(*batches).same:
                return step
            progress.add(1)
    return None


def _batches(run: OpenedRun) -> Iterator[dict[str, np.ndarray]]:
    """Yields the arrays of each batch of a run, without end."""
    jumps, position = run.rollbacks.in_effect(), Position()
    for step in itertools.count():
        position = run.lookup.position(jumps.get(step, position), 0)
        yield run.lookup.arrays(position)
        position = position._replace(batch=position.batch + 1)


# ---------------------------------------------------------------------------------- log

ROWS = 12  # of a table in the terminal; the JSON has all


def log_section(a: OpenedRun, b: OpenedRun) -> Section:
    """Finds the first logged metric that differs; times do not count."""
    facts, lines = {}, []
    for kind, log_a in a.logged.items():
        log_b = b.logged[kind]
        steps = sorted({*log_a} & {*log_b})
        change = first_difference(log_a, log_b, steps)
        facts[kind] = {"steps": len(steps), "first": change and change._asdict()}
        if not steps:
            lines.append(f"{kind}: no step is logged by both")
        elif change:
            lines.append(
                f"{kind}: {change.name} of step {change.step:,} differs first: "
                f"{change.then!r} | {change.now!r}"
            )
        else:
            lines.append(f"{kind}: the same numbers in {len(steps):,} logged steps")
    if not any(fact["steps"] for fact in facts.values()):
        return Section(None, facts, lines)
    return Section(any(fact["first"] for fact in facts.values()), facts, lines)


def metrics_section(a: OpenedRun, b: OpenedRun) -> Section:
    """Shows logged metrics over steps side by side; both runs' in one cell."""
    facts, lines = {}, []
    for kind, log_a in a.logged.items():
        log_b = b.logged[kind]
        steps = sorted({*log_a} | {*log_b})
        entries = [entry for run in (log_a, log_b) for entry in run.values()]
        all_names = {name: None for entry in entries for name in entry}
        facts[kind] = {
            name: {
                str(step): [run.get(step, {}).get(name) for run in (log_a, log_b)]
                for step in steps
            }
            for name in all_names
            if name not in CLOCKS
        }
        if not steps:
            continue
        names = ["loss"] if kind == "train" else [*facts[kind]]
        rows = [["step", *(f"{kind} {name}" for name in names)]]
        for step in thinned(steps):
            cells = (facts[kind][name][str(step)] for name in names)
            rows.append([f"{step:,}", *(" | ".join(map(_cell, c)) for c in cells)])
        lines += text_table(rows, left=())
    return Section(None, facts, lines or ["nothing is logged"])


def thinned(steps: Sequence[int], rows: int = ROWS) -> list[int]:
    """At most `rows` of some steps, evenly spaced, with the first and the last."""
    if len(steps) <= rows:
        return [*steps]
    last = len(steps) - 1
    return [steps[round(i * last / (rows - 1))] for i in range(rows)]


def _cell(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


# ------------------------------------------------------------------------------- arrays


def arrays_section(a: OpenedRun, b: OpenedRun) -> Section:
    """Compares the checkpoints of the same step and kind that both runs have."""
    common = sorted(
        (step, kind) for kind in KINDS for step in {*a.stored[kind]} & {*b.stored[kind]}
    )
    facts, lines, first_array = {"compared": [], "first": None}, [], None
    for step, kind in common:
        paths = [run.workdir.checkpoints / kind / str(step) for run in (a, b)]
        troubles = [(path, checkpoint_folders.damage(path)) for path in paths]
        if damaged := [f"{path} is damaged ({why})" for path, why in troubles if why]:
            lines.append(f"step {step:,}, {kind}: not compared: {'; '.join(damaged)}")
            continue
        trees = [
            stored_arrays(path, run.shapes)
            for run, path in zip((a, b), paths, strict=True)
        ]
        comparison = compare_trees(*trees)
        facts["compared"].append({"step": step, "kind": kind, "same": comparison.same})
        if not comparison.same:
            first_array = comparison.differing[0] if comparison.differing else None
            facts["first"] = {
                **{"step": step, "kind": kind, "arrays": comparison.arrays},
                "differing": len(comparison.differing),
                "unmatched": [*comparison.unmatched],
                "array": first_array and first_array._asdict(),
            }
            lines.append(f"step {step:,}, {kind}: {describe_arrays(comparison)}")
            break
    if not facts["compared"]:
        lines.append("not compared: the runs keep no checkpoint of the same step")
        return Section(None, facts, lines)
    same = sum(checkpoint["same"] for checkpoint in facts["compared"])
    if same:
        lines.insert(0, f"the same bytes in {same} of {len(common)} common checkpoints")
    return Section(facts["first"] is not None, facts, lines)


# ------------------------------------------------------------------------------- report

# Title -> what finds a section's content, in the order in which runs come to differ.
SECTIONS: dict[str, Callable[[OpenedRun, OpenedRun], Section]] = {
    "config": config_section,
    "data": data_section,
    "machines": machines_section,
    "batches": batches_section,
    "log": log_section,
    "arrays": arrays_section,
    "metrics": metrics_section,
}
_MARKS = {True: "differs", False: "the same", None: ""}


def compare_runs(workdirs: Sequence[str]) -> dict[str, Section]:
    """Compares two workdirs; reads both and changes nothing.

    Returns the sections by title, in the order of `SECTIONS`.
    """
    if len(workdirs) != 2:
        raise UserError(
            f"--runs compares two workdirs, and {len(workdirs)} are given; want "
            "compare --runs DIR DIR. For the curves of several runs: python -m t2t_jax "
            "plot --workdir=DIR,DIR,DIR"
        )
    names = short_names(workdirs)
    a, b = (
        OpenedRun(Workdir.open(place), name)
        for place, name in zip(workdirs, names, strict=True)
    )
    return {title: make(a, b) for title, make in SECTIONS.items()}


def main_report(workdirs: Sequence[str], as_json: bool) -> None:
    """Prints where two runs part; raises as `compare_runs`.

    In a terminal values stand as `first | second`.
    """
    sections = compare_runs(workdirs)
    places = [str(place) for place in workdirs]
    if as_json:
        content = {
            title: {"differs": section.differs, **section.facts}
            for title, section in sections.items()
        }
        print(json.dumps({"runs": places, **content}, indent=1))
        return
    parts = [title for title, section in sections.items() if section.differs]
    print(" | ".join(places))
    print(f"they part in: {', '.join(parts) or 'nothing that was compared'}")
    for title, section in sections.items():
        mark = _MARKS[section.differs]
        print(f"\n{title}: {mark}" if mark else f"\n{title}")
        print(*(printable(f"  {line}") for line in section.lines), sep="\n")
    print(f"\ncurves: python -m t2t_jax plot --workdir={','.join(places)}")
