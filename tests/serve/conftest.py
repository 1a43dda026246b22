"""The application around an engine without a model, in this process or over TCP."""

import asyncio
import collections
import threading

import pytest
import uvicorn
from starlette.testclient import TestClient

from t2t_jax.tools.serve.app import application
from t2t_jax.tools.serve.settings import Settings
from tests.serve.fake_engine import FakeEngine, FakeGuesser


@pytest.fixture
def client():
    """Makes a client of an application: `client(engine, lines=3)`."""

    def make(engine=None, *, base="http://127.0.0.1:5000", **settings):
        app = application(engine or FakeEngine(), Settings(**settings), FakeGuesser())
        return TestClient(app, base_url=base)

    return make


class Running:
    """A server in a thread, on a port of its own.

    Attributes:
      bodies: of the requests to each path, in the order of their arrival.
    """

    def __init__(self, engine, **settings):
        self.engine, self.bodies = engine, collections.defaultdict(list)
        self._app = application(engine, Settings(**settings), FakeGuesser())
        self.service = self._app.state.service
        config = uvicorn.Config(
            self._answer,
            port=0,
            interface="asgi3",
            lifespan="off",
            log_config=None,
            http="h11",
            ws="none",
        )
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=asyncio.run, args=(self._run(),))
        self._thread.start()
        while not self._server.started:
            assert self._thread.is_alive()
        [listener] = self._server.servers[0].sockets
        self.address = listener.getsockname()
        self.url = "http://{}:{}".format(*self.address)

    async def _run(self):
        self.loop = asyncio.get_running_loop()
        await self._server.serve()

    async def _answer(self, scope, receive, send):
        chunks = []

        async def recorded():
            message = await receive()
            if scope["method"] == "POST" and message["type"] == "http.request":
                chunks.append(message.get("body", b""))
                if not message.get("more_body"):
                    self.bodies[scope["path"]].append(b"".join(chunks))
            return message

        await self._app(scope, recorded, send)

    def close(self):
        self._server.should_exit = True
        self._thread.join()


@pytest.fixture
def running():
    """Starts servers: `running(engine, seconds=1)`."""
    started = []

    def start(engine=None, **settings):
        started.append(Running(engine or FakeEngine(), **settings))
        return started[-1]

    yield start
    for server in started:
        server.close()
