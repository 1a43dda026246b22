"""The fields of a request: from its query, a form or JSON, and checked.

`fields("q:texts! source=auto alternatives:count=0")` declares them: a name, a kind of
`KINDS` (`text` by default), and `!` if it has to be given, or its default.
"""

import asyncio
import functools
import json
import math
import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple
from urllib.parse import parse_qsl

from starlette.exceptions import HTTPException
from starlette.requests import Request

from t2t_jax.decoding.inputs import check_text
from t2t_jax.io.errors import UserError, shortened

MESSAGE = 1000  # characters of an error, at most


class Refusal(Exception):  # noqa: N818  (most are a client's error)
    """An answer that is an error: its status, a code for programs, and a message.

    A message may quote what a client sent; it is shortened, whatever that was.
    """

    def __init__(self, status: int, code: str, message: str, retry_after: int = 0):
        super().__init__(shortened(message, MESSAGE))
        self.status, self.code = status, code
        self.headers = {"Retry-After": str(retry_after)} if retry_after else {}


def bad(message: str) -> Refusal:
    return Refusal(400, "bad_request", message)


def _text(value) -> str:
    if not isinstance(value, str):
        raise TypeError
    check_text(value)  # a lone surrogate has no UTF-8
    return value


def _list(value) -> list:
    return value if isinstance(value, list) else [value]


def _texts(value) -> list[str]:
    return [*map(_text, _list(value))]


def _phrases(value) -> list[str | list[str]]:
    return [_texts(x) if isinstance(x, list) else _text(x) for x in _list(value)]


def _names(value) -> list[str]:
    return [name for text in _texts(value) for name in text.split(",") if name]


def _count(value) -> int:
    if isinstance(value, bool) or not re.fullmatch(r"[0-9]{1,9}", str(value)):
        raise ValueError
    return int(value)


def _number(value) -> float:
    if not math.isfinite(number := float(value)):
        raise ValueError
    return number


def _word(value) -> str:
    return str(value).lower()


def _flag(value) -> bool:
    return {"true": True, "1": True, "false": False, "0": False}[str(value).lower()]


def _objects(value) -> list[dict]:
    return [*map(dict, value)]


_STRING = {"type": "string"}
_STRINGS = {"anyOf": [_STRING, {"type": "array", "items": _STRING}]}
_PHRASES = {"anyOf": [_STRING, {"type": "array", "items": _STRINGS}]}
_OBJECTS = {"type": "array", "items": {"type": "object"}}
# How each kind is read, what is wanted, and its JSON Schema. Forms have only texts.
KINDS: dict[str, tuple[Callable[[Any], Any], str, dict]] = {
    "text": (_text, "a text", _STRING),
    "texts": (_texts, "a text or a list of texts", _STRINGS),
    "phrases": (_phrases, "a phrase, a list of them, or a list of lists", _PHRASES),
    "names": (_names, "names, separated by commas", _STRINGS),
    "count": (_count, "a whole number", {"type": "integer", "minimum": 0}),
    "number": (_number, "a number", {"type": "number"}),
    "word": (_word, "a word", {}),
    "flag": (_flag, "true or false", {"type": "boolean"}),
    "objects": (_objects, "a list of objects", _OBJECTS),
}


class Field(NamedTuple):
    """A field that an interface reads."""

    kind: str
    needed: bool
    default: Any

    def size(self, value: Any) -> tuple[int, int]:
        """The entries of a value, and the characters of different ones."""
        texts = _list(value)
        if self.kind == "objects":
            return 0, 0
        if self.kind == "phrases":  # of each line
            listed = [x for entry in texts if isinstance(entry, list) for x in entry]
            texts = [*texts, *listed]
        entries = len(texts)
        if self.kind in ("phrases", "names"):  # those of all lines count once
            texts = {text for text in texts if isinstance(text, str)}
        return entries, sum(len(text) for text in texts if isinstance(text, str))

    def read(self, name: str, given: Mapping[str, Any]) -> Any:
        read, expected, _ = KINDS[self.kind]
        value = given.get(name)
        if value is None and self.needed:
            raise bad(f"{name} is missing; want {expected}")
        try:
            return self.default if value is None else read(value)
        except UserError as e:
            raise bad(f"{name}: {e}") from None
        except (ArithmeticError, LookupError, TypeError, ValueError):
            raise bad(f"{name} is a {type(value).__name__}; want {expected}") from None

    @property
    def schema(self) -> dict:
        """JSON Schema, with the default."""
        schema = KINDS[self.kind][2]
        return schema if self.default is None else schema | {"default": self.default}


