"""Measures what a bad client costs a good one: random requests at all limits at once.

    python -m benchmarks.serve_bad_client --workdir=DIR --lines=FILE --minutes=10

A real server has two API keys, so that its clients take turns; the clients' addresses
differ, too. The good client sends a line a second, whether or not earlier ones are
answered: first alone, each line once, then for --minutes next to the bad client, which
keeps CLIENTS connections busy with requests of --kinds (benchmarks/bad_client.py). Both
are processes of their own.

`right` are answers with the bytes of the answer to the same line alone, `lost` those
with another status than 200, such as a closed connection, or no answer in PATIENCE
seconds. Latencies are those of answers with status 200. Memory and open files are those
of the server at the start and each minute. At the end comes SIGTERM, while the bad
client continues; a server that does not end within a minute is killed. Requests of the
bad client are counted by the phase in which they begin.
"""

import contextlib
import json
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from random import Random

from absl import flags

from benchmarks import bad_client, measuring, run
from benchmarks.load import LEFT
from benchmarks.serve import Server, our_server, read_lines
from t2t_jax.decoding.translator import Translator
from t2t_jax.io.errors import UserError
from t2t_jax.io.messages import say

LINES = 60  # of the good client, who sends one a second
CLIENTS = 60  # connections that the bad client keeps busy
PATIENCE = 30.0  # seconds after which the good client gives up a request
MINUTE = 60.0
PHASES = "before SIGTERM", "after SIGTERM"
STATUSES = {LEFT: "unanswered", -1: "closed"}  # those of benchmarks/load.py
LATENCIES = "p50_ms", "p99_ms"
GOOD, BAD = "good-key", "bad-key"


def good_client(server: Server, lines: Sequence[str], count: int) -> dict:
    """Sends lines, one a second; returns the measurement of benchmarks/load.py."""
    requests = [
        {"body": {"lines": [line]}, "lines": 1, "leave": PATIENCE} for line in lines
    ]
    return server.requests(
        path="/v1/translate",
        requests=requests,
        headers={"Authorization": f"Bearer {GOOD}"},
        rate=1,
        regular=True,
        seconds=count + 0.5,
        keep=True,
    )


def good_row(name: str, load: dict, alone: Sequence[Sequence]) -> dict:
    """A row of the good client: answers compared with those to the lines alone."""
    counts, statuses = Counter(right=0, different=0, lost=0), Counter()
    for number, (status, body) in enumerate(load["answers"]):
        statuses[STATUSES.get(status, str(status))] += 1
        is_equal = body == alone[number % len(alone)][1]
        kind = "lost" if status != 200 else "right" if is_equal else "different"
        counts[kind] += 1
    answered = statuses["200"] > 0
    latencies = {key: load[key] if answered else None for key in LATENCIES}
    row = {"good_client": name, **counts, "statuses": described(statuses)}
    return row | latencies


def described(counts: dict[str, int]) -> str:
    return ", ".join(f"{count:,} × {name}" for name, count in sorted(counts.items()))


def state(server: Server, moment: str) -> dict:
    """A row of the server's memory and open files, blank if it has ended."""
    row = {"when": moment, "megabytes": None, "peak_megabytes": None, "files": None}
    if not server.ended():
        row["megabytes"] = server.megabytes()
        row["peak_megabytes"] = server.megabytes("VmHWM")
        row["files"] = server.files()
    say(str(row))
    return row


def each_minute(server: Server, minutes: float, work: Callable[[], dict]):
    """Works while the state of the server is read; returns the result and states."""
    began, states = time.monotonic(), []
    with ThreadPoolExecutor(1) as pool:
        working = pool.submit(work)
        for number in range(1, int(minutes) + 1):
            time.sleep(max(0.0, began + number * MINUTE - time.monotonic()))
            states.append(state(server, f"minute {number}"))
        return working.result(), states


