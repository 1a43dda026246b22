"""Ctrl-C and SIGTERM, wherever a run is: nothing is lost, and it goes on as one run."""

import shutil
import signal
import socket
import subprocess
import sys
import threading

import pytest

from t2t_jax import train
from t2t_jax.evaluation import dev_answers
from t2t_jax.training import loop
from t2t_jax.training.checkpoint_folders import sealed_steps
from t2t_jax.training.stopping import SIGNALS, Interrupted
from t2t_jax.workdir import Workdir
from tests.faults.processes import RUN, Process, flags, metrics, outcome
from tests.small_run import ROOT, config_for

pytestmark = pytest.mark.usefixtures("compiled_once", "signals_as_ever")

INT, TERM = signal.SIGINT, signal.SIGTERM
SLOW_TO_SAVE = """
def seal(*_, **__):
    say("sealing")
    time.sleep(999)
sealed.seal = seal
"""
# What a signal raises inside a callback of the garbage collector, Python only prints.
TELLS_OF_EVALUATION = """
import gc
gc.disable()
from t2t_jax.decoding.translator import Translator
translate = Translator.translate
def told(*arguments, **options):
    say("evaluating")
    return translate(*arguments, **options)
Translator.translate = told
"""


def states(workdir):
    return sealed_steps(Workdir(workdir).checkpoints / "state")


@pytest.mark.slow
def test_a_run_that_is_interrupted_everywhere_is_one_run(undisturbed, short, tmp_path):
    workdir, prepared = tmp_path / "work", tmp_path / "prepared"

    def start(**options):
        given = flags(short, workdir, **RUN)
        return Process(*given, T2T_JAX_CACHE=str(prepared), **options)

    preparing = start().until("training the tokenizer").send(INT)
    assert preparing.end() == 130
    assert preparing.told.endswith("SIGINT: stopped; everything written is complete\n")
    assert not workdir.exists()

    # Before the loop, or in its first step, which it then saves.
    beginning = start().until("training  ").send(TERM)
    assert beginning.end() == 143
    assert states(workdir) in ([], [1])
    shutil.rmtree(workdir / "checkpoints", ignore_errors=True)

    saving = start(patch=SLOW_TO_SAVE).until("sealing").send(INT)
    saving.until("SIGINT: finishing this step and saving; again stops at once")
    assert saving.send(INT).end() == -INT  # killed, not merely ended
    assert states(workdir) == []

    training = start().until("the first step took").send(TERM)
    assert training.end() == 143
    (step,) = states(workdir)
    assert step < 20
    assert training.told.endswith(
        "\nSIGTERM: finishing this step and saving; again stops at once\n"
        f"SIGTERM: stopped after step {step}, which is saved; run the same "
        "command again to continue\n"
    )
    assert not (workdir / ".lock").exists()

    evaluating = start(patch=TELLS_OF_EVALUATION).until("evaluating").send(INT)
    assert evaluating.end() == 130
    assert f"continuing after step {step}" in evaluating.told
    assert "SIGINT: stopped after step 20, which is saved" in evaluating.told
    assert states(workdir)[-1] == 20
    assert not [entry for entry in metrics(workdir) if entry["kind"] == "dev"]

    # As nohup and a shell's & start it: a signal that is ignored stays so.
    ignoring = start(before=["sh", "-c", 'trap "" INT; exec "$@"', "sh"])
    ignoring.until("step 24/40").send(INT)
    assert ignoring.until("scoring with").send(TERM).end() == 143
    assert "SIGINT" not in ignoring.told
    assert not list((workdir / "scores").glob("*.json"))

    scoring = start().until("scoring with").send(INT)
    assert scoring.end() == 130
    assert scoring.told.endswith("SIGINT: stopped; everything written is complete\n")

    assert start().end() == 0
    assert outcome(workdir) == outcome(undisturbed)


def test_a_signal_is_a_keyboard_interrupt_in_python(
    trained, text, tmp_path, monkeypatch
):
    """In an evaluation it ends the run there and then, in a step after it."""
    workdir, handlers = tmp_path / "work", [signal.getsignal(s) for s in SIGNALS]
    step = loop.TrainingRun._step

    def raised_in_evaluation(self, parameters, step):
        signal.raise_signal(TERM)
        raise AssertionError("a signal ends an evaluation at once")

    def raised_in_a_step(self):
        if self.step == 9:
            signal.raise_signal(INT)
        step(self)

    for owner, name, other, signum, at in (
        (dev_answers.DevAnswers, "__call__", raised_in_evaluation, TERM, 6),
        (loop.TrainingRun, "_step", raised_in_a_step, INT, 10),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(owner, name, other)
            with pytest.raises(KeyboardInterrupt, match=f"after step {at}, which") as e:
                train(config_for(text), workdir)
        assert isinstance(e.value, Interrupted)
        assert e.value.signum == signum
        assert [signal.getsignal(s) for s in SIGNALS] == handlers
        assert states(workdir)[-1] == at
    scores = train(config_for(text), workdir)
    assert scores["test"]["checkpoints"] == [8, 12]  # not 10, which a signal saved
    assert outcome(workdir) == outcome(trained[0])


def test_in_another_thread_nothing_is_installed(text, tmp_path, monkeypatch):
    handlers, seen = [signal.getsignal(s) for s in SIGNALS], []

    def evaluate(self, parameters, step):
        seen.append([signal.getsignal(s) for s in SIGNALS])
        return {"bleu": 1.0}

    monkeypatch.setattr(dev_answers.DevAnswers, "__call__", evaluate)
    config = config_for(text, data={"test": ""}, train={"steps": 2, "eval_every": 2})
    thread = threading.Thread(target=train, args=(config, tmp_path / "work"))
    thread.start()
    thread.join()
    assert seen == [handlers]
    assert states(tmp_path / "work") == [2]


COUNTING = """
import signal, sys, time, jax
from t2t_jax.training.stopping import Interruption
number, port = sys.argv[1:]
jax.distributed.initialize(f"localhost:{port}", 2, int(number))
before = [signal.getsignal(s) for s in (signal.SIGINT, signal.SIGTERM)]
with Interruption() as interruption:
    assert [signal.getsignal(s) for s in (signal.SIGINT, signal.SIGTERM)] == before
    step = 1
    while not interruption.came(step) and step < 400:
        if step == 3:
            print("counting", flush=True)
        step += 1
        time.sleep(0.05)
print(step, interruption.ended("ended"), flush=True)
"""


def test_all_processes_of_a_run_stop_after_the_same_step():
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = str(free.getsockname()[1])
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", COUNTING, number, port],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        for number in "01"
    ]
    try:
        for process in processes:
            assert process.stdout.readline() == "counting\n"
        processes[1].send_signal(TERM)
        told = [process.communicate(timeout=500)[0] for process in processes]
    finally:
        for process in processes:
            process.kill()
    assert told[0] == told[1]
    assert told[0].endswith("SIGTERM: ended\n")
    assert 3 < int(told[0].split()[0]) < 400
