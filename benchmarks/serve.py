"""Measures the translation server: lines a second, latencies, starts, bits and memory.

    python -m benchmarks.serve --workdir=DIR --lines=FILE
    python -m benchmarks.serve --workdir=DIR --lines=FILE --peers= --bits=10000
    python -m benchmarks.serve --workdir=DIR --lines=FILE --peers= --soak=100000

Server and clients (benchmarks/load.py) are processes of their own. In a closed loop
each client sends the next request when it has an answer: single lines, and arrays of
--array. In an open loop, single lines arrive at random times at shares of the highest
rate of the closed ones, and a latency begins when its line arrives. `share of
translate` compares with `python -m t2t_jax translate` of the same file, without its
start; it knows all lines beforehand. A cold start has no compiled programs, a warm one
those of the cold.

The peers (benchmarks/serve_peers.py) are servers of twenty lines around CTranslate2
with the same weights in float32 and the same beam: each request is a batch, or those of
5 ms are. All take turns in each round, and medians of rounds are given.

--bits sends requests of 64 clients in random order, with random options, lengths and
cancellations, and compares each answer with `Translator.translate` of the line alone.
--soak reads the server's memory every 1,000 requests.
"""

import contextlib
import http.client
import json
import os
import random
import re
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from statistics import median

from absl import flags

from benchmarks import measuring, peers, run
from t2t_jax.decoding.translator import Translator
from t2t_jax.io.errors import UserError
from t2t_jax.io.messages import say

PEERS = {"ctranslate2": [], "ctranslate2-queue": ["0.005"]}
SHARES = 0.5, 0.8  # of the capacity, in open loops
CLIENTS = 64  # of --bits
SOAKING = 8  # clients of --soak
DISTINCT = 200  # lines of --bits: each is translated alone with each option
METRIC = "t2t_jax_compilations_since_ready"


class Server:
    """A server in a process of its own; a context that ends with it.

    Attributes:
      seconds: from its start until it was ready.

    Args:
      words: of its command line, without the port.
      port_flag: what comes before the number of the port in it.
      programs: folder of compiled programs; None: the user's.
    """

    def __init__(self, words: Sequence[str], port_flag: str, programs: Path | None):
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        words = [word.replace("PORT", f"{port_flag}{self.port}") for word in words]
        self.environment = os.environ | (
            {"JAX_COMPILATION_CACHE_DIR": str(programs)} if programs else {}
        )
        self.words = [sys.executable, "-m", *words]

    def __enter__(self) -> "Server":
        self._log = tempfile.TemporaryFile()
        began = time.perf_counter()
        self._process = subprocess.Popen(
            self.words, env=self.environment, stdout=self._log, stderr=self._log
        )
        self.pid = self._process.pid
        try:
            while not self._ready():
                if self._process.poll() is not None:
                    raise RuntimeError(f"{self.words} ended:\n{self.log()}")
                time.sleep(0.02)
        except BaseException:
            self.__exit__()
            raise
        self.seconds = time.perf_counter() - began
        return self

    def __exit__(self, *_) -> None:
        self._process.terminate()
        try:
            self._process.wait(60)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _ready(self) -> bool:
        with contextlib.suppress(OSError):
            return self.get("/ready")[0] == 200
        return False

    def log(self) -> str:
        """The end of what the server has printed."""
        self._log.seek(0)
        return self._log.read().decode(errors="replace")[-3000:]

    def get(self, path: str) -> tuple[int, str]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        finally:
            connection.close()

    def compilations(self) -> int:
        """Programs compiled since it was ready."""
        text = self.get("/metrics")[1]
        return int(float(re.search(rf"^{METRIC} (\S+)$", text, re.MULTILINE)[1]))

    def megabytes(self) -> float:
        """Memory of the process."""
        status = Path(f"/proc/{self.pid}/status").read_text()
        return int(re.search(r"VmRSS:\s*(\d+) kB", status)[1]) / 1e3

    def load(self, **job) -> dict:
        """Sends requests; see benchmarks/load.py."""
        done = subprocess.run(
            [sys.executable, "-m", "benchmarks.load"],
            input=json.dumps({"port": self.port, "pid": self.pid, **job}),
            capture_output=True,
            text=True,
        )
        if done.returncode:
            raise RuntimeError(f"the clients failed:\n{done.stderr}\n{self.log()}")
        return json.loads(done.stdout)


