"""The sentences of any batch of a run, looked up by its position in the data."""

import json
from collections.abc import Iterator

import numpy as np

from t2t_jax.config import Config
from t2t_jax.data.batching import Layout
from t2t_jax.data.corpus import split_places
from t2t_jax.data.feeding import Epoch, Position, epoch_for
from t2t_jax.data.pairs import Pairs
from t2t_jax.data.tokenizer import Vocabulary


class BatchLookup:
    """Reconstructs any batch of a run from the plan; nothing is recorded in training.

    Args:
      config: The config of the run.
      pairs: Its training text, as prepared.
      vocabulary: Its tokenizer.
    """

    def __init__(self, config: Config, pairs: Pairs, vocabulary: Vocabulary):
        self._config, self._pairs, self._vocabulary = config, pairs, vocabulary
        # Only the last epoch used: a plan of 36 million pairs takes much memory.
        self._epochs: dict[int, Epoch] = {}

    def _epoch(self, epoch: int) -> Epoch:
        if epoch not in self._epochs:
            seed = self._config.train.seed
            self._epochs = {}  # before the next one is made
            made = epoch_for(self._pairs, self._config.data, seed, epoch)
            self._epochs = {epoch: made}
        return self._epochs[epoch]

    def position(self, start: Position, batches: int) -> Position:
        """The position `batches` batches after `start`, across ends of epochs."""
        epoch, number = start.epoch, start.batch + batches
        while number >= (length := len(self._epoch(epoch).plan)):
            epoch, number = epoch + 1, number - length
        return Position(epoch, number)

    def pairs(self, position: Position) -> Iterator[dict]:
        """Yields the pairs of the batch at a position, in the order of its rows.

        Yields:
          A dict of `row` (in the batch), `corpus` (a place of `config.data.train`),
          `line` (in that corpus before cleaning, from 1), and `source` and `target`
          (the text that the tokens decode to, as the model saw them).
        """
        varied, plan = self._epoch(position.epoch)
        layout = plan[position.batch]
        places = split_places(self._config.data.train)
        # Pairs are numbered consecutively across corpora.
        first = np.cumsum([0, *self._pairs.sizes])
        source, target = self._tokens(varied, position.epoch, layout)
        sides = self._vocabulary.source.decode(source), self._vocabulary.decode(target)
        for pair, row, source, target in zip(
            layout.pair_p.tolist(), layout.row_p.tolist(), *sides, strict=True
        ):
            # side="right": the first pair of a corpus belongs to it, and a corpus of
            # which nothing is left has none.
            corpus = int(np.searchsorted(first, pair, side="right")) - 1
            yield {
                "row": row,
                "corpus": places[corpus],
                "line": int(self._pairs.line[pair]),
                "source": source,
                "target": target,
            }

    def _tokens(
        self, pairs: Pairs, epoch: int, layout: Layout
    ) -> list[list[np.ndarray]]:
        """The source tokens of each pair of a batch, and its target tokens."""
        batch = pairs.batch(layout, self._config.train.seed, epoch)
        starts = layout.source_start_p, layout.target_start_p
        return [
            [
                batch[side][row, start : start + length]
                for row, start, length in zip(
                    layout.row_p, start_p, length_p[layout.pair_p], strict=True
                )
            ]
            for side, start_p, length_p in zip(
                ("source", "target"), starts, pairs.lengths(), strict=True
            )
        ]

    def lines(self, position: Position) -> list[str]:
        """The same as `pairs`, each pair as a line of JSON."""
        return [json.dumps(p, ensure_ascii=False) for p in self.pairs(position)]
