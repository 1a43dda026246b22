"""Where the time of a run went: it adds up, also after kills and rollbacks."""

import time
from collections import Counter

import pytest

from t2t_jax.training import time_log
from t2t_jax.training.time_log import TimeLog, Times, read_times, summarize
from t2t_jax.workdir import Workdir


@pytest.fixture
def workdir(tmp_path):
    (tmp_path / "run").mkdir()
    return Workdir.open(tmp_path / "run")


def test_the_phases_of_a_start_add_up_to_its_time(workdir):
    log = TimeLog()
    log.open(workdir, 0)
    for step, phase in enumerate(["steps", "checkpoints", "steps", "evaluation"]):
        outer = log.enter(phase)
        with log.during("input"):
            time.sleep(0.01)
        log.enter(outer if phase != "steps" else phase)
        log.write(step)
    log.enter("scoring")
    log.close(workdir, 4)
    wall = time.time() - log.began
    summary = summarize(read_times(workdir))
    assert sum(summary.seconds.values()) == pytest.approx(wall, abs=0.05)
    assert summary.seconds["input"] >= 0.04
    assert (summary.starts, summary.repeated) == (1, 0)


def test_what_a_killed_start_did_to_its_last_line_is_lost_and_known(workdir):
    killed = TimeLog()
    killed.open(workdir, 0)
    killed.enter("steps")
    killed.write(10)
    lasting = time.time() - killed.began
    time.sleep(0.1)
    killed.write(15, urgent=False)  # a logging interval; a kill follows
    wall = time.time() - killed.began
    (workdir / "alive").write_text("1.0 2.0\n")  # of an earlier version: ignored
    log = TimeLog()
    log.open(workdir, 10)
    log.close(workdir, 20)
    summary = summarize(read_times(workdir))
    assert summary.seconds["lost"] == pytest.approx(wall - lasting, abs=0.05)
    assert (summary.starts, summary.repeated) == (2, 5)


def test_a_bucket_gets_the_lines_of_logging_intervals_with_the_next_save(
    workdir, monkeypatch
):
    monkeypatch.setattr(time_log, "is_local", lambda _: False)
    log = TimeLog()
    log.open(workdir, 0)
    log.write(5, urgent=False)
    assert [line.step for line in read_times(workdir)] == [0]
    log.write(10)
    assert [line.step for line in read_times(workdir)] == [0, 5, 10]


def test_a_start_that_only_scores_ends_what_a_killed_one_began(workdir):
    killed = TimeLog()
    killed.open(workdir, 0)
    killed.write(10)
    killed.enter("scoring")
    killed.stop()
    time.sleep(0.01)
    log = TimeLog()
    log.enter("scoring")
    time.sleep(0.01)
    log.close(workdir, 10)
    summary = summarize(read_times(workdir))
    assert summary.starts == 2
    assert summary.seconds["scoring"] >= 0.01
    content = (workdir / time_log.TIMES).read_bytes()
    TimeLog().close(workdir, 10)  # of a run that is finished
    assert (workdir / time_log.TIMES).read_bytes() == content


def test_discarded_work_is_lost_and_its_steps_are_repeated():
    def line(began, step, **seconds):
        return Times(began, step, seconds)

    lines = [
        line(1.0, 0, start=3.0),
        line(1.0, 50, compilation=2.0, steps=5.0),
        line(1.0, 50, evaluation=1.0),
        line(1.0, 80, steps=3.0, checkpoints=0.5),
        line(1.0, 80, lost=0.7),
        # Continued from step 50: the save of step 80 was not complete.
        line(2.0, 50, start=2.5),
        line(2.0, 90, steps=4.0),
        line(2.0, 70, checkpoints=0.2),  # a rollback
        line(2.0, 100, steps=1.0),
    ]
    summary = summarize(lines)
    assert summary.repeated == 30 + 20
    assert summary.starts == 2
    lasting = {"start": 5.5, "compilation": 2.0, "steps": 6.0, "evaluation": 1.0}
    lasting |= {"checkpoints": 0.2, "lost": 3.5 + 0.7 + 4.0}
    assert summary.seconds == pytest.approx(lasting)
    every = sum((Counter(times.seconds) for times in lines), Counter())
    assert sum(summary.seconds.values()) == pytest.approx(every.total())
    assert summary.lines()[0] == "time of the run: 2 starts, at least 50 steps repeated"


def test_a_damaged_line_is_left_out(workdir):
    line = '{"began": 1.0, "step": 3, "seconds": {"steps": 2.0}}\n'
    (workdir / time_log.TIMES).write_text(f'{line}{{"began": 1.0}}\n{line[:20]}')
    log = TimeLog()
    log.open(workdir, 3)
    log.close(workdir, 5)
    assert [times.step for times in read_times(workdir)] == [3, 3, 5]
    assert summarize(read_times(Workdir(workdir / "none"))).lines() == []