@contextlib.contextmanager
def bad_process(**job) -> Iterator[subprocess.Popen]:
    """The bad client's process, which sends; ends it."""
    words = [sys.executable, "-m", "benchmarks.bad_client"]
    pipe = subprocess.PIPE
    with subprocess.Popen(words, stdin=pipe, stdout=pipe, text=True) as process:
        try:
            write_line(process, json.dumps(job))
            yield process
        finally:
            process.kill()


def write_line(process: subprocess.Popen, line: str) -> None:
    process.stdin.write(f"{line}\n")
    process.stdin.flush()


def bad_rows(counts: dict[str, dict[str, dict[str, int]]]) -> list[dict]:
    """A row for each kind of request, and one for all, with statuses of each phase."""
    kinds = sorted({kind for kind_counts in counts.values() for kind in kind_counts})
    rows = []
    for kind in [*kinds, "all"]:
        row = {"kind": kind}
        for phase in PHASES:
            statuses = Counter()
            for name, kind_statuses in counts.get(phase, {}).items():
                statuses.update(kind_statuses if kind in (name, "all") else {})
            row[phase] = described(statuses)
        rows.append(row)
    return rows


def define_flags():
    measuring.define_flags(rounds=None)
    flags.DEFINE_string("workdir", None, "Workdir to serve.", required=True)
    flags.DEFINE_string("lines", None, "Text file of source lines.", required=True)
    flags.DEFINE_float("minutes", 10.0, "Minutes next to the bad client.", 0.01)
    kinds = "Kinds of the bad client's requests; empty: all."
    flags.DEFINE_list("kinds", [], kinds)
    flags.DEFINE_integer("beam", 4, "Beam of all programs.")
    flags.DEFINE_integer("longest", 64, "Tokens of a source, with its end.")
    flags.DEFINE_multi_string("serve", [], "A flag of the server.")


def main(_):
    args = flags.FLAGS
    measuring.begin(args)
    translator = Translator.load(args.workdir)
    lines = read_lines(args.lines, LINES, translator, args.longest)
    data = translator.config.data
    texts = {"source": data.source, "target": data.target}
    available = bad_client.requests_by_kind(lines, **texts, rng=Random(0))
    kinds = measuring.chosen(args.kinds, available, "kinds") or [*available]
    with tempfile.TemporaryDirectory() as folder:
        (keys := Path(folder) / "keys").write_text(f"{GOOD}\n{BAD}\n")
        args.serve = [*args.serve, f"--api_keys={keys}"]
        with our_server(args) as server:
            states = [state(server, "ready")]
            alone = good_client(server, lines, len(lines))
            answers = alone["answers"]
            if {status for status, _ in answers} != {200}:
                statuses = described(alone["statuses"])
                raise UserError(f"alone, the good client got {statuses}; want 200 only")
            rows = [good_row("alone", alone, answers)]
            states.append(state(server, "after the good client alone"))
            job = {"port": server.port, "key": BAD, "kinds": kinds, "lines": lines}
            with bad_process(**job, **texts, clients=CLIENTS) as bad:
                write_line(bad, PHASES[0])
                count = max(1, round(MINUTE * args.minutes))
                work = partial(good_client, server, lines, count)
                load, during = each_minute(server, args.minutes, work)
                rows.append(good_row("next to the bad client", load, answers))
                states += [*during, state(server, "before SIGTERM")]
                write_line(bad, PHASES[1])
                ended = server.ended()
                seconds = server.stop()
                counts = json.loads(bad.communicate(timeout=MINUTE)[0])
    killed = "did not end, and was killed"
    stop = "ended before SIGTERM" if ended else killed if seconds is None else seconds
    bad_table = bad_rows(counts)
    for table in (bad_table, states):
        print("\n".join([*measuring.markdown(table), ""]))
    print(f"seconds from SIGTERM to the end: {stop}\n")
    measured = {"bad_client": bad_table, "server": states, "seconds_to_stop": stop}
    measuring.publish(rows, args.output, **measured)


if __name__ == "__main__":
    run(main, define_flags)