def our_server(args, programs: Path | None = None) -> Server:
    words = ["t2t_jax", "serve", f"--workdir={args.workdir}", "PORT"]
    limits = [f"--beams={args.beam}", f"--longest={args.longest}"]
    return Server([*words, *limits, *args.serve], "--port=", programs)


def requests_of(lines: Sequence[str], size: int, languages: dict) -> list[dict]:
    """Requests of `size` lines each, in the form of LibreTranslate."""
    parts = [lines[n : n + size] for n in range(0, len(lines), size)]
    return [{"body": {"q": part, **languages}, "lines": len(part)} for part in parts]


# ------------------------------------------------------------------- speed and latency


def medians(results: Sequence[dict], work: str, program: str) -> dict:
    """A row of the medians of some loads."""
    statuses = sum((Counter(each["statuses"]) for each in results), Counter())
    numbers = ("lines_per_second", "p50_ms", "p95_ms", "p99_ms", "cpu_ms_per_line")
    return {
        "work": work,
        "program": program,
        **{name: median(each[name] for each in results) for name in numbers},
        "not_answered": sum(n for status, n in statuses.items() if status != "200"),
    }


def loads(
    servers: dict[str, Server], lines: Sequence[str], languages: dict, args
) -> list[dict]:
    """Rows of all loops, of each server."""
    clock = {"path": "/translate", "warm": args.warm, "seconds": args.seconds}
    rows: list[dict] = []

    def measure(work: str, jobs: dict[str, dict]) -> None:
        contenders = {
            name: partial(server.load, **clock, **jobs[name])
            for name, server in servers.items()
        }
        for name, results in measuring.turns(contenders, args.rounds).items():
            rows.append(medians(results, work, name))
            say(f"{work}, {name}: {rows[-1]['lines_per_second']:,.1f} lines/s")

    for size in dict.fromkeys((1, args.array)):
        sent = {"requests": requests_of(lines, size, languages)}
        what = "single lines" if size == 1 else f"arrays of {size}"
        for clients in map(int, args.clients):
            job = sent | {"clients": clients}
            measure(f"closed, {clients} clients, {what}", dict.fromkeys(servers, job))
    single = {"requests": requests_of(lines, 1, languages)}
    capacity = {
        name: max(
            row["lines_per_second"]
            for row in rows
            if row["program"] == name and "single" in row["work"]
        )
        for name in servers
    }
    for share in SHARES:
        jobs = {name: single | {"rate": share * capacity[name]} for name in servers}
        measure(f"open, {share:.0%} of the capacity", jobs)
    return rows


def translated(args, lines: Sequence[str], folder: Path) -> tuple[float, float]:
    """Wall and processor seconds of `translate` of some lines."""
    (folder / "source").write_text("".join(f"{line}\n" for line in lines))
    output = folder / "translated"
    output.unlink(missing_ok=True)
    words = ["t2t_jax", "translate", f"--workdir={args.workdir}", f"--beam={args.beam}"]
    files = [f"--input={folder / 'source'}", f"--output={output}"]
    began = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, "-m", *words, *files],
        stderr=subprocess.PIPE,
        text=True,
    )
    error = process.stderr.read()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(f"translate failed:\n{error[-3000:]}")
    return time.perf_counter() - began, usage.ru_utime + usage.ru_stime


def translate_row(args, lines: Sequence[str], folder: Path) -> dict:
    """`translate` of the file, less the time of its first line, which starts it."""
    translated(args, lines, folder)  # compiles
    rounds = [
        (translated(args, lines, folder), translated(args, lines[:1], folder))
        for _ in range(args.rounds)
    ]
    wall, cpu = (
        median(every[n] - one[n] for every, one in rounds) / max(1, len(lines) - 1)
        for n in (0, 1)
    )
    empty = dict.fromkeys(("p50_ms", "p95_ms", "p99_ms"))
    return {
        "work": "the file, known beforehand",
        "program": "translate",
        "lines_per_second": 1 / wall,
        **empty,
        "cpu_ms_per_line": 1e3 * cpu,
        "not_answered": 0,
    }


