"""A translation server that answers at once with what it was told, for the page."""

import contextlib
import json
import os
import re
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from t2t_jax.tools.serve.page import page

WORDS = {"the": "der", "dog": "Hund", "sleeps": "schläft"}
OTHERS = ("Kater", "Wolf")  # the second and third hypotheses' word for "dog"


class Server(ThreadingHTTPServer):
    """Serves the page and the routes that it asks.

    Attributes:
      asked: the bodies of requests to /v1/translate, in the order of their arrival.
      split: the lines of requests to /v1/sentences.
      splits: False if the server finds no sentences in lines.
      limits: of a request, as /v1/directions gives them.
      delays: seconds that a request waits, by the text of its first line.
      refusals: (status, headers, body) of the next answers, before real ones.
      refused: a text; requests with a line that contains it get status 500.
      unready: how often /ready still answers 503.
      key: that requests need, or None.
    """

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.asked, self.delays, self.refusals = [], {}, []
        self.split, self.splits, self.limits, self.refused = [], True, {}, None
        self.unready, self.key = 0, None

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_port}/"


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        if self.path == "/":
            # In Firefox, Playwright needs `eval`, which the page's policy forbids.
            allowed = b"script-src 'unsafe-eval' " if "FIREFOX" in os.environ else b""
            html = page().replace(b"script-src ", allowed or b"script-src ", 1)
            return self._send(200, html, "text/html; charset=utf-8")
        if self.path == "/ready" and self.server.unready > 0:
            self.server.unready -= 1
            body = {"ready": False, "compiled": ["1 of 4", "2 of 4 programs"]}
            return self._json(body, 503, {"Retry-After": "1"})
        pairs = [("en", "de"), ("de", "en"), ("en", "fr")]
        directions = [
            {"name": f"{a}-{b}", "source": a, "target": b, "beams": [3], "phrases": 4}
            for a, b in pairs
        ]
        return self._json({"directions": directions, "limits": self.server.limits})

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.path == "/v1/sentences":
            self._sentences(body)
            return
        self.server.asked.append(body)
        if self._refused():
            return
        if self.server.refused and self.server.refused in " ".join(body["lines"]):
            self._error(500, "an error of the server")
            return
        if self.server.refusals:
            status, headers, message = self.server.refusals.pop(0)
            self._error(status, message, headers)
            return
        time.sleep(self.server.delays.get(body["lines"][0], 0))
        answer = {"direction": body["direction"], "translations": answers(body)}
        if body.get("provenance"):
            answer["provenance"] = {"checkpoint": 7}
        with contextlib.suppress(ConnectionError):  # the page has cancelled it
            self._json(answer)

    def _sentences(self, body):
        if not self.server.splits:
            self._error(501, "no splitter is installed")
        elif not self._refused():
            self.server.split.append(body["lines"])
            lines = [*map(sentences, body["lines"])]
            self._json({"direction": body["direction"], "lines": lines})

    def _refused(self):
        if self.server.key is None:
            return False
        given = self.headers.get("Authorization")
        if given == f"Bearer {self.server.key}":
            return False
        self._error(*((401, "no API key") if given is None else (403, "wrong API key")))
        return True

    def _error(self, status, message, headers=None):
        self._json({"error": {"code": "x", "message": message}}, status, headers)

    def _json(self, value, status=200, headers=None):
        self._send(status, json.dumps(value).encode(), "application/json", headers)

    def _send(self, status, body, kind, headers=None):
        self.send_response(status)
        for name, value in {"Content-Type": kind, **(headers or {})}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


def sentences(line):
    """The sentences of a line, which end before a space, and what is between them."""
    found = [*re.finditer(r"\S(?:.*?[.?!](?=\s|$)|.*\S)?", line)]
    ends = [0, *(each.end() for each in found)]
    starts = [*(each.start() for each in found), len(line)]
    between = [line[a:b] for a, b in zip(ends, starts, strict=True)]
    return {"sentences": [each[0] for each in found], "between": between}


def answers(body):
    """The translations that a request asks for, word by word."""
    count = len(body["lines"])
    prefixes = body.get("prefix", "")
    prefixes = [prefixes] * count if isinstance(prefixes, str) else prefixes
    forbidden = body.get("must_not") or [[]] * count
    return [
        answer(*line, body["nbest"])
        for line in zip(body["lines"], prefixes, forbidden, strict=True)
    ]


def answer(line, prefix, forbidden, nbest):
    """The first word takes the first target word's place, and so on."""
    if line.startswith("bad"):
        return {"source": line, "error": f"no translation of {line!r}"}
    words = line.split()
    hypotheses = []
    for n in range(nbest):
        target = [WORDS.get(word, word) for word in words]
        if n or "Hund" in forbidden:
            other = OTHERS[max(0, n - 1)]
            target = [other if word == "Hund" else word for word in target]
        begun = prefix.split()
        target[: len(begun)] = begun
        score = -0.1 - n
        text = " ".join(target)
        log_prob = score * len(target)
        hypotheses.append(
            {"text": text, "score": score, "log_prob": log_prob, "ended": True}
        )
    target = hypotheses[0]["text"].split()
    details = {
        "pieces": target,
        "log_probs": [-0.01] * len(target),
        "words": target,
        # The later, the less probable: several bands.
        "word_log_probs": [-0.5 * n for n, _ in enumerate(target)],
        "alignment": [[n, n] for n in range(min(len(words), len(target)))],
    }
    return {
        "source": line,
        "hypotheses": hypotheses,
        "confidence": 0.9,
        "cut": 0,
        "details": details,
    }


@contextlib.contextmanager
def running():
    """A server in a thread."""
    server = Server()
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
