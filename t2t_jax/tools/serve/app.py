"""The application: routes from the tables, errors, request ids, logs and metrics.

A request passes `_Log` (its id, the log, the metrics), then `_endpoint`: hosts, the
body, the key, the row's function, while the client is watched; all in one task, which
is cancelled if the client leaves.
"""

import asyncio
import contextlib
import math
import os
import re
import secrets
import signal
import socket
import sys
import time
import traceback
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from uvicorn.protocols.http.h11_impl import H11Protocol

from t2t_jax import __version__
from t2t_jax.decoding.search_options import DEFAULTS
from t2t_jax.io.errors import UserError
from t2t_jax.io.interruption import REPEAT
from t2t_jax.io.messages import say
from t2t_jax.tools.serve import api, interfaces
from t2t_jax.tools.serve.engine import (
    CompilingError,
    Engine,
    OverloadedError,
    StoppingError,
)
from t2t_jax.tools.serve.fields import Refusal, fields
from t2t_jax.tools.serve.service import Call, Endpoint, Gone, Service
from t2t_jax.tools.serve.settings import Settings, is_address
from t2t_jax.tools.serve.turns import LateError

# Probes and Prometheus call a container by its address, which nobody can list. A page
# whose name was made to mean this machine (DNS rebinding) calls by that name.
PROBES = {"/health", "/ready", "/metrics"}
LINGER = 1.0  # seconds after SIGTERM in which requests are still taken, and get 503
KEEP_ALIVE = 60  # seconds; clients keep connections, and fail where one closes
CONNECTIONS = 512  # half of the files that a process may have open on most systems
GONE = 499  # the status of a client that has left, in logs and metrics, as of nginx
FORMS = "application/x-www-form-urlencoded", "multipart/form-data"
METHODS = {"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"}


def application(engine: Engine, settings: Settings, guesser=None) -> Starlette:
    """Builds the application; `application(...).state.service` is its `Service`."""
    service = Service(engine, settings, guesser)
    errors = {row.path: row.error for row in ENDPOINTS}

    async def unknown(request: Request, error: HTTPException) -> Response:
        """404 and 405, in the form of the path's interface if there is one."""
        missing = error.status_code == 404
        message = "no such page; /spec lists all" if missing else error.detail
        code = "not_found" if missing else "wrong_method"
        refusal = Refusal(error.status_code, code, message)
        refusal.headers = dict(error.headers or {})
        body = errors.get(request.scope["path"], api.error)
        return _error(refusal, body, request.state.id)

    middleware = [Middleware(_Log, service=service)]
    if settings.cors:
        cors = Middleware(
            CORSMiddleware,
            allow_origins=[settings.cors],
            allow_methods=["GET", "POST"],
            allow_headers=["*"],
            expose_headers=["X-Request-ID", "Retry-After"],
        )
        middleware.append(cors)
    app = Starlette(
        routes=[
            Route(row.path, _endpoint(service, row), methods=[*row.methods])
            for row in ENDPOINTS
        ],
        middleware=middleware,
        exception_handlers={HTTPException: unknown},
    )
    # A redirect would repeat whatever Host was sent, before it is checked.
    app.router.redirect_slashes = False
    app.state.service = service
    return app


def _error(refusal: Refusal, body: Callable, request_id: str) -> Response:
    content = body(refusal, request_id)
    return JSONResponse(content, refusal.status, headers=refusal.headers)


def _endpoint(
    service: Service, row: Endpoint
) -> Callable[[Request], Awaitable[Response]]:
    async def answer(request: Request) -> Response:
        request.state.call = call = Call(request, service, row)
        try:
            _check_host(request, service.settings, row.path in PROBES)
            if row.path not in PROBES:
                _check_origin(request, service.settings)
            sent = await call.read()
            body = await _while_there(call, call.answer(sent))
        except Gone:
            return Response(status_code=GONE)
        except Exception as e:
            return _error(_refusal(e, call.id), row.error, call.id)
        if isinstance(body, Response):
            return body
        return JSONResponse(body, call.status)

    return answer


_PAGE_ORIGIN = re.compile("https?:|null")


def _check_host(request: Request, settings: Settings, probe: bool) -> None:
    """Refuses names that are not the server's; probes may also use any address."""
    host = request.headers.get("host", "")
    if not (settings.serves(host) or (probe and is_address(host))):
        message = f"Host={host!r} is not a name of this server; add --allowed_hosts"
        raise Refusal(403, "wrong_host", message)


