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

The peers have the same weights and the same beam: our own server with the engine
ctranslate2 (`exported`); servers of twenty lines around CTranslate2
(benchmarks/serve_peers.py) whose batches are requests, or those of 5 ms; and
LibreTranslate, which is started by --libretranslate=PYTHON, the interpreter of an
environment that has it. `--peers=NAME` has CTranslate2's defaults, NAME:int8:2x1 has
int8 and two batches at a time with a thread each, and NAME:best the fastest of those in
a trial. All take turns in each round, and medians of rounds are given. `lines unlike
ours` are of the first 100. --base enlarges the model to base's sizes
(benchmarks/enlarged.py).

--bits sends requests of 64 clients in random order, with random options, lengths and
cancellations, and compares each answer with `Translator.translate` of the line alone.
--soak reads the server's memory every 1,000 requests.
"""

import contextlib
import http.client
import json
import operator
import os
import random
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from statistics import median

from absl import flags

from benchmarks import enlarged, measuring, peers, run
from t2t_jax.decoding.translator import Translator
from t2t_jax.io.errors import UserError
from t2t_jax.io.messages import say
from t2t_jax.io.threads import core_count

# Settings of the peers' own.
PEERS: dict[str, dict] = {
    "exported": {},
    "ctranslate2": {},
    "ctranslate2-queue": {"seconds": 0.005},
    "libretranslate": {},
}
TYPES = "float32", "int8"
# Its models that split text into sentences are downloads; here, a line is a sentence.
LIBRETRANSLATE = """
from argostranslate.sbd import MiniSBDSentencizer
from libretranslate.main import main
MiniSBDSentencizer.split_sentences = lambda self, text: [text]
main()
"""
SHARES = 0.5, 0.8  # of the capacity, in open loops
CLIENTS = 64  # of --bits and --soak
TRYING = 8  # clients of a trial, and of what is compared with our answers
COMPARED = 100  # lines
PATIENCE = 60  # seconds after SIGTERM until a server is killed
DISTINCT = 200  # lines of --bits: each is translated alone with each option


class Server:
    """A server in a process of its own; a context that ends with it.

    Attributes:
      seconds: from its start until it was ready.

    Args:
      words: its command line; `PORT` in them becomes the number of a port.
      environment: variables of its own.
      ready: the path that answers 200 as soon as it is ready.
    """

    def __init__(
        self,
        words: Sequence[str],
        environment: Mapping[str, str] = {},
        ready: str = "/ready",
    ):
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        self.words = [word.replace("PORT", str(self.port)) for word in words]
        self.environment, self.ready = os.environ | environment, ready

    def __enter__(self) -> "Server":
        self._log = tempfile.TemporaryFile()
        began = time.perf_counter()
        self._process = subprocess.Popen(
            self.words, env=self.environment, stdout=self._log, stderr=self._log
        )
        self.pid = self._process.pid
        try:
            while not self._ready():
                if self.ended():
                    raise RuntimeError(f"{self.words} ended:\n{self.log()}")
                time.sleep(0.02)
        except BaseException:
            self.__exit__()
            raise
        self.seconds = time.perf_counter() - began
        return self

    def __exit__(self, *_) -> None:
        self.stop()

    def stop(self) -> float | None:
        """Ends it by SIGTERM; returns the seconds, None if it had to be killed."""
        began = time.perf_counter()
        self._process.terminate()
        try:
            self._process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            return None
        return time.perf_counter() - began

    def _ready(self) -> bool:
        with contextlib.suppress(OSError):
            return self.get(self.ready)[0] == 200
        return False

    def ended(self) -> bool:
        return self._process.poll() is not None

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

    def metrics(self) -> dict[str, float]:
        """Our metrics without labels; none of a peer."""
        pairs = re.findall(r"(?m)^t2t_jax_(\w+) (\S+)$", self.get("/metrics")[1])
        return {name: float(value) for name, value in pairs}

    def megabytes(self, field: str = "VmRSS") -> float:
        """Memory of the process; `VmHWM` is the most that it has had."""
        status = Path(f"/proc/{self.pid}/status").read_text()
        return int(re.search(rf"{field}:\s*(\d+) kB", status)[1]) / 1e3

    def files(self) -> int:
        """The number of files, with connections, that the process has open."""
        return len(os.listdir(f"/proc/{self.pid}/fd"))

    def requests(self, **job) -> dict:
        """Sends requests; see benchmarks/load.py."""
        process = subprocess.run(
            [sys.executable, "-m", "benchmarks.load"],
            input=json.dumps({"port": self.port, **job}),
            capture_output=True,
            text=True,
        )
        if process.returncode:
            raise RuntimeError(f"the clients failed:\n{process.stderr}\n{self.log()}")
        return json.loads(process.stdout)

    def load(self, **job) -> dict:
        """Sends requests as `requests` does. Adds the share of filled rows."""
        metrics_before = self.metrics()
        result = self.requests(pid=self.pid, **job)
        rows = {
            name: value - metrics_before[name]
            for name, value in self.metrics().items()
            if name.startswith("rows_")
        }
        filled = rows and rows["rows_used_total"] / max(1, rows["rows_computed_total"])
        return result | {"filled_rows": filled or None}


def our_server(args, programs: Path | None = None) -> Server:
    words = ["t2t_jax", "serve", f"--workdir={args.workdir}", "--port=PORT"]
    limits = [f"--beams={args.beam}", f"--longest={args.longest}"]
    environment = {"JAX_COMPILATION_CACHE_DIR": str(programs)} if programs else {}
    return Server([sys.executable, "-m", *words, *limits, *args.serve], environment)


def requests_of(lines: Sequence[str], size: int, languages: dict) -> list[dict]:
    """Requests of `size` lines each, in the form of LibreTranslate."""
    parts = [lines[n : n + size] for n in range(0, len(lines), size)]
    return [{"body": {"q": part, **languages}, "lines": len(part)} for part in parts]


# ------------------------------------------------------------------- speed and latency


NUMBERS = ("lines_per_second", "p50_ms", "p95_ms", "p99_ms", "cpu_ms_per_line")
NUMBERS += ("client_cores", "filled_rows")


def medians(results: Sequence[dict], work: str, program: str) -> dict:
    """A row of the medians of some loads."""
    statuses = sum((Counter(row["statuses"]) for row in results), Counter())
    numbers = {name: [row[name] for row in results] for name in NUMBERS}
    return {
        "work": work,
        "program": program,
        **{n: None if None in row else median(row) for n, row in numbers.items()},
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
        unit = "single lines" if size == 1 else f"arrays of {size}"
        for clients in map(int, args.clients):
            job = sent | {"clients": clients}
            measure(f"closed, {clients} clients, {unit}", dict.fromkeys(servers, job))
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
        median(full[n] - line[n] for full, line in rounds) / max(1, len(lines) - 1)
        for n in (0, 1)
    )
    return {
        "work": "the file, known beforehand",
        "program": "translate",
        **dict.fromkeys(NUMBERS),
        "lines_per_second": 1 / wall,
        "cpu_ms_per_line": 1e3 * cpu,
        "not_answered": 0,
    }


class PeerServers:
    """Makes servers of peers, which have the exported model.

    Args:
      folder: a new one for the model.
    """

    def __init__(self, translator: Translator, args, folder: Path):
        peers.need("ctranslate2", "starlette", "uvicorn")
        from t2t_jax.tools.bridges.exports import to_ctranslate2

        self.folder, self.model = folder, folder / "packages/pair/model"
        self.model.mkdir(parents=True)
        exported = to_ctranslate2.write(
            translator, self.model, {"quantization": "float32"}
        )
        decode, data = translator.config.decode, translator.config.data
        options = {
            "beam_size": args.beam,
            "length_penalty": decode.alpha,
            "max_batch_size": 32,
            "max_decoding_length": args.longest + decode.extra_length,
        }
        described = {"tokenizer": exported["tokenizer"], "options": options}
        (self.model / "peer.json").write_text(json.dumps(described))
        self.beam, self.python = args.beam, args.libretranslate
        self.limits = [f"--beams={args.beam}", f"--longest={args.longest}"]
        # A package of Argos Translate, whose language codes are ours.
        names = {"from_name": data.source, "to_name": data.target}
        codes = {"from_code": data.source, "to_code": data.target}
        (self.model.parent / "metadata.json").write_text(json.dumps(names | codes))
        if (tokenizer := self.model / "tokenizer.model").is_file():
            shutil.copy(tokenizer, self.model.parent / "sentencepiece.model")
        # With one package alone, LibreTranslate would download others.
        (folder / "packages/none").mkdir()
        (folder / "packages/none/metadata.json").write_text('{"type": "none"}')

    def make(self, name: str) -> Server:
        """A server by its name, such as `ctranslate2:int8:2x1`; not started yet."""
        name, *variant = name.split(":")
        settings = PEERS[name]
        if variant:
            batches, threads = map(int, variant[1].split("x"))
            threads = {"inter_threads": batches, "intra_threads": threads}
            settings = settings | {"compute_type": variant[0]} | threads
        if name == "exported":  # our server, with CTranslate2
            words = ["-m", "t2t_jax", "serve", f"--model=pair={self.model}"]
            return Server([sys.executable, *words, "--port=PORT", *self.limits])
        if name != "libretranslate":
            words = ["-m", "benchmarks.serve_peers", str(self.model), "PORT"]
            return Server([sys.executable, *words, json.dumps(settings)])
        if not self.python:
            raise UserError(
                "the peer libretranslate needs --libretranslate=PYTHON, of an "
                "environment of its own: python -m venv libre && libre/bin/pip install "
                "libretranslate; or leave it out of --peers"
            )
        if not (self.model.parent / "sentencepiece.model").is_file():
            raise UserError(
                "Argos Translate wants one SentencePiece model of both languages, "
                "which this workdir lacks: leave libretranslate out of --peers"
            )
        settings = settings | {"beam_size": self.beam}
        homes = ("XDG_DATA_HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME")
        environment = {f"ARGOS_{n.upper()}": str(x) for n, x in settings.items()}
        environment |= dict.fromkeys(homes, str(self.folder))
        environment["ARGOS_PACKAGES_DIR"] = str(self.folder / "packages")
        words = ["-c", LIBRETRANSLATE, "--host=127.0.0.1", "--port=PORT"]
        words.append("--disable-files-translation")  # it would need a folder
        return Server([self.python, *words], environment, "/health")

    def fastest(self, name: str, job: dict) -> str:
        """The variant of a peer that translates most lines a second in a trial."""
        cores = core_count()
        shapes = dict.fromkeys(("1x1", f"1x{cores}", f"{cores}x1"))
        rates = {}
        for variant in (f"{name}:{kind}:{shape}" for kind in TYPES for shape in shapes):
            with self.make(variant) as server:
                rates[variant] = server.load(**job)["lines_per_second"]
            say(f"trial of {variant}: {rates[variant]:,.1f} lines/s")
        return max(rates, key=rates.get)


def check_peer(name: str) -> str:
    """Raises UserError for what is neither NAME, NAME:best nor NAME:TYPE:AxB."""
    peer, *variant = name.split(":")
    measuring.chosen([peer], PEERS, "peers")
    types = "|".join(TYPES)
    if variant and not re.fullmatch(rf"best|({types}):\d+x\d+", ":".join(variant)):
        raise UserError(
            f"--peers={name}; want {peer}, {peer}:best or {peer}:int8:2x1 (int8 or "
            "float32, batches at a time and threads of each)"
        )
    return name


def unlike_ours(servers: dict[str, Server], requests: list[dict]) -> dict[str, str]:
    """Counts the first lines that each peer translates otherwise than we do."""
    texts = {}
    for name, server in servers.items():
        job = {"requests": requests, "count": len(requests), "clients": TRYING}
        answers = server.load(path="/translate", keep=True, **job)["answers"]
        texts[name] = [json.loads(body).get("translatedText") for _, body in answers]
    our_texts = texts.pop("t2t_jax")
    return {
        name: f"{sum(map(operator.ne, peer_texts, our_texts))} of {len(our_texts)}"
        for name, peer_texts in texts.items()
    }


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
    texts = [
        translation.text for translation in translator.translate(lines[:20], warn=False)
    ]
    words = list(dict.fromkeys(w for t in texts for w in t.split() if w.isalpha()))
    first_words = [text.split()[0] for text in texts if text.split()]
    options: list[dict] = [{}, {"nbest": beam}, {"beam": beam}]
    options += [{"prefix": word} for word in first_words[:2]]
    options += [{"must": [word]} for word in words[:2]]
    options += [{"must_not": words[:2]}, {"must": words[2:3], "must_not": words[3:4]}]
    return options


def drawn_requests(
    lines: Sequence[str],
    options: list[dict],
    count: int,
    sizes: Sequence[int] = (1, 1, 1, 2, 5, 20),
    seed: int = 0,
) -> list[dict]:
    """Random requests; every tenth client leaves before its answer.

    Args:
      sizes: lines of a request are one of these.
    """
    rng, requests = random.Random(seed), []
    for _ in range(count):
        part = rng.sample(lines, min(rng.choice(sizes), len(lines)))
        body = {"lines": part, **rng.choice(options)}
        leave = rng.uniform(0, 0.2) if rng.random() < 0.1 else None
        requests.append({"body": body, "lines": len(part), "leave": leave})
    return requests


def expected(translator: Translator, line: str, options: dict) -> list | str:
    """The hypotheses of a line that is translated alone, or why it is refused."""
    try:
        (translation,) = translator.translate([line], warn=False, **options)
    except UserError as e:
        return str(e)
    finite = ["score", "log_prob"]
    return [
        {"text": h.text, "ended": h.ended, "tokens": [*map(int, h.tokens)]}
        | {n: x if abs(x := getattr(h, n)) < float("inf") else None for n in finite}
        for h in translation.hypotheses
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
    expected_rows: dict[tuple, list | str] = {}
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
            if key not in expected_rows:
                expected_rows[key] = alone(line, options)
            right = expected_rows[key]
            refused = isinstance(right, str)  # its message names another line
            is_equal = refused if "error" in row else row["hypotheses"] == right
            counts["lines"] += 1
            counts["different"] += not is_equal
    return dict(counts)


def bits(server: Server, translator: Translator, lines: Sequence[str], args) -> dict:
    """Compares the answers of a busy server with those to each line alone."""
    lines = lines[:DISTINCT]
    translator = translator.with_options(beam=args.beam)
    options = options_of(translator, lines, args.beam)
    requests = drawn_requests(lines, options, args.bits)
    load = server.load(
        path="/v1/translate",
        requests=requests,
        count=args.bits,
        clients=CLIENTS,
        keep=True,
    )
    return differing(requests, load["answers"], partial(expected, translator))


def soak(server: Server, lines: Sequence[str], args) -> list[float]:
    """Megabytes of the server before, and after each 1,000 requests.

    Requests have a line, and ever new phrases.
    """
    memory, statuses = [server.megabytes()], Counter()
    for number in range(0, args.soak, 1_000):
        count = min(1_000, args.soak - number)
        options: list[dict] = [{}, {"nbest": args.beam}]
        options += [{"must_not": [f"Wort {number + n}"]} for n in range(20)]
        requests = drawn_requests(lines, options, count, sizes=(1,), seed=number)
        job = {"path": "/v1/translate", "requests": requests, "count": count}
        statuses.update(server.load(**job, clients=CLIENTS)["statuses"])
        memory.append(server.megabytes())
        say(f"{number + count:,} requests: {memory[-1]:,.0f} MB, {dict(statuses)}")
    return memory


# ---------------------------------------------------------------------------- together


@contextlib.contextmanager
def all_ready(servers: dict[str, Server]) -> Iterator[dict[str, Server]]:
    """Starts servers, and waits until ours has nothing left to compile."""
    with contextlib.ExitStack() as stack:
        ready = {name: stack.enter_context(server) for name, server in servers.items()}
        for server in ready.values():
            while json.loads(server.get(server.ready)[1]).get("compiling"):
                time.sleep(0.5)
        yield ready


def read_lines(
    file: str, line_count: int, translator: Translator, longest: int
) -> list[str]:
    """The lines of a file that are not blank, and not too long for the server."""
    try:
        lines = Path(file).read_text(encoding="utf-8").splitlines()
    except OSError as e:
        raise UserError(f"--lines={file}: {e.strerror}") from None
    lines = [line for line in lines if line.strip()][: line_count or None]
    encoded = translator.vocabulary.source.encode(lines, end=True)
    pairs = zip(lines, encoded, strict=True)
    if not (lines := [line for line, ids in pairs if len(ids) <= longest]):
        raise UserError(f"--lines={file} has no line of at most {longest} tokens")
    return lines


PARTS = ["load", "start"]


def define_flags():
    measuring.define_flags(rounds=3)
    flags.DEFINE_string("workdir", None, "Workdir to serve.", required=True)
    flags.DEFINE_boolean(
        "base", False, "Measure a model of the base size that translates as it does."
    )
    flags.DEFINE_string("lines", None, "Text file of source lines.", required=True)
    flags.DEFINE_integer("most", 1000, "Use only the first N lines; 0 means all.")
    flags.DEFINE_list("parts", PARTS, "Parts to measure; empty: none of them.")
    flags.DEFINE_list(
        "peers",
        ["exported", "ctranslate2", "ctranslate2-queue"],
        "Peers to compare with, or none.",
    )
    flags.DEFINE_string("libretranslate", None, "The Python that has LibreTranslate.")
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
    names = [check_peer(name) for name in args.peers if name and "load" in parts]
    translator = Translator.load(args.workdir)
    lines = read_lines(args.lines, args.most, translator, args.longest)
    data = translator.config.data
    languages = {"source": data.source, "target": data.target}
    rows: list[dict] = []
    measured: dict = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if args.base:
            enlarged.write(args.workdir, folder / "base", lines[:16])
            args.workdir = str(folder / "base")
            translator = Translator.load(args.workdir)
        if "start" in parts:
            measured["seconds_to_ready"] = starts(args, folder)
        servers = {}
        if names:
            peer_servers = PeerServers(translator, args, folder / "peers")
            trial = {"path": "/translate", "clients": TRYING, "warm": args.warm}
            trial["requests"] = requests_of(lines, 1, languages)
            trial["seconds"] = args.seconds / 4
            for name in names:
                if name.endswith(":best"):
                    name = peer_servers.fastest(name.removesuffix(":best"), trial)
                servers[name] = peer_servers.make(name)
        if "load" in parts:
            rows.append(translate_row(args, lines, folder))
        with all_ready({"t2t_jax": our_server(args), **servers}) as ready:
            if "load" in parts:
                rows += loads(ready, lines, languages, args)
                compared_requests = requests_of(lines[:COMPARED], 1, languages)
                measured["lines_unlike_ours"] = unlike_ours(ready, compared_requests)
                measured["peers_seconds_to_ready"] = {
                    name: server.seconds for name, server in ready.items()
                }
            own_server = ready["t2t_jax"]
            if args.bits:
                measured["bits"] = bits(own_server, translator, lines, args)
            if args.soak:
                measured["megabytes_each_1000_requests"] = soak(own_server, lines, args)
            compiled = own_server.metrics()["compilations_since_ready"]
            measured["compilations_since_ready"] = int(compiled)
    for row in rows:
        row["share_of_translate"] = (
            row["lines_per_second"] / rows[0]["lines_per_second"]
        )
    for name, value in measured.items():
        print(f"{name.replace('_', ' ')}: {value}")
    measuring.publish(rows, args.output, **measured)


if __name__ == "__main__":
    run(main, define_flags)
