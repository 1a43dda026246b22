"""Compares preparing text with SentencePiece alone on all cores: speed and memory.

    python -m benchmarks.prepare
    python -m benchmarks.prepare --data=PREFIX --vocab_size=37000 --output=PATH
    python -m benchmarks.prepare --pairs=4500000 --vocab_size=37000 --rounds=1

SentencePiece alone is the limit: its lines are in memory and its results are dropped.
Ours reads the lines from PREFIX.en and PREFIX.de, cleans them and writes arrays. The
tokenizer is trained on at most `config.data.tokenizer_lines` lines: the limit gets the
first ones, ours has to draw its sample. The limit of encoding is measured on the first
400,000 lines. Every measurement has its own process; rounds alternate, and medians are
printed. On a busy machine, trust the processor time more than the wall time. Without
--data the text is generated.
"""

import itertools
import os
import tempfile
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from statistics import median

import sentencepiece
from absl import flags

from benchmarks import made_up, run
from t2t_jax.config import DataConfig
from t2t_jax.data import prepare
from t2t_jax.data.corpus import open_corpora
from t2t_jax.data.tokenizers.training import make_tokenizer, train_tokenizer
from t2t_jax.data.tokenizers.vocabulary import Vocabulary
from t2t_jax.tools.verify.own_process import in_own_process, megabytes

UNITS = "lines/s", "lines a processor second", "peak MB"
ALONE_LINES = 400_000  # enough to measure how fast SentencePiece encodes


class Clock:
    """Wall time and processor time of all cores, from its creation to `stop`."""

    def __init__(self, lines: int = 0):
        self.lines = lines
        self.seconds, self.processor = -time.perf_counter(), -time.process_time()

    def stop(self) -> "Clock":
        self.seconds += time.perf_counter()
        self.processor += time.process_time()
        return self


def ours_tokenizer(data: DataConfig, model: Path) -> Clock:
    training = open_corpora(data.train, data.source, data.target)
    clock = Clock(min(data.tokenizer_lines, sum(1 for _ in _lines(data))))
    vocabulary = make_tokenizer(training, data)
    clock.stop()
    model.write_bytes(vocabulary.model)
    return clock


def alone_tokenizer(data: DataConfig, model: Path) -> Clock:
    lines = list(itertools.islice(_lines(data), data.tokenizer_lines))
    clock = Clock(len(lines))
    train_tokenizer(lines, data.vocab_size)
    return clock.stop()


def ours_encoding(data: DataConfig, model: Path) -> Clock:
    training = open_corpora(data.train, data.source, data.target)
    vocabulary = Vocabulary.load(model)
    clock = Clock()
    clock.lines = 2 * prepare.training_pairs(training, vocabulary, data).read
    return clock.stop()


def alone_encoding(data: DataConfig, model: Path) -> Clock:
    lines = list(itertools.islice(_lines(data), ALONE_LINES))
    processor = sentencepiece.SentencePieceProcessor(model_file=str(model))
    clock = Clock(len(lines))
    for begin in range(0, len(lines), 10_000):
        processor.encode(lines[begin : begin + 10_000], num_threads=-1)
    return clock.stop()


PARTS = {
    "tokenizer": (ours_tokenizer, alone_tokenizer),
    "encoding": (ours_encoding, alone_encoding),
}


def _lines(data: DataConfig) -> Iterator[str]:
    training = open_corpora(data.train, data.source, data.target)
    return (line for corpus in training for pair in corpus.pairs() for line in pair)


def measured(contender, data: DataConfig, model: Path) -> tuple[float, float, float]:
    """Lines per second, per processor second, and peak MiB; for a process of its own.

    The tokens that it prepares are not kept for the next one.
    """
    with tempfile.TemporaryDirectory() as cache:
        os.environ["T2T_JAX_CACHE"] = cache
        clock = contender(data, model)
    speeds = clock.lines / clock.seconds, clock.lines / clock.processor
    return *speeds, megabytes("VmHWM")


def compared(part: str, data: DataConfig, model: Path, rounds: int) -> list:
    """Measures ours and SentencePiece alone in turns; returns the medians as rows."""
    from benchmarks.measuring import Row, turns  # not in the processes measured

    contenders = dict(zip(("ours", "alone"), PARTS[part], strict=True))
    results = turns(
        {
            name: partial(in_own_process, measured, contender, data, model)
            for name, contender in contenders.items()
        },
        rounds,
    )
    medians = {
        name: [median(column) for column in zip(*samples, strict=True)]
        for name, samples in results.items()
    }
    rows = []
    for quantity, rate, alone in zip(UNITS, *medians.values(), strict=True):
        is_rate = quantity != "peak MB"
        rows.append(
            Row(
                f"{part}, {quantity}",
                quantity,
                rate,
                alone,
                "SentencePiece alone",
                share_of_limit=rate / alone if is_rate else None,
                more_is_better=is_rate,
            )
        )
    return rows


def define_flags():
    flags.DEFINE_string("data", None, "PREFIX of the text PREFIX.en and PREFIX.de.")
    flags.DEFINE_integer("pairs", 100_000, "Pairs of generated text.", lower_bound=1)
    flags.DEFINE_string("output", None, "New file for the rows and their conditions.")
    flags.DEFINE_integer("vocab_size", 16_000, "Pieces.", lower_bound=300)
    flags.DEFINE_integer(
        "rounds", 3, "Number of rounds; medians are printed.", lower_bound=1
    )


def main(_):
    from benchmarks import results
    from benchmarks.measuring import publish

    args = flags.FLAGS
    results.check_new(args.output)
    with tempfile.TemporaryDirectory() as folder:
        prefix = args.data or made_up.write_text(Path(folder), args.pairs)
        data = DataConfig(train=str(prefix), vocab_size=args.vocab_size)
        model = Path(folder) / "tokenizer.model"
        rows = []
        for part in PARTS:
            rows += compared(part, data, model, args.rounds)
    publish(rows, args.output)


if __name__ == "__main__":
    run(main, define_flags)
