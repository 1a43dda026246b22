"""What the command line says about requests: limits, keys, hosts, terms."""

import dataclasses
import hashlib
import hmac
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from t2t_jax.data.corpus import Pair
from t2t_jax.io.errors import UserError


@dataclasses.dataclass(frozen=True)
class Settings:
    """Limits of requests, and who may send them.

    Attributes:
      host: the address that the server listens on; a name that it may be called by.
      allowed_hosts: further such names; `*`: any.
      cors: the origin whose pages may read answers; "": none; `*`: any.
      characters, lines, bytes: of a request, at most.
      seconds: after which a request is given up.
      keys: digests of the API keys (`read_keys`); empty: no key is wanted.
      terms: by name.
      dev: pairs of a dev set, by direction, for `min_precision`.
      good_chrf: a translation with at least this sentence chrF is good.
    """

    host: str = "127.0.0.1"
    allowed_hosts: tuple[str, ...] = ()
    cors: str = ""
    characters: int = 20_000
    lines: int = 500
    bytes: int = 1 << 20
    seconds: float = 20.0
    keys: tuple[bytes, ...] = ()
    terms: Mapping[str, "Terms"] = dataclasses.field(default_factory=dict)
    dev: Mapping[str, Sequence[Pair]] = dataclasses.field(default_factory=dict)
    good_chrf: float = 50.0

    def knows(self, digest: bytes) -> bool:
        """True if this is the digest of a key; takes the same time for all keys."""
        return sum(hmac.compare_digest(digest, key) for key in self.keys) > 0

    def serves(self, host: str) -> bool:
        """True if the server may be called by this name, with or without a port.

        Without this a web page could make its own name mean 127.0.0.1, and read what
        the server answers.
        """
        host = re.sub(r":\d*$", "", host.lower()).strip("[]")
        names = {"localhost", "127.0.0.1", "::1", self.host, *self.allowed_hosts}
        return "*" in names or host in {name.lower().strip("[]") for name in names}


def _read(flag: str, name: str) -> list[str]:
    try:
        return Path(name).expanduser().read_text(encoding="utf-8-sig").splitlines()
    except OSError as e:
        raise UserError(f"--{flag}: {name}: {os.strerror(e.errno)}") from None
    except UnicodeDecodeError:
        raise UserError(f"--{flag}: {name} is not UTF-8") from None


def read_keys(name: str) -> tuple[bytes, ...]:
    """Reads a file of API keys, one a line; returns their SHA-256.

    Raises:
      UserError: no file, no keys, or a line that no HTTP header can carry.
    """
    keys = {}
    for number, line in enumerate(_read("api_keys", name), 1):
        if not re.fullmatch(r"[!-~]*", key := line.strip()):
            raise UserError(
                f"--api_keys: {name}, line {number}: white space in a key, or a "
                "character that is not ASCII; want one key a line"
            )
        if key:
            keys[hashlib.sha256(key.encode()).digest()] = None
    if not keys:
        raise UserError(f"--api_keys: {name} has no key; want one a line")
    return tuple(keys)


def _tokens(text: str) -> tuple[str, ...]:
    """Words and marks; white space between them does not count."""
    return tuple(re.findall(r"\w+|[^\w\s]", text))


class Terms:
    """Terms of a direction, and how each is to be translated: a glossary.

    Args:
      name: as requests call it.
      direction: the name of the direction.
      file: a text file; lines `source<TAB>target`, empty ones are skipped.

    Attributes:
      count: of the terms.
      modified: when the file was, in seconds since 1970.

    Raises:
      UserError: no file, or a line of another form; with its number.
    """

    def __init__(self, name: str, direction: str, file: str):
        self.name, self.direction = name, direction
        self._targets: dict[tuple[str, ...], str] = {}  # by the words of the source
        for number, line in enumerate(_read("terms", file), 1):
            if not line.strip():
                continue
            place = f"--terms: {file}, line {number}"
            if (tabs := line.count("\t")) != 1:
                raise UserError(f"{place}: got {tabs} tabs, want 1: SOURCE<TAB>TARGET")
            source, target = map(str.strip, line.split("\t"))
            words = _tokens(source)
            if not words or not target:
                side = "target" if words else "source"
                raise UserError(f"{place}: the {side} is empty")
            if words in self._targets:
                raise UserError(f"{place}: {source!r} is there before, too")
            self._targets[words] = target
        self._longest = max(map(len, self._targets), default=0)
        self.count = len(self._targets)
        self.modified = Path(file).expanduser().stat().st_mtime

    def phrases(self, line: str) -> tuple[str, ...]:
        """The translations of terms that occur in a line as whole words.

        Of terms that overlap, the first and longest counts.
        """
        words, place, found = _tokens(line), 0, {}
        while place < len(words):
            for end in range(place + self._longest, place, -1):
                if target := self._targets.get(words[place:end]):
                    found[target] = None
                    place = end - 1
                    break
            place += 1
        return tuple(found)
