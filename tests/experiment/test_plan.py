"""The plan of an experiment does not change while it is run."""

import json

import pytest
from matplotlib import pyplot

from t2t_jax import load_config
from t2t_jax.commands.config_files import shipped_names
from t2t_jax.io import ideas
from t2t_jax.io.errors import UserError
from t2t_jax.tools.experiment import (
    Experiment,
    Measure,
    Row,
    command,
    experiment,
    with_fields,
)
from t2t_jax.tools.experiment.experiment import ExperimentRequest, freeze, with_changes
from t2t_jax.tools.experiment.results import read_results

TINY = load_config("tiny")
FEWER = {"table2": {"models": "transformer,lstm"}}  # each model takes seconds to match


class File:
    """An experiment's file that can be edited."""

    def __init__(self, folder):
        self.folder, self.layers, self.default = folder, (1, 2), 1

    def freeze(self, replan=False, changes=None, ideas=None, **parameters_given):
        """What a start of the command with these flags makes of it."""
        parameters = {"seeds": self.default} | parameters_given
        request = ExperimentRequest("mine", parameters, changes or {}, ideas or {})
        return freeze(self.folder, request, parameters_given, self.define, replan).rows

    def define(self, request):
        rows = [
            Row(
                f"layers={n}",
                with_fields(TINY, {"model.layers": n}),
                request.parameters["seeds"],
            )
            for n in self.layers
        ]
        experiment = Experiment(rows, columns=("test.bleu",))
        return with_changes(experiment, request.changes)


@pytest.fixture
def file(tmp_path):
    return File(tmp_path)


def test_later_edits_are_reported_and_change_nothing(file, capsys):
    rows = file.freeze()
    assert file.freeze() == rows
    assert capsys.readouterr().err == ""
    file.layers = (1, 3)
    assert file.freeze() == rows
    message = "(layers=2, layers=3); continuing with the plan. --replan"
    assert message in capsys.readouterr().err


def test_flags_that_are_left_out_are_those_of_the_plan(file):
    rows = file.freeze(seeds=2, changes={"train.steps": 7})
    old = (file.folder / "plan.json").read_bytes()
    file.default = 5  # is not given, so it does not contradict the plan
    assert file.freeze() == file.freeze(seeds=2) == rows
    rows = file.freeze(replan=True, seeds=3)
    assert [row.seeds for row in rows] == [3, 3]
    assert (file.folder / "plan.1.json").read_bytes() == old
    assert file.freeze() == rows


STEPS, MORE = {"changes": {"train.steps": 7}}, {"changes": {"train.steps": 8}}


@pytest.mark.parametrize(
    ("planned", "flags", "message"),
    [
        ({"seeds": 2}, {"seeds": 3}, "--seeds=2, and now --seeds=3 is"),
        (STEPS, MORE, r"with --config\.train\.steps=7, and"),
        ({"ideas": {"mine": "a"}}, {"ideas": {"mine": "b"}}, "mine, which has changed"),
    ],
)
def test_flags_given_otherwise_are_refused(file, planned, flags, message):
    file.freeze(**planned)
    with pytest.raises(UserError, match=message):
        file.freeze(**flags)


def test_a_damaged_plan_is_reported_and_can_be_replaced(file):
    rows = file.freeze()
    text = (file.folder / "plan.json").read_text()
    for damaged in (text[:100], text.replace('"layers": 2', '"layers": 4')):
        (file.folder / "plan.json").write_text(damaged)
        with pytest.raises(UserError, match=r"plan.json is damaged: .*--replan"):
            file.freeze()
    assert file.freeze(replan=True) == rows


@pytest.mark.parametrize("name", shipped_names("experiments"))
def test_rows_of_every_experiment_survive_the_plan(name, tmp_path):
    module = command.load(name)
    defaults = command.parameters(module)
    defined = command.define_experiment(module, defaults | FEWER.get(name, {}))
    for row in defined.rows:
        encoded = experiment._encoded(row)
        decoded = experiment._decoded(json.loads(json.dumps(encoded)))
        assert experiment._encoded(decoded) == encoded
        assert decoded.config == row.config
        assert decoded.runs == row.runs  # so their folders
    assert {*command.meanings(module)} <= {*defaults}
    # Reports and plots are made from the start, when nothing is finished.
    unfinished = read_results(defined.rows, tmp_path)
    for show in filter(None, (defined.report, defined.plot)):
        show(unfinished)
    pyplot.close("all")


def test_a_field_in_which_rows_differ_is_not_changed_in_all():
    rows = [
        Row("a", TINY),
        Row("b", with_fields(TINY, {"model.layers": 3})),
        Row("c", measures=[Measure("speed")], needs=["a"]),
    ]
    experiment = Experiment(rows, columns=(), fixed=["data.*vocab*"])
    changed = with_changes(experiment, {"train.steps": 7}).rows
    assert [row.config and row.config.train.steps for row in changed] == [7, 7, None]
    with pytest.raises(UserError, match="vocab_size: the rows .* were computed from"):
        with_changes(experiment, {"data.vocab_size": 400})
    with pytest.raises(UserError, match=r"--config\.model\.layers: .*\(2, 3\)"):
        with_changes(experiment, {"model.layers": 4})


def test_the_hash_of_a_run_is_of_what_it_trains_alone(monkeypatch):
    def hashed(changes, name="a"):
        return Row(name, with_fields(TINY, changes)).runs[0].hash

    plain = hashed({})
    assert hashed({"decode.beam": 4}, "another name") == plain  # its default
    assert hashed({"model.layers": 3}) != plain
    changes = {"model.layers": 3, "train.steps": 5}
    assert hashed(changes) == hashed(dict(reversed(changes.items())))
    monkeypatch.setitem(ideas.imported, "mine.py", "sha256 of it")
    with_ideas = hashed({})
    monkeypatch.setitem(ideas.imported, "mine.py", "after an edit")
    assert len({plain, with_ideas, hashed({})}) == 3
