"""Text in, text out.

A line's translation does not depend on the lines beside it: every line goes through
the same shapes whatever is translated with it, since row counts are fixed for a length.

Shape suffixes: b batch rows, s source, n hypotheses, t target.
"""

import dataclasses
import logging
from collections.abc import Iterator, Sequence
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from etils import epath
from flax import nnx

from t2t_jax import workdir as workdirs
from t2t_jax.config import Config
from t2t_jax.data.cleaning import visible
from t2t_jax.data.vocab import Vocabulary
from t2t_jax.decoding.search import beam_search
from t2t_jax.errors import UserError
from t2t_jax.model.transformer import Model, Parameters, build
from t2t_jax.training.parameters import average, choose

log = logging.getLogger("t2t_jax")


@dataclasses.dataclass(frozen=True)
class Hypothesis:
    """One translation of a line.

    Attributes:
      text: what a person reads.
      score: log_prob / length penalty, what hypotheses are ranked by.
      log_prob: natural logarithm, over all pieces and the end of the sentence.
      ended: False if it reached its longest length before its end.
    """

    text: str
    score: float
    log_prob: float
    ended: bool


_STATIC = ("definition", "beam", "nbest", "alpha", "max_length", "bos", "eos", "pad")


@partial(jax.jit, static_argnames=_STATIC)
def _search(
    parameters,
    source_bs,
    segment_bs,
    limit_b,
    *,
    definition,
    beam,
    max_length,
    **options,
):
    """Encodes, remembers and searches: one compilation a shape."""
    model = nnx.merge(definition, parameters)
    position_bs = jnp.broadcast_to(jnp.arange(source_bs.shape[1]), source_bs.shape)
    memory = model.remember(source_bs, segment_bs, position_bs)

    def step(cache, token_bn, position):
        logits_bnv, cache = model.step(memory, cache, token_bn, position)
        return logits_bnv, cache

    cache = model.empty_cache(source_bs.shape[0], beam, max_length)
    options = dict(options, beam=beam, max_length=max_length)
    return beam_search(step, cache, limit_b, **options)


