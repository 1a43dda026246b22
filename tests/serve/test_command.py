"""`python -m t2t_jax serve`, with an engine without a model: signals and mistakes."""

import asyncio
import contextlib
import json
import os
import re
import select
import signal
import socket
import subprocess
import sys
import threading
import time
import types
import urllib.error
import urllib.request
from collections import Counter

import pytest

from benchmarks.load import Connection
from t2t_jax.io.errors import UserError
from t2t_jax.io.interruption import REPEAT
from t2t_jax.tools.serve import app as serve_app
from t2t_jax.tools.serve import command
from t2t_jax.tools.serve.app import application, serve
from t2t_jax.tools.serve.command import listen
from t2t_jax.tools.serve.settings import Settings
from tests.serve.fake_engine import FakeEngine, FakeGuesser
from tests.serve.test_app import head
from tests.small_run import ROOT, until

# The command around a fake engine; files of the test's folder let it go on.
COMMAND = """
import os, pathlib, signal, sys, time, types
from t2t_jax.commands import launch
from t2t_jax.config import DecodeConfig
from t2t_jax.decoding import translator
from t2t_jax.io.messages import say
from t2t_jax.tools.serve import command, engine
from tests.serve.fake_engine import FakeEngine, FakeGuesser

def wait_for(name):
    while not pathlib.Path(FOLDER, name).exists():
        time.sleep(0.01)

class Engine(FakeEngine):
    def __init__(self, translators, limits):
        super().__init__(*translators, ready=False)
        self.limits = limits
        say(f"{[*map(str, translators.values())]} {limits}")
        os.kill(os.getpid(), signal.SIGHUP)  # before there is anything to reload
        self.warming = types.SimpleNamespace(wait=lambda: wait_for("warm"))
        self.wait = types.SimpleNamespace(wait=self.released)

    async def released(self):
        import asyncio
        await asyncio.to_thread(wait_for, "released")

    def reload(self, direction, translator):
        say(f"took over {direction} {translator}")

    async def close(self):
        say("closed")

class Loaded(str):
    def with_extra_length(self, extra_length):
        return self

    def with_options(self, **options):
        return Loaded(f"{self} {options}")

class Broken:
    def load(places, checkpoint, dtype, weights, engine):
        if pathlib.Path(FOLDER, "broken").exists() and "fr" in places:
            from t2t_jax.io.errors import UserError
            raise UserError("the checkpoint is damaged")
        return Loaded(f"<{places} {checkpoint}>")

FOLDER = sys.argv.pop()
data = types.SimpleNamespace(source="en", target="de")
command.Workdir = lambda place: types.SimpleNamespace(
    config=lambda: types.SimpleNamespace(data=data, decode=DecodeConfig())
)
engine.Engine, translator.Translator = Engine, Broken
sys.modules["t2t_jax.extensions.text.language_identification"] = types.SimpleNamespace(
    Guesser=lambda directions: FakeGuesser()
)
sys.argv[1:1] = ["serve"]
launch.main()
"""


