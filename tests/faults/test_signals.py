"""Ctrl-C and SIGTERM, wherever a run is: nothing is lost, and it goes on as one run."""

import os
import shutil
import signal
import sys
import threading
import time

import pytest

from t2t_jax import train
from t2t_jax.evaluation import dev_answers
from t2t_jax.io import interruption
from t2t_jax.io.interruption import SIGNALS, Interrupted, watched
from t2t_jax.training import loop
from t2t_jax.training.checkpoint_folders import sealed_steps
from t2t_jax.training.stopping import Interruption
from t2t_jax.workdir import Workdir
from tests.small_run import assert_same_run, config_for, flags_for

pytestmark = pytest.mark.usefixtures("compiled_once", "signals_as_ever")

INT, TERM = signal.SIGINT, signal.SIGTERM


def states(workdir):
    return sealed_steps(Workdir(workdir).checkpoints / "state")


@pytest.mark.slow
def test_a_run_that_is_interrupted_everywhere_is_one_run(text, tmp_path, start):
    """In an evaluation, and twice while it saves: by the tests below."""
    short, workdir = shutil.copytree(text, tmp_path / "text"), tmp_path / "work"
    for file in short.glob("dev.*"):
        lines = file.read_text(encoding="utf-8").splitlines(keepends=True)
        file.write_text("".join(lines[:2] * 100), encoding="utf-8")
    fields = {"steps": 40, "log_every": 4, "eval_every": 20, "dev_lines": 200}
    command = flags_for(short, workdir, train=fields)
    start(1, *flags_for(short, tmp_path / "whole", train=fields)).ends(0)

    def begin(**options):
        return start(1, *command, T2T_JAX_CACHE=str(tmp_path / "prepared"), **options)

    stopped = "SIGINT: stopped; everything written is complete\n"
    preparing = begin().until("training the tokenizer").send(INT).ends(130)
    assert preparing.err().endswith(stopped)
    assert not workdir.exists()

    # Before the loop, or in its first step, which it then saves.
    begin().until("training  ").send(TERM).ends(143)
    assert states(workdir) in ([], [1])
    shutil.rmtree(workdir / "checkpoints", ignore_errors=True)

    training = begin().until("the first step took").send(TERM).ends(143)
    (step,) = states(workdir)
    assert step < 20
    assert training.err().endswith(
        f"SIGTERM: stopped after step {step}, which is saved; run the same "
        "command again to continue\n"
    )
    assert not (workdir / ".lock").exists()

    # As nohup and a shell's & start it: a signal that is ignored stays so.
    ignoring = begin(before=["sh", "-c", 'trap "" INT; exec "$@"', "sh"])
    ignoring.until("step 24/40").send(INT)
    ignoring.until("scoring with").send(TERM).ends(143)
    assert "SIGINT" not in ignoring.err()
    assert not list((workdir / "scores").glob("*.json"))

    scoring = begin().until("scoring with").send(INT).ends(130)
    assert scoring.err().endswith(stopped)

    begin().ends(0)
    assert_same_run(tmp_path / "whole", workdir)


