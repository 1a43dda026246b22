"""The end of a run has its parameters, and no stop before it changes anything.

Whatever ends it: all steps, raised steps, time, patience, or the last step asked for.
"""

import random

import pytest

from tests.faults.ends import (
    ENDS,
    SteppingClock,
    Stop,
    assert_undisturbed,
    config_with,
    ended,
    live,
    random_stops,
)

pytestmark = pytest.mark.usefixtures("compiled_once", "signals_as_ever")

# Steps between two saves: more than there are, divisors of the ends, and others.
SAVE_EVERY = (1_500, 8, 5)


@pytest.fixture(scope="module")
def undisturbed_run(tmp_path_factory, compiled_once):
    """An undisturbed run that ends by the last of some fields, made once."""
    folder, made = tmp_path_factory.mktemp("whole"), {}

    def of(name, save_every):
        key = name, save_every
        if key not in made:
            made[key] = folder / f"{len(made)}"
            end = ENDS[name]
            ended(made[key], end._replace(train=end.train[-1:]), save_every)
        return made[key]

    return of


@pytest.mark.parametrize(
    ("name", "save_every"),
    [*((name, 1_500) for name in ENDS), ("all_steps", 5), ("raised_minutes", 8)],
)
def test_a_stop_changes_nothing_of_the_end(name, save_every, undisturbed_run, tmp_path):
    stops = [Stop("stopped", 3), Stop("killed", 9), Stop("stopped", 11)]
    stops.append(Stop("sealing", 2))  # the parameters of the end, or an average
    ended(tmp_path / "work", ENDS[name], save_every, stops)
    assert_undisturbed(
        undisturbed_run(name, save_every), tmp_path / "work", ENDS[name], save_every
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", ENDS)
def test_fifty_stops_change_nothing_of_the_end(name, undisturbed_run, tmp_path):
    """Of each kind of end; about three minutes on two cores, for all kinds."""
    chance, came, number = random.Random(name), 0, 0
    while came < 50:
        save_every = SAVE_EVERY[number % len(SAVE_EVERY)]
        stops = random_stops(chance, 1 + number % 6)
        workdir = tmp_path / f"{number}"
        came += ended(workdir, ENDS[name], save_every, stops)
        assert_undisturbed(
            undisturbed_run(name, save_every), workdir, ENDS[name], save_every
        )
        number += 1
    print(f"{name}: {came} stops of {number} runs")


def test_an_ended_run_has_nothing_left_to_do(tmp_path):
    """A limit of time that an evaluation goes beyond ends the run where it is saved."""
    config = config_with(6, steps=99, minutes=10 / 60)

    def evaluate(step):
        SteppingClock.now += 100

    workdir = tmp_path / "work"
    workdir.mkdir()
    outcome = live(workdir, config, evaluate=evaluate)
    repeated = live(workdir, config, evaluate=evaluate)
    assert repeated.first == repeated.last == outcome.last
    assert repeated.why == outcome.why
    assert "config.train.minutes" in outcome.why