def test_a_server_answers_early_reloads_and_ends_with_all_answered(tmp_path):
    log = tmp_path / "log"
    words = ["--model=en-de=a,b", "--model=fr-en=fr", "--port=0", "--beams=2,1"]
    keys, terms = tmp_path / "keys", tmp_path / "terms"
    words += [f"--api_keys={keys}", f"--terms=t={terms}", "--no_repeat_ngram=3"]
    keys.write_text("one\ntwo\n")
    terms.write_text("cat\tKatze\n")
    with log.open("wb") as err:
        process = subprocess.Popen(
            [sys.executable, "-c", COMMAND, *words, "--checkpoint=best", str(tmp_path)],
            cwd=ROOT,
            env=os.environ | {"T2T_JAX_HUGE_PAGES": "0"},
            stderr=err,
        )

    def logged(text):
        assert process.poll() is None, log.read_text()
        return text in log.read_text()

    try:
        until(lambda: logged("1 of 2 programs"))
        assert "<['a', 'b'] best> {'no_repeat_ngram': 3}" in log.read_text()
        assert "beams=(2, 1), longest=128" in log.read_text()
        port = int(re.search(r"http://127.0.0.1:(\d+)/ answers", log.read_text())[1])

        def status(path, key="one"):
            try:
                url = f"http://127.0.0.1:{port}{path}?key={key}"
                return urllib.request.urlopen(url, timeout=10).status
            except urllib.error.HTTPError as e:
                return e.code

        def entries():
            url = f"http://127.0.0.1:{port}/v2/glossaries?key=one"
            (listed,) = json.load(urllib.request.urlopen(url))["glossaries"]
            return listed["entry_count"]

        assert (status("/health"), status("/ready")) == (200, 503)
        assert (status("/v1/models", "two"), entries()) == (200, 1)
        keys.write_text("one\n")
        terms.write_text("cat\tKatze\ndog\tHund\n")
        (tmp_path / "warm").touch()
        until(lambda: logged("ready\n"))
        assert status("/ready") == 200

        until(lambda: logged("took over en-de <['a', 'b'] best>"))
        assert (status("/v1/models", "two"), entries()) == (403, 2)
        keys.write_text("")
        terms.write_text("cat\n")
        (tmp_path / "broken").touch()
        process.send_signal(signal.SIGHUP)
        until(lambda: logged("fr-en: goes on with the parameters it has: the ch"))
        for message in (
            "keys it has: --api_keys",
            f"terms it has: --terms: {terms}, line",
        ):
            assert f"goes on with the {message}" in log.read_text()
        assert (status("/v1/models"), entries()) == (200, 2)

        body = json.dumps({"q": "a", "source": "en", "target": "de"}).encode()
        accepted = socket.create_connection(("127.0.0.1", port), timeout=10)
        accepted.sendall(head(len(body), more="X-API-Key: one\r\n") + body)
        metric = "t2t_jax_queued_lines 1"

        def queued():
            url = f"http://127.0.0.1:{port}/metrics"
            return metric in urllib.request.urlopen(url).read().decode()

        until(queued)
        process.send_signal(signal.SIGTERM)

        def refused():
            with socket.socket() as probe:
                return probe.connect_ex(("127.0.0.1", port)) != 0

        until(refused)
        assert process.poll() is None
        (tmp_path / "released").touch()
        assert "<de> a" in accepted.makefile().read()
        assert process.wait(timeout=10) == 0, log.read_text()
        assert log.read_text().endswith("closed\n")
    finally:
        process.kill()
        process.wait()


def run(app):
    asyncio.run(serve(app, listen("127.0.0.1", 0), lambda: None))


@pytest.mark.usefixtures("signals_as_ever")
def test_a_server_that_cannot_compile_ends_with_the_error():
    engine = FakeEngine(ready=False)
    engine.warm_up = lambda report: (_ for _ in ()).throw(UserError("out of memory"))
    with pytest.raises(UserError, match="out of memory"):
        run(application(engine, Settings(), FakeGuesser()))
    assert engine.closed
    later = FakeEngine(ready=False)
    later.compile_rest = lambda: (_ for _ in ()).throw(UserError("out of memory"))
    with pytest.raises(UserError, match="out of memory"):
        run(application(later, Settings(), FakeGuesser()))


STUCK = """
import asyncio, threading, time
from t2t_jax.tools.serve.app import application, serve
from t2t_jax.tools.serve.command import listen
from t2t_jax.tools.serve.settings import Settings
from tests.serve.fake_engine import FakeEngine, FakeGuesser
import sys
engine, forever = FakeEngine(ready=sys.argv[1] == "ready"), threading.Event()
async def translate(*_, **__):
    print("stuck", flush=True)
    await asyncio.to_thread(forever.wait)
engine.translate = translate
if sys.argv[1] == "compiles":
    engine.warming = forever
if sys.argv[1] == "compiles the rest":
    engine.resting = forever
listener = listen("127.0.0.1", 0)
print(listener.getsockname()[1], flush=True)
app = application(engine, Settings(), FakeGuesser())
asyncio.run(serve(app, listener, lambda: None))
"""


