"""An engine that translates without a model, for tests of what is in front of it."""

import asyncio
import contextlib
import itertools
import time
import types

from t2t_jax.config import DataConfig
from t2t_jax.decoding.results import Alignment, Hypothesis, Score, Translation
from t2t_jax.extensions.decoding.preserving import ModelSupport
from t2t_jax.extensions.text.language_identification import Guess
from t2t_jax.io.errors import UserError
from t2t_jax.text.units import Aligned, units
from t2t_jax.text.words import token_words
from t2t_jax.tools.serve.engine import Details, Direction, Limits
from t2t_jax.tools.serve.turns import LateError, Turns


def tokens_of(words):
    """The tokens of each word: its first letter, and the rest."""
    return [[f" {word[:1]}", word[1:]] if word[1:] else [f" {word}"] for word in words]


class Vocabulary:
    """The tokens of a line are those of `tokens_of`, and an end."""

    def words(self, ids, line):
        tokens = itertools.chain.from_iterable(tokens_of(line.split(" ")))
        return token_words([*map(str.encode, tokens), b""])


TRANSLATOR = types.SimpleNamespace(
    vocabulary=Vocabulary(),
    members=(types.SimpleNamespace(weights="float32"),),
    provenance=lambda: {"checkpoints": [[12]], "decode": {"beam": 5, "alpha": 0.6}},
    preserving_support=ModelSupport.of(DataConfig(), lambda line, longest=0: True),
)


class FakeEngine:
    """Translates `line` to `<de> line`; the second hypothesis is `<de 2> line`.

    Attributes:
      calls: arguments of `translate`.
      cancelled: lines whose task was cancelled.
      wait: lines wait until it is set, or the deadline is over.
      raises: what `translate` raises.
      resting: the rest is compiled when it is set.
    """

    limits, turns, translator = Limits(beams=(4, 1)), Turns(), TRANSLATOR

    def __init__(self, *names, ready=True):
        self.directions = {
            name: Direction(name, *name.split("-"), self.translator)
            for name in names or ("en-de",)
        }
        self.ready, self.compilations = ready, 0
        self.calls, self.cancelled, self.closed, self.reloaded = [], [], False, []
        self.raises = None
        self.wait, self.warming, self.resting = asyncio.Event(), None, None
        self.compiling = ["en-de: details"]
        self.wait.set()
        self._queued = 0

    def warm_up(self, report):
        report("en-de: 1 of 2 programs")
        if self.warming:
            self.warming.wait()
        report("en-de: 2 of 2 programs")
        self.ready = True

    def compile_rest(self):
        if self.resting:
            self.resting.wait()
        self.compiling = []

    def rows(self):
        return 3, 16_000_001

    def stuck(self):
        return 0.0

    @contextlib.contextmanager
    def expected(self, client, count, deadline):
        yield

    def queued(self):
        return self._queued

    def check_load(self, client, count, deadline):
        pass

    async def translate(
        self, direction, lines, requests, *, client, deadline, checked=False
    ):
        self.calls.append((direction, [*lines], [*requests], client))
        self._queued += len(lines)
        try:
            async with asyncio.timeout(deadline - time.monotonic()):
                await self.wait.wait()
        except TimeoutError:
            raise LateError from None
        except asyncio.CancelledError:
            self.cancelled += lines
            raise
        finally:
            self._queued -= len(lines)
        if self.raises:
            raise self.raises
        return [
            self._translation(direction, line, request)
            for line, request in zip(lines, requests, strict=True)
        ]

    def _translation(self, direction, line, request):
        if "bad" in line:
            return UserError(f"{line!r} is bad")
        tag = direction.partition("-")[2]
        texts = [f"<{tag}{f' {i}' * (i > 1)}> {line}" for i in range(1, 5)]
        texts[0] = " ".join([texts[0], *request.must])
        # exp(-2 / 4): a confidence of 0.61
        tokens = (1, 2, 3, 4, 0)[-4 if "low" in line else 0 :]
        log_prob = -20.0 if "low" in line else -2.5
        results = [
            Hypothesis(t, -0.5 * i, log_prob, True, tokens) for i, t in enumerate(texts)
        ]
        return Translation(line, tuple(results[: request.nbest]), 3 * ("long" in line))

    async def details(self, direction, pairs, *, client, deadline):
        details = []
        for line, translation in pairs:
            words = tokens_of(translation.text.split(" "))
            # The later, the less probable: several bands.
            log_probs = (-0.25 * n for n, tokens in enumerate(words) for _ in tokens)
            pieces = (*itertools.chain.from_iterable(words), "</s>")
            links = tuple((n, n) for n in range(min(len(words), line.count(" ") + 1)))
            score = Score(pieces, (*log_probs, -1.5), 0.0)
            details.append(Details(score, Alignment(links)))
        return details

    async def align_units(self, direction, pairs, client, deadline):
        aligned = []
        for line, results in pairs:
            tag, _, _ = results.text.partition("> ")
            previous, line_units = len(units(f"{tag}>")), units(line)
            links = [(n, n + previous) for n in range(len(line_units))]
            aligned.append(Aligned(line_units, units(results.text), links))
        return aligned

    async def close(self):
        self.closed = True

    def reload(self, direction, translator):
        self.reloaded.append(direction)


class FakeGuesser:
    """The language is the text's first word, as in `fr: bonjour`, or else English.

    Text with a question mark first is in no language that is served.
    """

    def guess(self, text):
        if text.startswith("?"):
            return Guess("en", 0.01, 0.02)
        has_code = text[2:3] == ":"
        return Guess(*((text[:2], 0.925, 1.0) if has_code else ("en", 0.6, 0.6)))