class Translator:
    """A trained model that translates lines of text.

    Attributes:
      config, vocabulary, model: of the workdir.
      parameters: of one checkpoint, or the average of several.
      steps: the training steps that were averaged.
    """

    def __init__(
        self,
        config: Config,
        vocabulary: Vocabulary,
        model: Model,
        parameters: Parameters,
        steps: Sequence[int] = (),
    ):
        self.config = config
        self.vocabulary = vocabulary
        self.model = model
        self.parameters = jax.device_put(parameters)
        self.steps = tuple(steps)

    @classmethod
    def load(
        cls, workdir: epath.PathLike, checkpoint: str | int | None = None
    ) -> "Translator":
        """Loads a workdir for translation. Runs no code of it.

        Args:
          workdir: a folder, or gs://BUCKET/FOLDER.
          checkpoint: `average` (of the last `config.decode.average` checkpoints,
            section 6.1), `average:N` of the last N, `last`, `best` (of all
            evaluations, by dev BLEU), `best:N` for the average of the N best, or a
            step; `config.decode.checkpoint` where not given.

        Raises:
          UserError: not a workdir, or no such checkpoint, or none that is intact. One
            that is damaged is named, and the one before it takes its place, unless it
            or a number was asked for.
        """
        workdir = workdirs.path(workdir)
        config = workdirs.read_config(workdir)
        vocabulary = workdirs.read_vocabulary(workdir)
        model = build(config.model, len(vocabulary))
        choice = choose(workdir, config, checkpoint)
        steps, parameters = average(choice, model.shapes)
        return cls(config, vocabulary, model, parameters, steps)

    def __repr__(self) -> str:
        data, steps = self.config.data, ", ".join(f"{s:,}" for s in self.steps)
        return (
            f"Translator({data.source} -> {data.target}, {self.model.count():,} "
            f"parameters, {self.vocabulary!r}, of steps {steps})"
        )

    def translate(self, lines: Sequence[str], beam: int | None = None) -> list[str]:
        """The best translation of each line, in order.

        A line without a visible character is translated by an empty line.
        """
        return [best[0].text for best in self.hypotheses(lines, beam=beam)]

    def hypotheses(
        self,
        lines: Sequence[str],
        *,
        beam: int | None = None,
        nbest: int = 1,
        alpha: float | None = None,
        first_line: int = 1,
        warn: bool = True,
    ) -> list[list[Hypothesis]]:
        """The `nbest` best hypotheses of each line, best first.

        Args:
          lines: text, one sentence each.
          beam, alpha: width of the search and exponent of the length penalty; the
            config's where not given.
          nbest: at most `beam`.
          first_line: the number of the first line, in warnings.
          warn: tell, through the logger `t2t_jax`, of every line that is cut because
            it is too long and of every translation that reached its longest length.
        """
        if isinstance(lines, str):
            raise UserError(
                "translate takes a list of lines; got one string: put it in []"
            )
        decode = self.config.decode
        options = {
            "beam": decode.beam if beam is None else beam,
            "alpha": decode.alpha if alpha is None else alpha,
            "nbest": nbest,
        }
        _check(options["beam"], nbest)
        tell = log.warning if warn else log.debug
        sources = self._sources(lines, first_line, tell)
        results = [[Hypothesis("", 0.0, 0.0, True)] for _ in lines]
        for rows, bucket in self._batches(sources):
            found = self._search([sources[row] for row in rows], bucket, options)
            for row, hypotheses in zip(rows, found, strict=True):
                results[row] = hypotheses
                if not hypotheses[0].ended:
                    tell(
                        "line %d: its translation did not end within %d pieces",
                        first_line + row,
                        len(sources[row]) + decode.extra_length,
                    )
        return results

    def _sources(self, lines, first_line: int, tell) -> list[list[int]]:
        """Ids of each line with EOS, cut (with a warning) where they are too many.

        None of a line without a visible character: it is translated by an empty line.
        """
        longest = self.config.decode.max_source
        if self.config.model.positions == "learned":  # a bucket and what it may grow to
            room = self.config.model.max_positions - self.config.decode.extra_length
            longest = min(longest, 1 << max(3, room.bit_length() - 1))
        sources = []
        encoded = zip(lines, self.vocabulary.encode(lines), strict=True)
        for number, (line, ids) in enumerate(encoded, first_line):
            if not visible(line):
                sources.append([])
                continue
            if len(ids) >= longest:
                tell(
                    "line %d has %d pieces; only the first %d are translated "
                    "(config.decode.max_source=%d)",
                    *(number, len(ids), longest - 1, longest),
                )
                ids = ids[: longest - 1]
            sources.append([*ids, self.vocabulary.eos])
        return sources

    def _batches(self, sources: list[list[int]]) -> Iterator[tuple[list[int], int]]:
        """Rows of similar length with their bucket: 32, 64, 128, ... positions."""
        order = sorted((len(ids), row) for row, ids in enumerate(sources) if ids)
        buckets: dict[int, list[int]] = {}
        for length, row in order:
            bucket = max(32, 1 << (length - 1).bit_length())
            buckets.setdefault(bucket, []).append(row)
        for bucket, rows in buckets.items():
            size = self._rows(bucket)
            for start in range(0, len(rows), size):
                yield rows[start : start + size], bucket

    def _rows(self, bucket: int) -> int:
        """How many lines are searched at once: fixed for a bucket, a multiple of 8."""
        return max(8, self.config.decode.batch_tokens // bucket // 8 * 8)

    def _search(self, sources: list[list[int]], bucket: int, options: dict):
        """Searches one batch, filled up with empty rows to its fixed size."""
        vocabulary, extra = self.vocabulary, self.config.decode.extra_length
        rows = self._rows(bucket)
        source_bs = np.zeros((rows, bucket), np.int32)
        length_b = np.ones(rows, np.int32)
        for row, ids in enumerate(sources):
            source_bs[row, : len(ids)] = ids
            length_b[row] = len(ids)
        segment_bs = (np.arange(bucket) < length_b[:, None]).astype(np.int32)
        limit_b = np.where(np.arange(rows) < len(sources), length_b + extra, 1)
        found = _search(
            self.parameters,
            *(source_bs, segment_bs, limit_b.astype(np.int32)),
            definition=self.model.definition,
            max_length=bucket + extra,
            bos=vocabulary.bos,
            eos=vocabulary.eos,
            pad=vocabulary.pad,
            **options,
        )
        found = jax.device_get(found)
        return [self._readable(found, row) for row in range(len(sources))]

    def _readable(self, found, row: int) -> list[Hypothesis]:
        kept = found.length_bn[row] > 0  # a place that no hypothesis takes has none
        texts = self.vocabulary.decode(found.tokens_bnt[row][kept])
        numbers = zip(
            texts,
            found.score_bn[row][kept].tolist(),
            found.log_prob_bn[row][kept].tolist(),
            found.ended_bn[row][kept].tolist(),
            strict=True,
        )
        # One line in, one line out, whatever bytes a model puts together and whichever
        # of Unicode's line ends a reader of the output goes by.
        return [
            Hypothesis(" ".join(text.splitlines()), *rest) for text, *rest in numbers
        ]


def _check(beam: int, nbest: int) -> None:
    if beam < 1:
        raise UserError(f"beam={beam}; want at least 1 (1 is greedy search)")
    if not 1 <= nbest <= beam:
        raise UserError(
            f"nbest={nbest} with beam={beam}; want 1 <= nbest <= beam: a beam of "
            f"{max(nbest, 1)} or more finds that many"
        )
