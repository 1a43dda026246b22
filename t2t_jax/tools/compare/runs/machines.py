"""Compares the machines of all starts of two runs."""

from t2t_jax.parallel.machine import EFFECTS
from t2t_jax.tools.compare.runs.opened import OpenedRun, Section


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
    shared = {}
    for name in names:
        values = {str(start.machine.get(name)) for _, start in starts}
        if len(values) == 1:
            shared[name] = values.pop()
        else:
            facts["fields"].append(name)
    lines = [
        "all starts: "
        + ", ".join(f"{name} {value}" for name, value in shared.items() if value)
    ]
    for run, start in starts:
        own = [f"{name} {start.machine.get(name)}" for name in facts["fields"]]
        own += [f"--ideas {name} {sha[:12]}" for name, sha in start.ideas.items()]
        lines.append(f"{run.name}, start after step {start.step:,}: {', '.join(own)}")
        if not own:
            lines[-1] = lines[-1].removesuffix(": ")
    lines += [f"{n}: {EFFECTS[n]}" for n in facts["fields"] if n in EFFECTS]
    ideas = [{sha for s in run.starts for sha in s.ideas.values()} for run in (a, b)]
    return Section(bool(facts["fields"]) or ideas[0] != ideas[1], facts, lines)
