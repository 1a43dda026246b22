"""Two runs side by side: where they part, against what was changed."""

import json

import jax
import numpy as np

from t2t_jax.data.feeding import Position
from t2t_jax.extensions.run.rerun import batch_of_step
from t2t_jax.io.atomic import checked_json, read_checked_json
from t2t_jax.tools.compare import runs
from t2t_jax.tools.compare.runs import (
    SECTIONS,
    OpenedRun,
    compare_runs,
    main_report,
)
from t2t_jax.training.divergence import Rollback, Rollbacks
from t2t_jax.workdir import Workdir


def opened(*workdirs):
    return [OpenedRun(Workdir(workdir), str(workdir)) for workdir in workdirs]


def test_a_run_and_its_copy_part_nowhere(trained, finished, capsys):
    main_report([trained[0], finished], as_json=True)
    sections = json.loads(capsys.readouterr().out)
    assert [*sections] == ["runs", *SECTIONS]
    differs = {name: sections[name]["differs"] for name in SECTIONS}
    assert differs == dict.fromkeys(SECTIONS, False) | {"metrics": None}
    assert sections["batches"]["same plan"]
    assert {(e["step"], e["kind"]) for e in sections["arrays"]["compared"]} >= {
        *((8, "state"), (12, "state"), (8, "parameters"), (12, "parameters"))
    }
    main_report([trained[0], finished], as_json=False)
    assert "part in: nothing that was compared" in capsys.readouterr().out


def test_each_difference_is_found_where_it_is(trained, finished, capsys):
    config = read_checked_json(finished / "config.json")
    config["train"]["seed"] = 7
    (finished / "config.json").write_bytes(checked_json(config))
    log = [json.loads(line) for line in (finished / "metrics.jsonl").open()]
    at_9 = next(e for e in log if (e["step"], e["kind"]) == (9, "train"))
    at_9["gradient_norm"] = np.nextafter(at_9["gradient_norm"], 1e9)
    log[0]["seconds"] += 1  # does not count
    (finished / "metrics.jsonl").write_text("".join(json.dumps(e) + "\n" for e in log))
    starts = json.loads((finished / "starts.jsonl").read_text())
    starts["machine"]["cores"] = 99
    (finished / "starts.jsonl").write_text(json.dumps(starts) + "\n")
    sections = compare_runs([trained[0], finished])
    assert sections["config"].facts == {"train.seed": [0, 7]}
    assert not sections["data"].differs
    assert sections["machines"].facts["fields"] == ["cores"]
    difference = sections["log"].facts["train"]["first"]
    assert (difference["step"], difference["name"]) == (9, "gradient_norm")
    assert sections["log"].facts["dev"]["first"] is None
    # Another seed, another order.
    a, b = (
        {(p["corpus"], p["line"]) for p in map(json.loads, batch_of_step(w, 1)[1])}
        for w in (trained[0], finished)
    )
    assert sections["batches"].facts["first"] == 1
    assert sections["batches"].facts["common"] == len(a & b) < len(a)
    main_report([trained[0], finished], as_json=False)
    printed = capsys.readouterr().out
    assert "part in: config, machines, batches, log\n" in printed
    assert "cores: XLA divides the sums" in printed


def test_both_ways_to_the_first_other_batch_agree(trained, finished):
    """By what makes the batches, and by making them."""
    a, b = opened(trained[0], finished)
    assert runs.first_other_position(a, b, 12) is None
    assert runs.first_other_batch(a, b, 12) is None
    back = Rollback(5, Position(0, 5), Position(0, 9), "a test")
    Rollbacks(Workdir(finished)).add(back)
    a, b = opened(trained[0], finished)
    assert runs.same_plan(a, b)
    assert runs.first_other_position(a, b, 12) == 6
    assert runs.first_other_batch(a, b, 12) == 6
    assert batch_of_step(finished, 6)[0] == Position(0, 9)
    # Steps that both have are compared, and no later ones.
    assert runs.first_other_position(a, b, 5) is None
    assert runs.first_other_batch(a, b, 5) is None


def test_the_first_array_is_found(trained, finished, monkeypatch):
    def read(path, shapes):
        tree = stored_arrays(path, shapes)
        if str(path) != f"{finished}/checkpoints/parameters/8":
            return tree
        leaves, structure = jax.tree.flatten(tree)
        leaves[3] = np.array(leaves[3])
        leaves[3].view(np.uint32).reshape(-1)[0] ^= 1
        return jax.tree.unflatten(structure, leaves)

    stored_arrays = runs.stored_arrays
    monkeypatch.setattr(runs, "stored_arrays", read)
    section = runs.arrays_section(*opened(trained[0], finished))
    array = section.facts["first"]
    assert (array["step"], array["kind"], array["differing"]) == (8, "parameters", 1)
    assert array["array"]["count"] == 1
    assert f"{array['array']['name']} [" in section.lines[-1]
