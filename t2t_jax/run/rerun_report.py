"""A rerun of steps as lines of text: what was compared, what differs, and why."""

from collections.abc import Iterator, Sequence

from t2t_jax.parallel.machine import EFFECTS, machine_differences, nondeterminism
from t2t_jax.run.differences import TreeComparison
from t2t_jax.run.rerun import Rerun
from t2t_jax.training.provenance_log import Start

# Shown if the bytes differ and nothing recorded of the machine does.
UNRECORDED = (
    "the machine is the one that starts.jsonl records, so the cause is something it "
    "does not: config.mesh or config.train.accumulate changed during the run, a "
    "library of the system, or a fault of the hardware. Execute the same stretch "
    "twice here: if the two SHA-256 differ, this machine is not deterministic"
)


def report(result: Rerun) -> Iterator[str]:
    """Yields the lines of a report on a rerun."""
    stretch = result.stretch
    for step, kind, arrays in result.stored:
        yield f"step {step:,}  checkpoints/{kind}: {describe_arrays(arrays)}"
    if result.logged:
        steps = "step" if len(result.logged) == 1 else "steps"
        shown = f"{len(result.logged)} logged {steps}: the same numbers"
        if different := result.first_logged:
            step, name, then, now = different
            shown = f"{name} of step {step:,} differs first: {then!r} then, {now!r} now"
        yield f"metrics.jsonl: {shown}"
    yield f"SHA-256 of the state after step {stretch.end:,}: {result.sha256}"
    steps = f"steps {stretch.start + 1:,} to {stretch.end:,}"
    if not (result.stored or result.logged):
        yield (
            f"{steps} were executed, and nothing on disk is from one of them: nothing "
            "was compared. Go on to the next logged step or checkpoint, or compare the "
            "SHA-256 with that of another machine"
        )
    elif result.same:
        exactly = "the same bytes" if result.stored else "the same logged numbers"
        yield f"{steps} come to {exactly} as in the run"
    else:
        yield f"{steps} do not come to the same bytes as in the run"
    yield from _machines(result)


def describe_arrays(arrays: TreeComparison) -> str:
    """Describes the comparison of two trees: their number, the first that differs."""
    if arrays.same:
        return f"{arrays.arrays} arrays: the same bytes"
    if arrays.unmatched:
        names = ", ".join(arrays.unmatched[:3])
        return f"arrays of other names: {len(arrays.unmatched)}, such as {names}"
    return (
        f"{len(arrays.differing)} of {arrays.arrays} arrays differ; the first of them, "
        f"parameters before the optimizer, by name: {arrays.differing[0]}"
    )


def describe_starts(starts: Sequence[Start]) -> str:
    """Names starts by the steps that they continued after."""
    steps = ", ".join(f"{start.step:,}" for start in starts)
    return f"the start after step {steps}" if len(starts) == 1 else f"starts {steps}"


def _machines(result: Rerun) -> Iterator[str]:
    """Yields what of the machine and of the code of --ideas differs."""
    if not result.starts:
        yield "starts.jsonl is missing or damaged: the machine of the run is not known"
        return
    if len(result.starts) > 1:
        yield f"the run executed these steps by {describe_starts(result.starts)}"
    known = {}  # each difference once, whichever of the starts it is of
    for start in result.starts:
        known |= machine_differences(start.machine, result.machine)
        if {*start.ideas.values()} != {*result.ideas.values()}:
            known["ideas"] = "the modules", "others"
    for name, (then, now) in known.items():
        yield f"the machine differs: {name} {then} then, {now} now"
        if not result.same and name in EFFECTS:
            yield f"  {EFFECTS[name]}"
    if known:
        if not result.same:
            yield "repeat it on a machine like that of the run to have its bytes again"
    elif result.same:
        yield "the machine and the libraries are those of the run"
    else:
        yield nondeterminism() or UNRECORDED
