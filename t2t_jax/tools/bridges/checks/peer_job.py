"""Does a job with a script of `peers/`, which names its functions in `TASKS`.

    python -P peer_job.py SCRIPT.py JOB.json

The job names a `task`, its arguments and an `output` file, which gets the result as
JSON; or, of the task `logits`, arrays `logits_0`, ... as .npz.
"""

import json
import runpy
import sys
from pathlib import Path

import numpy as np


def main(script: str, file: str) -> None:
    job = json.loads(Path(file).read_bytes())
    result = runpy.run_path(script)["TASKS"][job["task"]](job)
    if job["task"] == "logits":
        named = {f"logits_{row}": x for row, x in enumerate(result)}
        np.savez(job["output"], **named)
    else:
        Path(job["output"]).write_text(json.dumps(result))


if __name__ == "__main__":
    main(*sys.argv[1:])