def peer_servers(translator: Translator, names: Sequence[str], args, folder: Path):
    """The peers' servers, which have the exported model; not started yet."""
    if not names:
        return {}
    peers.need("ctranslate2", "starlette", "uvicorn")
    from t2t_jax.tools.bridges.exports import to_ctranslate2

    folder.mkdir()
    exported = to_ctranslate2.write(translator, folder, {"quantization": "float32"})
    decode = translator.config.decode
    options = {
        "beam_size": args.beam,
        "length_penalty": decode.alpha,
        "max_batch_size": 32,
        "max_decoding_length": args.longest + decode.extra_length,
    }
    described = {"tokenizer": exported["tokenizer"], "options": options}
    (folder / "peer.json").write_text(json.dumps(described))
    words = ["benchmarks.serve_peers", str(folder), "PORT"]
    return {name: Server([*words, *PEERS[name]], "", None) for name in names}


def starts(args, folder: Path) -> dict[str, float]:
    """Median seconds from the start until ready, without and with compiled programs."""
    seconds: dict[str, list[float]] = {"cold": [], "warm": []}
    for number in range(args.rounds):
        for kind in seconds:
            with our_server(args, folder / f"programs{number}") as server:
                seconds[kind].append(server.seconds)
    return {kind: median(values) for kind, values in seconds.items()}


# ------------------------------------------------------------------------ bits, memory


def options_of(translator: Translator, lines: Sequence[str], beam: int) -> list[dict]:
    """Options of requests; phrases and prefixes are of this model's translations."""
    texts = [each.text for each in translator.translate(lines[:20], warn=False)]
    words = list(dict.fromkeys(w for t in texts for w in t.split() if w.isalpha()))
    first = [text.split()[0] for text in texts if text.split()]
    made: list[dict] = [{}, {"nbest": beam}, {"beam": beam}]
    made += [{"prefix": word} for word in first[:2]]
    made += [{"must": [word]} for word in words[:2]]
    made += [{"must_not": words[:2]}, {"must": words[2:3], "must_not": words[3:4]}]
    return made


def drawn_requests(lines: Sequence[str], options: list[dict], count: int) -> list[dict]:
    """Random requests; every tenth client leaves before its answer."""
    rng, made = random.Random(0), []
    for _ in range(count):
        part = rng.sample(lines, min(rng.choice((1, 1, 1, 2, 5, 20)), len(lines)))
        body = {"lines": part, **rng.choice(options)}
        leave = rng.uniform(0, 0.2) if rng.random() < 0.1 else None
        made.append({"body": body, "lines": len(part), "leave": leave})
    return made


def expected(translator: Translator, line: str, options: dict) -> list | str:
    """The hypotheses of a line that is translated alone, or why it is refused."""
    try:
        (found,) = translator.translate([line], warn=False, **options)
    except UserError as e:
        return str(e)
    finite = ["score", "log_prob"]
    return [
        {"text": h.text, "ended": h.ended, "tokens": [*map(int, h.tokens)]}
        | {n: x if abs(x := getattr(h, n)) < float("inf") else None for n in finite}
        for h in found.hypotheses
    ]


def differing(
    requests: Sequence[dict],
    answers: Sequence[tuple[int, str]],
    alone: Callable[[str, dict], list | str],
) -> dict:
    """Counts lines whose answers are not those of the line alone.

    Args:
      alone: as `expected`; called once for each line with each of the options.
    """
    known: dict[tuple, list | str] = {}
    counts = Counter(lines=0, different=0, left=0, refused=0, failed=0)
    for request, (status, body) in zip(requests, answers, strict=True):
        options = {k: v for k, v in request["body"].items() if k != "lines"}
        if status != 200:
            # 429 and 503 are answers of a server that has too much to do.
            kind = {0: "left", 429: "refused", 503: "refused"}.get(status, "failed")
            counts[kind] += 1
            continue
        for line, row in zip(
            request["body"]["lines"], json.loads(body)["translations"], strict=True
        ):
            key = line, json.dumps(options, sort_keys=True)
            if key not in known:
                known[key] = alone(line, options)
            right = known[key]
            refused = isinstance(right, str)  # its message names another line
            same = refused if "error" in row else row["hypotheses"] == right
            counts["lines"] += 1
            counts["different"] += not same
    return dict(counts)


def bits(server: Server, translator: Translator, lines: Sequence[str], args) -> dict:
    """Compares the answers of a busy server with those to each line alone."""
    lines = lines[:DISTINCT]
    translator = translator.with_options(beam=args.beam)
    options = options_of(translator, lines, args.beam)
    requests = drawn_requests(lines, options, args.bits)
    done = server.load(
        path="/v1/translate",
        requests=requests,
        count=args.bits,
        clients=CLIENTS,
        keep=True,
    )
    return differing(requests, done["answers"], partial(expected, translator))