@contextlib.contextmanager
def stuck(what):
    """A server whose searches, or whose compilation, never end."""
    command, pair = [sys.executable, "-c", STUCK, what], subprocess.PIPE
    options = {"cwd": ROOT, "stdout": pair, "stderr": pair, "text": True}
    with subprocess.Popen(command, **options) as process:
        try:
            yield process
        finally:
            process.kill()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_second_signal_ends_a_server_whose_thread_is_stuck(number):
    with stuck("ready") as process:
        port = int(process.stdout.readline())

        async def ask():
            with contextlib.suppress(OSError, EOFError):
                await Connection(port).post("/translate", BODY)

        thread = threading.Thread(target=asyncio.run, args=(ask(),))
        thread.start()
        assert process.stdout.readline() == "stuck\n"
        process.send_signal(number)
        process.send_signal(number)  # as a shell does, to a process and its group
        time.sleep(1.2 * REPEAT)
        assert process.poll() is None
        process.send_signal(number)
        assert process.wait(60) == -number
        thread.join()


@pytest.mark.parametrize(
    ("what", "line"), [("compiles", "1 of 2"), ("compiles the rest", "ready\n")]
)
def test_a_signal_ends_a_server_that_compiles(what, line):
    with stuck(what) as process:
        while line not in process.stderr.readline():
            assert process.poll() is None
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
        assert process.stderr.read() == "stopped while it compiled\n"


async def while_served(clients, engine=None, reload=lambda: None):
    """Serves while `clients(port)` runs, then stops."""
    listener = listen("127.0.0.1", 0)
    app = application(engine or FakeEngine(), Settings(), FakeGuesser())
    served = asyncio.create_task(serve(app, listener, reload))
    try:
        await clients(listener.getsockname()[1])
    finally:
        app.state.service.stopping or os.kill(os.getpid(), signal.SIGTERM)
        await served


BODY = json.dumps({"q": "a", "source": "en", "target": "de"}).encode()


@pytest.mark.usefixtures("signals_as_ever")
def test_signals_during_a_reload_reload_once_more():
    begun, go_on = [], threading.Event()

    def reload():
        begun.append(time.monotonic())
        go_on.wait(10)

    async def clients(port):
        await Connection(port).post("/translate", BODY)
        for _ in range(3):
            os.kill(os.getpid(), signal.SIGHUP)
            await asyncio.sleep(0.1)
        go_on.set()
        await asyncio.sleep(0.3)

    asyncio.run(while_served(clients, reload=reload))
    assert len(begun) == 2


@pytest.mark.usefixtures("signals_as_ever")
def test_what_is_no_http_is_in_the_log(capsys):
    async def clients(port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"secret\r\n\r\n")
        assert (await reader.read()).startswith(b"HTTP/1.1 400")
        writer.close()

    asyncio.run(while_served(clients))
    log = capsys.readouterr().err
    assert re.search(r"T[\d:]{8}Z 127\.0\.0\.1 no HTTP: 400\n", log)
    assert "secret" not in log


@pytest.mark.skipif(sys.platform != "linux", reason="127.0.0.2 is this machine, too")
@pytest.mark.usefixtures("signals_as_ever")
def test_idle_connections_keep_nobody_out(monkeypatch, capsys):
    monkeypatch.setattr(serve_app, "CONNECTIONS", 8)
    answers = []

    async def clients(port):
        address = "127.0.0.1", port
        for _ in range(4):  # of the address with fewer, however old
            good = socket.create_connection(address, 10, ("127.0.0.2", 0))
            answers.append(good)
        idle = [socket.create_connection(address, 10) for _ in range(40)]
        await asyncio.sleep(0.2)
        status, _ = await Connection(port).post("/translate", BODY)
        assert status == 200
        ended = [s for s in idle if select.select([s], [], [], 0)[0] and not s.recv(1)]
        assert len(ended) >= 36
        assert not {*idle[-3:]} & {*ended}  # the oldest end first
        for good in answers:
            good.sendall(head(len(BODY)) + BODY)
        await asyncio.sleep(0.2)
        for good in answers:
            assert good.recv(15) == b"HTTP/1.1 200 OK"
            good.close()
        for connection in idle:
            connection.close()

    asyncio.run(while_served(clients))
    message = capsys.readouterr().err
    assert "127.0.0.1 over 8 connections: ends those that idle" in message


