"""An engine that translates without a model, for tests of what is in front of it."""

import asyncio
import contextlib
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


class Vocabulary:
    """Each token is the word of its number; 0 ends the sentence."""

    spelled = "", " Die", " Katze", " sch", "läft"

    def words(self, ids, line):
        return token_words([self.spelled[i].encode() for i in ids])


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
    """

    limits, turns = Limits(beams=(4, 1)), Turns()

    def __init__(self, *names, ready=True):
        names = names or ("en-de",)
        self.directions = {n: Direction(n, *n.split("-"), TRANSLATOR) for n in names}
        self.ready, self.compilations = ready, 0
        self.calls, self.cancelled, self.closed, self.reloaded = [], [], False, []
        self.raises = None
        self.wait, self.warming = asyncio.Event(), None
        self.wait.set()
        self._queued = 0

    def warm_up(self, report):
        report("en-de: 1 of 2 programs")
        if self.warming:
            self.warming.wait()
        report("en-de: 2 of 2 programs")
        self.ready = True

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
        self, direction, lines, options, *, client, deadline, checked=False
    ):
        self.calls.append((direction, [*lines], [*options], client))
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
        of = zip(lines, options, strict=True)
        return [self._translation(direction, *each) for each in of]

    def _translation(self, direction, line, options):
        if "bad" in line:
            return UserError(f"{line!r} is bad")
        tag = direction.partition("-")[2]
        texts = [f"<{tag}{f' {i}' * (i > 1)}> {line}" for i in range(1, 5)]
        texts[0] = " ".join([texts[0], *options.must])
        # exp(-2 / 4): a confidence of 0.61
        tokens = (1, 2, 3, 4, 0)[-4 if "low" in line else 0 :]
        log_prob = -20.0 if "low" in line else -2.5
        found = [
            Hypothesis(t, -0.5 * i, log_prob, True, tokens) for i, t in enumerate(texts)
        ]
        return Translation(line, tuple(found[: options.nbest]), 3 * ("long" in line))

    async def details(self, direction, pairs, *, client, deadline):
        score = Score(
            ("▁Die", "▁Katze", "▁sch", "läft", "</s>"),
            (-0.1, -0.2, -0.3, -0.4, -1.5),
            -0.5,
        )
        return [Details(score, Alignment(((0, 0), (1, 2)))) for _ in pairs]

    async def align_units(self, direction, pairs, client, deadline):
        aligned = []
        for line, found in pairs:
            tag, _, _ = found.text.partition("> ")
            before, of_line = len(units(f"{tag}>")), units(line)
            links = [(n, n + before) for n in range(len(of_line))]
            aligned.append(Aligned(of_line, units(found.text), links))
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
        known = text[2:3] == ":"
        return Guess(*((text[:2], 0.925, 1.0) if known else ("en", 0.6, 0.6)))