def soak(server: Server, lines: Sequence[str], args) -> list[float]:
    """Megabytes of the server before, and after each 1,000 requests."""
    options: list[dict] = [{}, {"nbest": args.beam}, {"must_not": ["x"]}]
    requests = drawn_requests(lines[:DISTINCT], options, 1_000)
    memory = [server.megabytes()]
    for number in range(0, args.soak, 1_000):
        count = min(1_000, args.soak - number)
        job = {"path": "/v1/translate", "requests": requests, "count": count}
        server.load(**job, clients=SOAKING)
        memory.append(server.megabytes())
        say(f"{number + count:,} requests: {memory[-1]:,.0f} MB")
    return memory


# ---------------------------------------------------------------------------- together


@contextlib.contextmanager
def all_ready(servers: dict[str, Server]) -> Iterator[dict[str, Server]]:
    with contextlib.ExitStack() as stack:
        yield {name: stack.enter_context(each) for name, each in servers.items()}


def read_lines(file: str, most: int, translator: Translator, longest: int) -> list[str]:
    """The lines of a file that are not blank, and not too long for the server."""
    try:
        lines = Path(file).read_text(encoding="utf-8").splitlines()
    except OSError as e:
        raise UserError(f"--lines={file}: {e.strerror}") from None
    lines = [line for line in lines if line.strip()][: most or None]
    encoded = translator.vocabulary.source.encode(lines, end=True)
    pairs = zip(lines, encoded, strict=True)
    if not (lines := [line for line, ids in pairs if len(ids) <= longest]):
        raise UserError(f"--lines={file} has no line of at most {longest} tokens")
    return lines


PARTS = ["load", "start"]


def define_flags():
    measuring.define_flags(rounds=3)
    flags.DEFINE_string("workdir", None, "Workdir to serve.", required=True)
    flags.DEFINE_string("lines", None, "Text file of source lines.", required=True)
    flags.DEFINE_integer("most", 1000, "Use only the first N lines; 0 means all.")
    flags.DEFINE_list("parts", PARTS, "Parts to measure; empty: none of them.")
    flags.DEFINE_list("peers", list(PEERS), "Peers to compare with; empty: none.")
    flags.DEFINE_list("clients", ["1", "8", "64"], "Clients of closed loops.")
    flags.DEFINE_integer("array", 20, "Lines of a request that has several.")
    flags.DEFINE_float("seconds", 20.0, "Seconds that each loop is measured.")
    flags.DEFINE_float("warm", 2.0, "Seconds of each loop before.")
    flags.DEFINE_integer("beam", 4, "Beam of all programs.")
    flags.DEFINE_integer(
        "longest", 128, "Tokens of a source; longer lines are left out."
    )
    flags.DEFINE_multi_string("serve", [], "A flag of our server.")
    flags.DEFINE_integer("bits", 0, "Requests whose answers are compared; 0: none.")
    flags.DEFINE_integer("soak", 0, "Requests whose memory is read; 0: none.")


def main(_):
    args = flags.FLAGS
    measuring.begin(args)
    parts = measuring.chosen(args.parts, PARTS, "parts")
    names = measuring.chosen(args.peers, PEERS, "peers") if "load" in parts else []
    translator = Translator.load(args.workdir)
    lines = read_lines(args.lines, args.most, translator, args.longest)
    data = translator.config.data
    languages = {"source": data.source, "target": data.target}
    rows: list[dict] = []
    measured: dict = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if "start" in parts:
            measured["seconds_to_ready"] = starts(args, folder)
        servers = peer_servers(translator, names, args, folder / "model")
        if "load" in parts:
            rows.append(translate_row(args, lines, folder))
        with all_ready({"t2t_jax": our_server(args), **servers}) as ready:
            if "load" in parts:
                rows += loads(ready, lines, languages, args)
            ours = ready["t2t_jax"]
            if args.bits:
                measured["bits"] = bits(ours, translator, lines, args)
            if args.soak:
                measured["megabytes_each_1000_requests"] = soak(ours, lines, args)
            measured["compilations_since_ready"] = ours.compilations()
    for row in rows:
        row["share_of_translate"] = (
            row["lines_per_second"] / rows[0]["lines_per_second"]
        )
    for name, value in measured.items():
        print(f"{name.replace('_', ' ')}: {value}")
    measuring.publish(rows, args.output, **measured)


if __name__ == "__main__":
    run(main, define_flags)
