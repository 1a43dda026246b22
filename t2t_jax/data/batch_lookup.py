"""A step of a run, or a position in its data -> the sentences of that batch."""

import json
from collections.abc import Iterator, Sequence

import numpy as np

from t2t_jax.config import Config
from t2t_jax.data.batching import Plan
from t2t_jax.data.corpus import split_places
from t2t_jax.data.feeding import Position, plan_for
from t2t_jax.data.prepare import Pairs
from t2t_jax.data.tokenizer import Vocabulary


class BatchLookup:
    """Tells what any batch of a run was, from its plan alone.

    Args:
      config: of the run.
      pairs: its training text.
    """

    def __init__(self, config: Config, pairs: Pairs, vocabulary: Vocabulary):
        self._config, self._pairs, self._vocabulary = config, pairs, vocabulary
        self._plans: dict[int, Plan] = {}  # the one last used, by its epoch

    def _plan(self, epoch: int) -> Plan:
        if epoch not in self._plans:
            seed = self._config.train.seed
            plan = plan_for(self._pairs, self._config.data, seed, epoch)
            self._plans = {epoch: plan}
        return self._plans[epoch]

    def position(self, start: Position, batches: int) -> Position:
        """The position `batches` batches after another one, over ends of epochs."""
        epoch, number = start.epoch, start.batch + batches
        while number >= (length := len(self._plan(epoch))):
            epoch, number = epoch + 1, number - length
        return Position(epoch, number)

    def pairs(self, position: Position) -> Iterator[dict]:
        """The pairs of the batch at a position, as they stand in it.

        Yields:
          `row` of the batch, `corpus` (a place of `config.data.train`) and `line` in it
          (from 1, of the text as it was read), `source` and `target`, the text that the
          pieces spell.
        """
        layout = self._plan(position.epoch)[position.batch]
        places = split_places(self._config.data.train)
        first = np.cumsum([0, *self._pairs.sizes])
        sides = [
            self._vocabulary.decode(self._spelled(side, layout.pair_p))
            for side in (self._pairs.source, self._pairs.target)
        ]
        for pair, row, source, target in zip(
            layout.pair_p.tolist(), layout.row_p.tolist(), *sides, strict=True
        ):
            corpus = int(np.searchsorted(first, pair, side="right")) - 1
            yield {
                "row": row,
                "corpus": places[corpus],
                "line": int(self._pairs.line[pair]),
                "source": source,
                "target": target,
            }

    def _spelled(self, side, pair_p: Sequence[int]) -> list[list[int]]:
        """The ids of some sentences, without the end."""
        return [side[pair][:-1].tolist() for pair in pair_p]

    def lines(self, position: Position) -> list[str]:
        """`pairs`, each as a line of JSON."""
        return [json.dumps(p, ensure_ascii=False) for p in self.pairs(position)]
