"""What the command line says about requests: limits, keys, hosts, terms."""

import dataclasses
import hashlib
import hmac
import ipaddress
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from urllib.parse import urlsplit

from t2t_jax.data.corpus import Pair
from t2t_jax.extensions.text.terms import Terms
from t2t_jax.io.errors import UserError
from t2t_jax.io.growing import DiskFile
from t2t_jax.io.locations import read_flag_file


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
      min_served: a text whose language is guessed stays as it is if it is less probably
        in a served one.
      split: how texts of clients' interfaces are divided, unless a request says so:
        as `PreservingOptions.split`.
      good_chrf: a translation with at least this sentence chrF is good.
      suggestions: the file that users' corrections are appended to; None: none are
        taken.
    """

    host: str = "127.0.0.1"
    allowed_hosts: tuple[str, ...] = ()
    cors: str = ""
    characters: int = 20_000
    lines: int = 500
    bytes: int = 1 << 20
    seconds: float = 20.0
    keys: tuple[bytes, ...] = ()
    terms: Mapping[str, "Glossary"] = dataclasses.field(default_factory=dict)
    dev: Mapping[str, Sequence[Pair]] = dataclasses.field(default_factory=dict)
    min_served: float = 0.1
    good_chrf: float = 50.0
    split: str = "sentences"
    suggestions: DiskFile | None = None

    def knows(self, digest: bytes) -> bool:
        """True if this is the digest of a key; takes the same time for all keys."""
        return sum(hmac.compare_digest(digest, key) for key in self.keys) > 0

    def serves(self, host: str) -> bool:
        """True if the server may be called by this name, with or without a port.

        Without this a web page could make its own name mean 127.0.0.1, and read what
        the server answers.
        """
        return "*" in self.allowed_hosts or _name(host) in self._names()

    def owns(self, origin: str, host: str) -> bool:
        """True for an origin of this server: of one of its names, or that of `host`.

        Args:
          host: the name that the request calls the server by, which is checked.
        """
        try:
            name = _name(urlsplit(origin).netloc)
        except ValueError:  # such as http://[::1
            return False
        return name in self._names() or name == _name(host)

    def _names(self) -> set[str]:
        names = {"localhost", "127.0.0.1", "::1", self.host, *self.allowed_hosts}
        return {_name(name) for name in names}


def _name(host: str) -> str:
    """A `Host` without its port."""
    return re.sub(r"(^[^:]*|\]):\d*$", r"\1", host.lower()).strip("[]")


def is_address(host: str) -> bool:
    """True for an IP address, with or without a port, and for no `Host` at all."""
    try:
        return not host or bool(ipaddress.ip_address(_name(host)))
    except ValueError:
        return False


def read_keys(name: str) -> tuple[bytes, ...]:
    """Reads a file of API keys, one a line; returns their SHA-256.

    Raises:
      UserError: no file, no keys, or a line that no HTTP header can carry.
    """
    keys = {}
    for number, line in enumerate(read_flag_file("api_keys", name).splitlines(), 1):
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


class Glossary(Terms):
    """Terms by the name that requests call them by, of a direction.

    Attributes:
      modified: when the file was, in seconds since 1970.
    """

    def __init__(self, name: str, direction: str, file: str):
        super().__init__(file)
        self.name, self.direction = name, direction
        self.modified = Path(file).expanduser().stat().st_mtime
