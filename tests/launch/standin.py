"""Stands in for t2t_jax.main where the launchers are tested; knows no JAX.

Prints to both streams, then does what its arguments say: `--now=WHAT` every process,
`--PROCESS=WHAT` that one; or what the file of the variable STANDIN says. WHAT is end,
sleep, exit2, kill or stubborn. Asked to stop, it writes `saved-PROCESS` into
`--workdir` and exits with 143.
"""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path


def main(words):
    options = dict(word.lstrip("-").partition("=")[::2] for word in words)
    i = options.get("process_id", "0")
    workdir = Path(options.get("workdir", "."))
    workdir.mkdir(parents=True, exist_ok=True)

    def stop(*_):
        with (workdir / f"saved-{i}").open("a") as file:
            file.write("saved\n")
        time.sleep(0.2)
        sys.exit(143)

    action = options.get(i, options.get("now", "end"))
    if "STANDIN" in os.environ:
        action = Path(os.environ["STANDIN"]).read_text()
    signal.signal(signal.SIGTERM, signal.SIG_IGN if action == "stubborn" else stop)
    print(f"process {i} says", *words, flush=True)
    print(f"process {i} complains", file=sys.stderr, flush=True)
    gpus = os.environ.get("CUDA_VISIBLE_DEVICES")
    print(f"process {i} has GPUs {gpus}", file=sys.stderr, flush=True)
    numbers = [os.getpid()]
    if "child" in options:
        numbers.append(subprocess.Popen(["sleep", "63.25"]).pid)
    (workdir / f"ready-{i}").write_text(" ".join(map(str, numbers)))
    if action == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if action == "exit2":
        sys.exit(2)
    if action != "end":
        for _ in range(600):  # one long sleep could miss a signal just before it
            time.sleep(0.1)


if __name__ == "__main__":
    main(sys.argv[1:])