def _check_origin(request: Request, settings: Settings) -> None:
    """Refuses pages of other sites.

    Any page can send forms to 127.0.0.1. Extensions of browsers have an origin of
    another scheme.
    """
    origin = request.headers.get("origin", "")
    if settings.cors == "*" or (
        origin and (origin == settings.cors or not _PAGE_ORIGIN.match(origin))
    ):
        return
    # Forms and scripts have an origin. Images and links have none: browsers say whose
    # page they are on, and a link may open the page of this server.
    site = request.headers.get("sec-fetch-site", "")
    opened = request.scope["path"] == "/" and (
        request.headers.get("sec-fetch-mode") == "navigate"
    )
    host = request.headers.get("host", "")
    foreign = site in ("cross-site", "same-site") and not opened
    if not settings.owns(origin, host) if origin else foreign:
        message = "pages of this Origin may not ask; one may with --cors=ORIGIN"
        raise Refusal(403, "wrong_origin", message)


async def _while_there(call: Call, answer: Awaitable[Any]) -> Any:
    """Waits for an answer; cancels it if the client leaves or its time is over.

    Raises:
      Gone, LateError: then.
    """

    async def disconnected() -> None:
        while (await call.request.receive())["type"] != "http.disconnect":
            pass

    work = asyncio.ensure_future(answer)
    leaving = asyncio.ensure_future(disconnected())
    seconds = max(0, call.deadline - time.monotonic())
    try:
        await asyncio.wait(
            {work, leaving}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED
        )
        if work.done():
            return work.result()
        raise Gone if leaving.done() else LateError("the time of a request is over")
    finally:
        work.cancel()
        leaving.cancel()
        # Cancelled lines leave the queue before the request is counted as answered.
        await asyncio.gather(work, leaving, return_exceptions=True)


# Errors of the engine: the status, and a code for programs.
STATUSES = {
    UserError: (400, "bad_request"),
    CompilingError: (503, "compiling"),
    OverloadedError: (429, "queue_full"),
    LateError: (504, "late"),
    StoppingError: (503, "stopping"),
}


def _refusal(error: Exception, request_id: str) -> Refusal:
    """What a client is answered if a request raises this; logs what nobody expects."""
    while isinstance(error, ExceptionGroup):  # of directions, searched together
        error = error.exceptions[0]
    if isinstance(error, Refusal):
        return error
    for kind, (status, code) in STATUSES.items():
        if isinstance(error, kind):
            wait = getattr(error, "retry_after", 5 * (status == 503))
            return Refusal(status, code, str(error), math.ceil(wait))
    # Where it was raised; messages may have a client's text in them.
    lines, cause = [f"error in request {request_id}:\n"], error
    while cause is not None:
        lines += traceback.format_tb(cause.__traceback__)
        lines += [f"{type(cause).__name__}\n"]
        cause = cause.__cause__ or cause.__context__
    say("".join(lines).rstrip())
    message = "an error of the server; its log has the request id"
    return Refusal(500, "internal", message)


