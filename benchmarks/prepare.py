"""Compares preparing text with SentencePiece alone on all cores: speed and memory.

    python -m benchmarks.prepare
    python -m benchmarks.prepare --data=PREFIX --vocab_size=37000 --json=PATH
    python -m benchmarks.prepare --pairs=4500000 --vocab_size=37000 --rounds=1

SentencePiece alone is the floor: its lines are in memory and its results are dropped.
Ours reads the lines from PREFIX.en and PREFIX.de, cleans them and writes arrays. The
tokenizer is trained on at most `config.data.tokenizer_lines` lines: the floor gets the
first ones, ours has to draw its sample. The floor of encoding is measured on the first
400,000 lines. Every measurement has its own process; rounds alternate, and medians are
printed. On a busy machine, trust the processor time more than the wall time. Without
--data the text is generated.
"""

import itertools
import json
import multiprocessing
import os
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import sentencepiece
from absl import flags

from benchmarks import wmt
from t2t_jax.config import DataConfig
from t2t_jax.data import prepare
from t2t_jax.data.corpus import open_corpora
from t2t_jax.data.tokenizers.training import make_tokenizer, train_tokenizer
from t2t_jax.data.tokenizers.vocabulary import Vocabulary

FLOOR_LINES = 400_000  # enough to measure how fast SentencePiece encodes


class Clock:
    """Wall time and processor time of all cores, from its creation to `stop`.

    Args:
      lines: number of lines that are processed in this time.
    """

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


def floor_tokenizer(data: DataConfig, model: Path) -> Clock:
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


def floor_encoding(data: DataConfig, model: Path) -> Clock:
    lines = list(itertools.islice(_lines(data), FLOOR_LINES))
    processor = sentencepiece.SentencePieceProcessor(model_file=str(model))
    clock = Clock(len(lines))
    for begin in range(0, len(lines), 10_000):
        processor.encode(lines[begin : begin + 10_000], num_threads=-1)
    return clock.stop()


PARTS = {
    "tokenizer": (ours_tokenizer, floor_tokenizer),
    "encoding": (ours_encoding, floor_encoding),
}


def _lines(data: DataConfig) -> Iterator[str]:
    training = open_corpora(data.train, data.source, data.target)
    return (line for corpus in training for pair in corpus.pairs() for line in pair)


def _child(contender, data: DataConfig, model: Path, results) -> None:
    with tempfile.TemporaryDirectory() as cache:
        os.environ["T2T_JAX_CACHE"] = cache
        clock = contender(data, model)
        speeds = clock.lines / clock.seconds, clock.lines / clock.processor
        results.put((*speeds, _peak_megabytes()))


def _peak_megabytes() -> float:
    """Peak memory of this process in MiB; getrusage would include its parent's."""
    status = Path("/proc/self/status").read_text()
    (peak,) = (line for line in status.splitlines() if line.startswith("VmHWM"))
    return int(peak.split()[1]) / 1024


def measured(contender, data: DataConfig, model: Path) -> tuple[float, float, float]:
    """Runs a contender in its own process.

    Returns:
      Lines per second, lines per processor second, peak memory in MiB.
    """
    context = multiprocessing.get_context("spawn")
    results = context.SimpleQueue()
    child = context.Process(target=_child, args=(contender, data, model, results))
    child.start()
    child.join()
    if child.exitcode:
        raise RuntimeError(f"{contender.__name__} failed")
    return results.get()


def compared(part: str, data: DataConfig, model: Path, rounds: int) -> list[dict]:
    """Measures ours and the floor in turns; prints medians and returns them as rows."""
    results = {contender: [] for contender in PARTS[part]}
    for _ in range(rounds):
        for contender in results:
            results[contender].append(measured(contender, data, model))
    ours, floor = (
        [statistics.median(column) for column in zip(*each, strict=True)]
        for each in results.values()
    )
    for name, (speed, processor, peak) in (("ours", ours), ("alone", floor)):
        print(
            f"{part:9} {name:5} {speed:9,.0f} lines/s {processor:9,.0f} lines a "
            f"processor second {peak:6,.0f} MB"
        )
    print(
        f"{part:9} ours / SentencePiece alone: lines/s {ours[0] / floor[0]:.2f}, "
        f"lines a processor second {ours[1] / floor[1]:.2f}"
    )
    rows = []
    for what, mine, alone in zip(
        ("lines/s", "lines a processor second", "peak MB"), ours, floor, strict=True
    ):
        ratio = mine / alone
        rows.append(
            {
                "work": f"{part}, {what}",
                "ours": mine,
                "peer": alone,
                "peer_name": "SentencePiece alone",
                "ratio": ratio,
                "floor_share": None if what == "peak MB" else ratio,
            }
        )
    return rows


def define_flags():
    flags.DEFINE_string("data", None, "PREFIX of the text PREFIX.en and PREFIX.de.")
    flags.DEFINE_integer("pairs", 100_000, "Pairs of generated text.", lower_bound=1)
    flags.DEFINE_string("json", None, "File to write the numbers to, as JSON.")
    flags.DEFINE_integer("vocab_size", 16_000, "Pieces.", lower_bound=300)
    flags.DEFINE_integer(
        "rounds", 3, "Number of rounds; medians are printed.", lower_bound=1
    )


def main(_):
    given = flags.FLAGS
    with tempfile.TemporaryDirectory() as folder:
        prefix = given.data or wmt.write_text(Path(folder), given.pairs)
        data = DataConfig(train=str(prefix), vocab_size=given.vocab_size)
        model = Path(folder) / "tokenizer.model"
        rows = []
        for part in PARTS:
            rows += compared(part, data, model, given.rounds)
    if given.json:
        Path(given.json).write_text(json.dumps(rows, indent=2) + "\n")


if __name__ == "__main__":
    from benchmarks import run

    run(main, define_flags)
