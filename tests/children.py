"""Commands in processes of their own, started as a user or a launcher starts them."""

import os
import sys
from pathlib import Path

from t2t_jax.tools.verify.child_runs import LONG, Processes, rendezvous_flags
from tests.small_run import ROOT

# Runs a command as `-m` does, after something of the program was replaced.
PATCHED = """
import os, runpy, sys, time
from t2t_jax.io.messages import say
{patch}
module, *command = "{module}".split()
sys.argv[1:1] = command
runpy.run_module(module, run_name="__main__", alter_sys=True)
"""


class Children(Processes):
    """Processes of one test, and what they have printed.

    Args:
      logs: a new folder.
    """

    def __init__(self, logs):
        super().__init__(logs / "log")
        logs.mkdir()

    def start(
        self,
        *flags,
        module="t2t_jax.main",
        patch="",
        before=(),
        folder=ROOT,
        devices=1,
        **environment,
    ):
        """Starts one more command; `before` are words in front of it."""
        command = ["-m", *module.split()]
        if patch:
            command = ["-c", PATCHED.format(patch=patch, module=module)]
        command = [*before, sys.executable, *command, *map(str, flags)]
        environment |= {"JAX_NUM_CPU_DEVICES": str(devices)}
        return self.run(command, folder, **environment)

    def run(self, command, folder=ROOT, stdin=None, **environment):
        """Starts any command; `stdin` is a file that it reads."""
        super().start(command, folder, os.environ | environment, stdin)
        return self

    def start_each(self, flags, **options):
        """Starts processes that find each other; `flags` are those of each."""
        count = len(flags)
        for rendezvous, own_flags in zip(rendezvous_flags(count), flags, strict=True):
            self.start(*(rendezvous if count > 1 else []), *own_flags, **options)
        return self

    def logs(self):
        """The end of what all have said, for a test that fails."""
        return "\n".join(
            f"{i}: {self.err(i)[-3_000:]}" for i in range(len(self._popen))
        )

    def until(self, text, number=0):
        """Waits until a process has said a text, or something else is true."""
        reached = text if callable(text) else lambda: text in self.err(number)
        assert super().until(reached, number), self.logs()
        return self

    def send(self, signum, number=0):
        super().send(signum, number)
        return self

    def ends(self, *statuses, seconds=LONG):
        """Waits for the ends of all; a signal that kills is a negative status."""
        assert self.end(seconds) == [*statuses], self.logs()
        assert len(statuses) > 1 or "Traceback" not in self.err(), self.logs()
        return self


def start(stack, folder: Path, count, *flags, **options) -> Children:
    """Starts a command in new processes, which are killed when the stack is left."""
    number = len([*folder.glob("logs*")])
    children = stack.enter_context(Children(folder / f"logs{number}"))
    return children.start_each([flags] * count, **options)