class _Log:
    """Gives each request an id; logs and counts its answer, without its content."""

    def __init__(self, app, service: Service):
        self.app, self.service = app, service

    async def __call__(self, scope, receive, send) -> None:
        begun, status = time.monotonic(), GONE
        client_id = Headers(scope=scope).get("x-request-id", "")
        is_valid = re.fullmatch("[A-Za-z0-9._-]{1,64}", client_id)
        state = scope.setdefault("state", {})
        state["id"] = client_id if is_valid else secrets.token_hex(8)
        # Clients join HOST/ and /translate, or end a path in a slash.
        scope["path"] = "/" + re.sub("/+", "/", scope["path"]).strip("/")

        async def send_with_id(message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = MutableHeaders(scope=message)
                headers["X-Request-ID"] = state["id"]
                headers["X-Content-Type-Options"] = "nosniff"
                if self.service.stopping:  # or clients send more on this connection
                    headers["Connection"] = "close"
            await send(message)

        try:
            await self.app(scope, receive, send_with_id)
        finally:
            seconds, call = time.monotonic() - begun, state.get("call")
            endpoint = call.row.path if call else "other"
            label = call.label if call else ""
            self.service.metrics.count(endpoint, label, status, seconds)
            method = scope["method"] if scope["method"] in METHODS else "OTHER"
            if endpoint not in PROBES:  # of which there are many
                key = f" key={call.key[:8]}" if call and call.key else ""
                took = f"{1e3 * seconds:.1f} ms {state['id']}"
                address = _address(scope.get("client"))
                _say(address, f"{method} {endpoint} {status} {took}{key}")


def _address(client: Sequence | None) -> str:
    return client[0] if client else "-"


def _say(address: str, message: str) -> None:
    """Prints a line of the log, with the time and the client's address."""
    timestamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    say(f"{timestamp} {address} {message}")


async def _spec(call: Call) -> dict:
    """OpenAPI 3.1 of all rows."""
    paths: dict[str, dict] = {}
    keyed = [{"bearer": []}] if call.service.settings.keys else []
    for row in ENDPOINTS:
        declared = fields(row.fields)
        schemas = {name: field.schema for name, field in declared.items()}
        needed = [name for name, field in declared.items() if field.needed]
        schema = {"type": "object", "properties": schemas}
        schema |= {"required": needed} if needed else {}
        parameters = [
            {"name": name, "in": "query", "required": name in needed, "schema": field}
            for name, field in schemas.items()
        ]
        # In JSON, null is as if the field were not there.
        or_null = {
            name: field if name in needed else {"anyOf": [field, {"type": "null"}]}
            for name, field in schemas.items()
        }
        contents = {kind: {"schema": schema} for kind in FORMS}
        contents["application/json"] = {"schema": schema | {"properties": or_null}}
        sent = {"required": bool(needed), "content": contents}
        error = _schema_of(row.error(Refusal(400, "code", "message"), "id"))
        failed = {"content": {"application/json": {"schema": error}}}
        responses = {
            "200": {"description": "The answer"},
            "503": {"description": "The server compiles, or stops"},
            "default": {"description": "An error"} | failed,
        }
        paths[row.path] = {
            method.lower(): {
                "summary": row.summary,
                "responses": responses,
                "security": [] if row.keyless else keyed,
            }
            | ({"requestBody": sent} if method == "POST" else {})
            | ({"parameters": parameters} if method == "GET" and parameters else {})
            for method in row.methods
        }
    bearer = {"type": "http", "scheme": "bearer"}
    return {
        "openapi": "3.1.0",
        "info": {"title": "t2t_jax", "version": __version__},
        "paths": paths,
        "components": {"securitySchemes": {"bearer": bearer}},
    }


def _schema_of(sample: Any) -> dict:
    """JSON Schema of values with the shape of this one; all keys are required."""
    if isinstance(sample, dict):
        properties = {name: _schema_of(value) for name, value in sample.items()}
        return {"type": "object", "properties": properties, "required": [*sample]}
    if isinstance(sample, list):
        return {"type": "array", "items": _schema_of(sample[0])}
    kinds = {str: "string", int: "integer"}
    return {"type": kinds[type(sample)]} if type(sample) in kinds else {}


SPEC = Endpoint("/spec", api.GET, "This page", _spec, api.error, keyless=True)
ENDPOINTS = (*api.ENDPOINTS, *interfaces.ENDPOINTS, SPEC)


# ------------------------------------------------------------------------------ serving


class _Connection(H11Protocol):
    """Ends connections without the head of a request; uvicorn lets them wait for ever.

    The first byte of a head does not stop the clock, its last one does. Of more than
    `CONNECTIONS`, one without a request ends, the oldest of the address with the most.
    """

    last_report = -1.0  # when a line about this was last in the log

    def connection_made(self, transport) -> None:
        super().connection_made(transport)
        self.begun, self.address = time.monotonic(), _address(self.client)
        if len(self.connections) > CONNECTIONS:
            self._make_room()
        self.timeout_keep_alive_task = self.loop.call_later(
            self.timeout_keep_alive, self.timeout_keep_alive_handler
        )

    def data_received(self, data: bytes) -> None:
        self.conn.receive_data(data)
        self.handle_events()

    def _make_room(self) -> None:
        counts = Counter(connection.address for connection in self.connections)
        idle = (c for c in self.connections if not c.cycle or c.cycle.response_complete)
        ended = max(idle, key=lambda c: (counts[c.address], -c.begun))
        self.connections.discard(ended)  # now, as more may come before it is closed
        ended.transport.close()
        if self.begun > _Connection.last_report + 1:
            _Connection.last_report = self.begun
            _say(ended.address, f"over {CONNECTIONS} connections: ends those that idle")

    def send_400_response(self, msg: str) -> None:
        _say(self.address, "no HTTP: 400")
        super().send_400_response(msg)


class _Server(uvicorn.Server):
    """Leaves signals to `serve`; resets no connection whose request has arrived."""

    def capture_signals(self) -> contextlib.AbstractContextManager[None]:
        # uvicorn would end the process by the signal itself.
        return contextlib.nullcontext()

    async def shutdown(self, sockets=None) -> None:
        end = time.monotonic() + LINGER
        while self.server_state.connections and time.monotonic() < end:
            await asyncio.sleep(0.05)
        for server in self.servers:
            server.close()
        await asyncio.sleep(0.05)  # reads their requests; others are closed now
        await super().shutdown(sockets)


async def serve(
    app: Starlette,
    listener: socket.socket,
    reload: Callable[[], None],
    proxies: str | None = None,
    read_again: Callable[[Settings], Settings] = lambda settings: settings,
    reload_requested: Sequence[int] = (),
    afterwards: Callable[[Callable[[str, str], Any]], None] = lambda translate: None,
) -> None:
    """Serves until SIGTERM or SIGINT; answers all that is accepted by then.

    Answers /health at once, short lines as soon as it can, and compiles meanwhile.

    Args:
      listener: a listening socket.
      reload: called in a thread at SIGHUP.
      proxies: addresses whose `X-Forwarded-For` names the client.
      read_again: called in a thread before `reload`; makes the settings from now on.
      reload_requested: not empty if SIGHUP has come before.
      afterwards: called in a thread when everything is compiled, with a function that
        translates a line in a direction.

    Raises:
      what the engine's warm-up raises.
    """
    service: Service = app.state.service
    config = uvicorn.Config(
        app,
        http=_Connection,
        ws="none",
        lifespan="off",
        access_log=False,
        log_config=None,
        server_header=False,
        timeout_keep_alive=KEEP_ALIVE,
        proxy_headers=proxies is not None,
        forwarded_allow_ips=proxies,
        # Requests are over by then; what is left are clients that do not read.
        timeout_graceful_shutdown=math.ceil(service.settings.seconds) + 10,
    )
    server, loop = _Server(config), asyncio.get_running_loop()
    reloading: list[asyncio.Task] = []  # the last one
    reload_event = asyncio.Event()

    async def then_measure(work: Callable, *arguments) -> None:
        await asyncio.to_thread(work, *arguments)
        await service.measure()

    def translate(direction: str, line: str) -> Any:
        deadline = time.monotonic() + service.settings.seconds
        request = direction, [line], [DEFAULTS]
        work = service.engine.translate(*request, client="", deadline=deadline)
        [result] = asyncio.run_coroutine_threadsafe(work, loop).result()
        if isinstance(result, UserError):
            raise result
        return result

    def compile_rest() -> None:
        service.engine.compile_rest()
        if not service.stopping:
            afterwards(translate)
            service.engine.compile_rest()  # what that has compiled does not count

    async def warm_up() -> None:
        await asyncio.to_thread(service.engine.warm_up, service.report)
        compiling.append(loop.run_in_executor(None, compile_rest))
        compiling[0].add_done_callback(
            lambda future: future.exception() and stop(signal.SIGTERM)
        )
        await service.measure()

    compiling: list[asyncio.Future] = []
    stopped: list[float] = []

    def stop(number: int) -> None:
        stopped.append(time.monotonic())
        if stopped[-1] - stopped[0] > REPEAT:  # whatever a thread still does
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
        server.should_exit = service.stopping = True

    async def reload_while_asked() -> None:
        await asyncio.wait({warming})
        while reload_event.is_set() and service.ready and not service.stopping:
            reload_event.clear()
            # In the loop's thread: what it does without `await` sees one of the two.
            service.settings = await asyncio.to_thread(read_again, service.settings)
            await then_measure(reload)

    def reload_once() -> None:
        reload_event.set()
        if not reloading or reloading[0].done():  # one at a time
            reloading[:] = [asyncio.create_task(reload_while_asked())]

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop, number)
    warming = asyncio.create_task(warm_up())
    loop.add_signal_handler(signal.SIGHUP, reload_once)
    if reload_requested:
        reload_once()
    serving = asyncio.create_task(server.serve([listener]))
    await asyncio.wait({warming, serving}, return_when=asyncio.FIRST_COMPLETED)
    if warming.done() and warming.exception():
        server.should_exit = True
    elif warming.done():
        say("ready")
    await serving
    # Nothing ends a compilation, and nobody waits for it; lines are answered.
    if not all(task.done() for task in (warming, *compiling)):
        say("stopped while it compiled")
        sys.stdout.flush()
        os._exit(0)
    try:
        for task in (warming, *compiling, *reloading):
            await task
    finally:
        await service.engine.close()