def test_a_signal_is_a_keyboard_interrupt_in_python(
    trained, text, tmp_path, monkeypatch
):
    """In an evaluation it ends the run there and then, in a step after it."""
    workdir, handlers = tmp_path / "work", [signal.getsignal(s) for s in SIGNALS]
    step = loop.TrainingRun._step

    def raised_in_evaluation(self, parameters, step):
        signal.raise_signal(TERM)
        interruption.check()
        raise AssertionError("a signal ends an evaluation at its next batch")

    def raised_in_a_step(self):
        if self.step == 9:
            signal.raise_signal(INT)
        step(self)

    for owner, name, replacement, signum, last_step in (
        (dev_answers.DevAnswers, "__call__", raised_in_evaluation, TERM, 6),
        (loop.TrainingRun, "_step", raised_in_a_step, INT, 10),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(owner, name, replacement)
            with pytest.raises(
                KeyboardInterrupt, match=f"after step {last_step}, which"
            ) as e:
                train(config_for(text), workdir)
        assert isinstance(e.value, Interrupted)
        assert e.value.signum == signum
        assert [signal.getsignal(s) for s in SIGNALS] == handlers
        assert states(workdir)[-1] == last_step
    scores = train(config_for(text), workdir)
    assert scores["test"]["checkpoints"] == [8, 12]  # not 10, which a signal saved
    # Of states also the one before is kept, which is that of the interruption.
    assert_same_run(trained[0], workdir, "state", "names")


# ------------------------------------------------------------------- the mechanism


class Signals:
    """Gets a signal where Python drops every exception."""

    def __init__(self, signum=TERM):
        self.signum = signum

    def __del__(self):
        signal.raise_signal(self.signum)


@pytest.mark.parametrize("signum", SIGNALS)
def test_no_signal_is_lost_and_none_raises_where_it_comes(signum, monkeypatch):
    dropped = []
    monkeypatch.setattr(sys, "unraisablehook", dropped.append)
    before = [signal.getsignal(s) for s in SIGNALS]
    with watched() as watch, watched() as inner:
        interruption.check()
        Signals(signum)
        assert not dropped
        assert watch is inner
        thread = threading.Thread(target=interruption.check)  # raises nothing there
        thread.start()
        thread.join()
        with watch.held("", lambda: False):
            interruption.check()
            with pytest.raises(Interrupted), watch.at_once():
                raise AssertionError("it came before")
            interruption.check()
        with pytest.raises(Interrupted, match="stopped; everything") as e:
            interruption.check()
        assert e.value.signum == signum
    assert [signal.getsignal(s) for s in SIGNALS] == before
    interruption.check()  # the next run of this process begins anew
    assert not dropped


def test_a_forwarded_signal_counts_when_nobody_has_asked_for_it():
    """Of several processes, which agree on when it comes; it may come after that."""
    with watched() as watch:
        with watch.held("", lambda: False, forward=signal.SIGCHLD):
            Signals(INT)
            assert watch.signum is None
        with pytest.raises(Interrupted, match="SIGINT"):
            interruption.check()


@pytest.mark.parametrize("signum", SIGNALS)
def test_a_signal_before_the_loop_ends_the_run(signum):
    """Of several processes only this one would know of it, and stop alone."""
    with watched():
        Signals(signum)
        with pytest.raises(Interrupted, match="stopped; everything"), Interruption():
            raise AssertionError("it came before")


@pytest.mark.parametrize("signum", SIGNALS)
def test_a_signal_ends_the_wait_for_a_line(signum):
    read, write = os.pipe()
    timers = [
        threading.Timer(0.2, os.kill, [os.getpid(), signum]),
        threading.Timer(30, os.close, [write]),
    ]
    os.write(write, b"one\n")
    lines_read = []
    with watched() as watch, open(read, "rb") as lines:
        for timer in timers:
            timer.start()
        with pytest.raises(KeyboardInterrupt):
            lines_read.extend(interruption.awaited(lines))
        assert signal.getsignal(signum) == watch._note
    timers[1].cancel()
    os.close(write)


WATCHED = """
import os, sys, threading, time
from t2t_jax.io import interruption
interruption.GRACE, interruption.REPEAT = 0.5, 1.0
def lost():
    return {lost}
with interruption.watched(ends=True) as watch:
    with watch.held("saving", lambda: not lost()):
        print("ready", file=sys.stderr, flush=True)
        {work}
"""


PROCESSES = {
    # In a library that does not come back, such as a compiler.
    "a_lock": ("False", "threading.Lock().acquire(); time.sleep(99)", [TERM], 143),
    "ctrl_c": ("False", "time.sleep(99)", [INT], 130),
    "unsaved": ("True", "time.sleep(3); os._exit(0)", [TERM], 0),
    "repeated": ("True", "time.sleep(3); os._exit(0)", [TERM, TERM, INT], 0),
    "again": ("True", "time.sleep(99)", [TERM, 2.0, TERM], -TERM),
    # Its pipe is open in the child, too.
    "outlived": (
        "False",
        "child = os.fork() or time.sleep(99);"
        "import atexit; atexit.register(os.kill, child, 9)",
        [],
        0,
    ),
    # A worker's end is not its parent's.
    "forked": (
        "True",
        "child = os.fork() or time.sleep(99); time.sleep(1); os.kill(child, 15);"
        "os._exit(os.waitpid(child, 0)[1])",
        [],
        TERM,
    ),
}


@pytest.mark.parametrize("name", PROCESSES)
def test_what_a_process_does_with_signals(name, start):
    lost, work, sent, status = PROCESSES[name]
    script = WATCHED.format(lost=lost, work=work)
    process = start(0).run([sys.executable, "-c", script]).until("ready")
    for signal_or_pause in sent:
        if isinstance(signal_or_pause, float):
            time.sleep(signal_or_pause)
        else:
            process.send(signal_or_pause)
    log = process.ends(status).err()
    assert ("saving" in log) == bool(sent)
    assert ("stopped; everything written is complete" in log) == (status > 128)
