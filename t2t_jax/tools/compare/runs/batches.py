"""Finds the first step whose batches differ in two runs."""

import dataclasses
from collections.abc import Iterator

import numpy as np

from t2t_jax.data.feeding import BatchLookup, Epoch, Position, epoch_for
from t2t_jax.data.pairs import Pairs
from t2t_jax.io.errors import UserError
from t2t_jax.io.messages import Progress
from t2t_jax.run.step_lookup import position_of_step
from t2t_jax.tools.compare.runs.opened import OpenedRun, Section

# Fields of config.data that change no batch once the prepared pairs are the same.
UNUSED = {
    *("dir", "dev", "test", "feeder", "tokenizer_lines", "tokenizer"),
    *("source_tokenizer", "vocab_size", "source_vocab_size"),
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
        texts = a.text, b.text
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
    lookups = [BatchLookup(t.config, t.pairs, t.vocabulary) for t in texts]
    positions = [
        position_of_step(lookup, run.rollbacks, step)
        for lookup, run in zip(lookups, (a, b), strict=True)
    ]
    pairs = [[*lookup.pairs(at)] for lookup, at in zip(lookups, positions, strict=True)]
    places = [{(pair["corpus"], pair["line"]) for pair in of_run} for of_run in pairs]
    common = len(places[0] & places[1])
    facts |= {
        "positions": [at._asdict() for at in positions],
        "pairs": [len(of_run) for of_run in pairs],
        "common": common,
    }
    lines = [
        f"first difference: step {step:,} of {steps:,}, with {len(pairs[0]):,} | "
        f"{len(pairs[1]):,} pairs, {common:,} of them the same lines"
    ]
    for run, at, of_run in zip((a, b), positions, pairs, strict=True):
        first = of_run[0]
        lines.append(
            f"{run.name}: batch {at.batch:,} of epoch {at.epoch:,} begins with "
            f"{first['corpus']}, line {first['line']:,}: {first['source']}"
        )
    return Section(True, facts, lines)


def same_plan(a: OpenedRun, b: OpenedRun) -> bool:
    """True if both runs have equal batches at equal positions, by what makes them.

    False does not mean that they differ.
    """
    kept = [
        {
            name: value
            for name, value in dataclasses.asdict(run.config.data).items()
            if name not in UNUSED
        }
        for run in (a, b)
    ]
    settings = [(run.config.train.seed, run.config.task) for run in (a, b)]
    models = [[side.model for side in run.vocabulary.sides] for run in (a, b)]
    alike = kept[0] == kept[1] and settings[0] == settings[1] and models[0] == models[1]
    return alike and _same_pairs(a.text.pairs, b.text.pairs)


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
    lookup = BatchLookup(a.text.config, a.text.pairs, a.text.vocabulary)
    for step in sorted({*jumps[0], *jumps[1]}):
        if (
            step < steps
            and len(
                {position_of_step(lookup, run.rollbacks, step + 1) for run in (a, b)}
            )
            == 2
        ):
            return step + 1
    return None


def first_other_batch(a: OpenedRun, b: OpenedRun, steps: int) -> int | None:
    """The first step whose batches have other arrays, one step after the other."""
    with Progress("comparing batches", "steps", steps) as progress:
        for step, *batches in zip(
            range(1, steps + 1), _batches(a), _batches(b), strict=False
        ):
            if not _equal(*batches):
                return step
            progress.add(1)
    return None


def _batches(run: OpenedRun) -> Iterator[dict[str, np.ndarray]]:
    """Yields the arrays of each batch of a run, without end."""
    jumps, step, at = run.rollbacks.in_effect(), 0, Position()
    made, number = None, -1
    while True:
        at = jumps.get(step, at)
        if at.epoch != number:
            made, number = _epoch(run, at.epoch), at.epoch
        if at.batch >= len(made.plan):
            at = Position(at.epoch + 1, 0)
            continue
        layout = made.plan[at.batch]
        yield made.pairs.batch(layout, run.config.train.seed, at.epoch)
        at, step = Position(at.epoch, at.batch + 1), step + 1


def _epoch(run: OpenedRun, epoch: int) -> Epoch:
    return epoch_for(run.text.pairs, run.config.data, run.config.train.seed, epoch)


def _equal(a: dict[str, np.ndarray], b: dict[str, np.ndarray]) -> bool:
    return a.keys() == b.keys() and all(np.array_equal(a[name], b[name]) for name in a)