@pytest.mark.usefixtures("signals_as_ever")
def test_a_stop_answers_all_requests_that_have_arrived():
    engine, recorded = FakeEngine(), Counter()
    engine.wait = types.SimpleNamespace(wait=lambda: asyncio.sleep(0.02))

    async def client(port, idle):
        connection = Connection(port)
        try:
            while True:
                opened = connection.is_open
                status, _ = await connection.post("/translate", BODY)
                recorded[status] += 1
                await asyncio.sleep(idle)
        except (OSError, EOFError):  # it may be reset while it is being opened
            recorded["lost"] += opened

    async def clients(port):
        idle = 0.3  # of clients that keep a connection and use it now and then
        tasks = [client(port, idle * (n % 2)) for n in range(16)]
        tasks = [asyncio.create_task(each) for each in tasks]
        while recorded[200] < 16:
            await asyncio.sleep(0.01)
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.gather(*tasks)

    asyncio.run(while_served(clients, engine))
    assert {*+recorded} == {200, 503}


@pytest.mark.usefixtures("signals_as_ever")
def test_a_head_that_does_not_come_is_given_up(monkeypatch):
    monkeypatch.setattr(serve_app, "KEEP_ALIVE", 0.3)

    async def received(reader):
        chunks = []
        # A byte that reaches a closed connection is answered by a reset.
        with contextlib.suppress(ConnectionResetError):
            while chunk := await reader.read(4096):
                chunks.append(chunk)
        return b"".join(chunks)

    async def client(port, sent, next_bytes):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        end = asyncio.create_task(received(reader))
        for number in range(200):
            await asyncio.wait({end}, timeout=0.05)
            if end.done():
                break
            # A byte of a head, or of a body after its request was refused.
            writer.write(sent if not number else next_bytes)
        assert end.done()
        writer.close()
        return await end

    async def clients(port):
        request_head, length = head(len(BODY)), 1 << 30
        ends = await asyncio.gather(
            client(port, b"", b""),
            client(port, request_head[:5], b"x"),
            client(port, head(length) + b"{", b"x"),
            client(port, request_head + BODY, request_head[:1]),
        )
        starts = [end[:12] for end in ends]
        assert starts == [b"", b"", b"HTTP/1.1 413", b"HTTP/1.1 200"]

    asyncio.run(while_served(clients))


@pytest.mark.skipif(not hasattr(socket, "TCP_USER_TIMEOUT"), reason="of Linux")
@pytest.mark.usefixtures("signals_as_ever")
def test_a_client_that_never_reads_is_given_up(monkeypatch):
    monkeypatch.setattr(command, "UNREAD", 300)

    def files():
        return len(os.listdir("/proc/self/fd"))

    async def clients(port):
        warm = Connection(port)
        await warm.post("/translate", BODY)
        with socket.socket() as s:
            s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            s.setblocking(False)
            previous = files()
            await asyncio.get_running_loop().sock_connect(s, ("127.0.0.1", port))
            s.send(400 * b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
            await asyncio.sleep(0.1)
            assert files() > previous
            for _ in range(100):
                await asyncio.sleep(0.1 * (files() > previous))
            assert files() <= previous
        warm.close()

    asyncio.run(while_served(clients))


def test_answers_do_not_wait_for_acknowledgements():
    listener = listen("127.0.0.1", 0)
    with listener, socket.create_connection(listener.getsockname()):
        connection, _ = listener.accept()
        with connection:
            assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_a_port_that_is_taken_is_told():
    with listen("127.0.0.1", 0) as listener:
        listener.listen()
        port = listener.getsockname()[1]
        with pytest.raises(UserError, match=rf"--port={port}: Address already in use"):
            listen("127.0.0.1", port)
    with pytest.raises(UserError, match=r"--host=no\.such\.host\.invalid"):
        listen("no.such.host.invalid", 5000)