@functools.cache
def fields(declared: str) -> dict[str, Field]:
    """Parses the declaration of fields, as the head of this file has it."""
    parsed = {}
    for word in declared.split():
        match = re.fullmatch(r"(\w+)(?::(\w+))?(!?)(?:=(\w+))?", word)
        name, kind, needed, default = match.groups()
        kind = kind or "text"
        value = None if default is None else KINDS[kind][0](default)
        parsed[name] = Field(kind, bool(needed), value)
    return parsed


def parse(request: Request, body: bytes) -> dict[str, Any]:
    """Reads the fields of the query and of the body, in a thread.

    A field that a form or query repeats is a list.
    """
    content_type = request.headers.get("content-type", "")
    kind, document = content_type.partition(";")[0].strip().lower(), {}
    try:
        pairs = _pairs(request.scope["query_string"].decode("latin-1"))
        body = _decoded(body, request.headers)
        # `curl -d '{...}'` says that JSON is a form, unless it is told otherwise.
        if kind == "application/x-www-form-urlencoded" and body.lstrip()[:1] != "{":
            pairs += _pairs(body)
        elif kind == "multipart/form-data":
            # Python's decoders of `punycode` and `idna` take minutes for a megabyte.
            charset = re.search('charset="?([^";]*)', content_type, re.IGNORECASE)
            if charset and charset[1].strip().lower() not in ("utf-8", "utf8"):
                raise bad(f"charset={charset[1][:60]!r}; want UTF-8")
            pairs += asyncio.run(_parts(request.scope, body))
            boundary = re.search('boundary="?([^";]+)', content_type)
            if f"--{boundary and boundary[1]}--" not in body:
                raise bad("the form has no end: the body is cut, or its boundary wrong")
        elif body.strip():
            document = json.loads(body, parse_constant=_no_constant)
    except HTTPException as e:  # of the parser of multipart forms
        raise bad(f"the form cannot be read: {e.detail}") from None
    except UnicodeDecodeError:
        raise bad("the body or the query is not UTF-8") from None
    except (ValueError, RecursionError):
        raise bad("the body is neither JSON nor a form; is it cut?") from None
    if not isinstance(document, dict):
        raise bad(f"the body is a JSON {type(document).__name__}; want an object")
    joined: dict[str, list] = {}
    for name, value in pairs:
        joined.setdefault(name, []).append(value)
    return {n: v[0] if len(v) == 1 else v for n, v in joined.items()} | document


def _pairs(text: str) -> list[tuple[str, str]]:
    # Starlette's parser takes bytes that are not escaped for Latin-1; curl sends UTF-8.
    return parse_qsl(text, keep_blank_values=True, errors="strict", max_num_fields=9999)


async def _parts(scope: Mapping, body: str) -> list[tuple[str, Any]]:
    async def receive() -> dict:
        return {"type": "http.request", "body": body.encode()}

    return (await Request(scope, receive).form(max_files=0)).multi_items()


def _no_constant(name: str):
    raise ValueError(name)  # NaN and Infinity are not JSON


def _decoded(body: bytes, headers: Mapping[str, str]) -> str:
    """Decodes a body, which may begin with a byte order mark; empty if there is none.

    Raises:
      Refusal: it is compressed, or in UTF-16 or UTF-32.
      UnicodeDecodeError: it is in another encoding.
    """
    coding = headers.get("content-encoding", "").lower()
    if body and coding not in ("", "identity"):
        message = f"Content-Encoding={coding!r}; want the body as it is, without"
        raise Refusal(415, "wrong_encoding", message)
    if not (encoding := json.detect_encoding(body)).startswith("utf-8"):
        message = f"the body is in {encoding.upper()}; want UTF-8"
        raise Refusal(415, "wrong_encoding", message)
    return body.decode("utf-8-sig")


async def read_body(request: Request, limit: int) -> bytes:
    """Reads a body of at most `limit` bytes."""
    length = request.headers.get("content-length", "0")
    body = bytearray()
    if not length.isdecimal() or int(length) <= limit:
        async for chunk in request.stream():  # chunked bodies do not give a length
            body += chunk
            if len(body) > limit:
                break
        else:
            return bytes(body)
    raise Refusal(413, "too_large", f"the body has more than {limit:,} bytes")
