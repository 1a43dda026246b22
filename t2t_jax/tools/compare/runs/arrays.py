"""Finds the first stored checkpoint of two runs in which an array differs."""

from t2t_jax.run.differences import compare_trees, stored_arrays
from t2t_jax.run.rerun import describe_arrays
from t2t_jax.tools.compare.runs.opened import OpenedRun, Section
from t2t_jax.training import checkpoint_folders
from t2t_jax.training.checkpoint_folders import KINDS


def arrays_section(a: OpenedRun, b: OpenedRun) -> Section:
    """Compares the checkpoints of the same step and kind that both runs have."""
    common = sorted(
        (step, kind) for kind in KINDS for step in {*a.stored[kind]} & {*b.stored[kind]}
    )
    facts, lines, first = {"compared": [], "first": None}, [], None
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
        found = compare_trees(*trees)
        facts["compared"].append({"step": step, "kind": kind, "same": found.same})
        if not found.same:
            first = found.differing[0] if found.differing else None
            facts["first"] = {
                **{"step": step, "kind": kind, "arrays": found.arrays},
                "differing": len(found.differing),
                "unmatched": [*found.unmatched],
                "array": first and first._asdict(),
            }
            lines.append(f"step {step:,}, {kind}: {describe_arrays(found)}")
            break
    if not facts["compared"]:
        lines.append("not compared: the runs keep no checkpoint of the same step")
        return Section(None, facts, lines)
    same = sum(each["same"] for each in facts["compared"])
    if same:
        lines.insert(0, f"the same bytes in {same} of {len(common)} common checkpoints")
    return Section(facts["first"] is not None, facts, lines)
