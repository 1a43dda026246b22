"""Preparing text, against SentencePiece alone on all cores: lines a second, memory.

    python -m benchmarks.prepare
    python -m benchmarks.prepare --data=PREFIX --vocab_size=37000 --json=PATH

SentencePiece alone is the floor: it finds all lines in memory and keeps nothing. Ours
reads them from PREFIX.en and PREFIX.de, cleans them and writes arrays. Every
measurement has a process of its own; rounds alternate, and medians are printed. On a
machine that does something else, too, trust the processor time more than the time.
Without --data the text is made up.
"""

import json
import multiprocessing
import os
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np
import sentencepiece
from absl import flags

from t2t_jax.config import DataConfig
from t2t_jax.data import prepare, vocab
from t2t_jax.data.corpus import open_corpora
from t2t_jax.data.vocab import Vocabulary


class Clock:
    """Seconds, and seconds of all cores together, from its making to `stop`."""

    def __init__(self):
        self.seconds, self.processor = -time.perf_counter(), -time.process_time()

    def stop(self) -> "Clock":
        self.seconds += time.perf_counter()
        self.processor += time.process_time()
        return self


def ours_tokenizer(data: DataConfig, model: Path) -> Clock:
    training = open_corpora(data.train, data.source, data.target)
    clock = Clock()
    vocabulary = prepare.tokenizer(training, data)
    clock.stop()
    model.write_bytes(vocabulary.model)
    return clock


def floor_tokenizer(data: DataConfig, model: Path) -> Clock:
    lines = _lines(data)
    clock = Clock()
    vocab.train(lines, data.vocab_size)
    return clock.stop()


def ours_encoding(data: DataConfig, model: Path) -> Clock:
    training = open_corpora(data.train, data.source, data.target)
    vocabulary = Vocabulary.load(model)
    clock = Clock()
    prepare.training_pairs(training, vocabulary, data)
    return clock.stop()


def floor_encoding(data: DataConfig, model: Path) -> Clock:
    lines = _lines(data)
    processor = sentencepiece.SentencePieceProcessor(model_file=str(model))
    clock = Clock()
    for begin in range(0, len(lines), 10_000):
        processor.encode(lines[begin : begin + 10_000], num_threads=-1)
    return clock.stop()


PARTS = {
    "tokenizer": (ours_tokenizer, floor_tokenizer),
    "encoding": (ours_encoding, floor_encoding),
}


def _lines(data: DataConfig) -> list[str]:
    training = open_corpora(data.train, data.source, data.target)
    return [line for corpus in training for pair in corpus.pairs() for line in pair]


def _child(contender, data: DataConfig, model: Path, results) -> None:
    with tempfile.TemporaryDirectory() as cache:
        os.environ["T2T_JAX_CACHE"] = cache
        clock = contender(data, model)
        results.put((clock.seconds, clock.processor, _peak_megabytes()))


def _peak_megabytes() -> float:
    """Of this process alone; getrusage would also know what its parent had."""
    status = Path("/proc/self/status").read_text()
    (peak,) = (line for line in status.splitlines() if line.startswith("VmHWM"))
    return int(peak.split()[1]) / 1024


def measured(contender, data: DataConfig, model: Path) -> tuple[float, float, float]:
    """Seconds, processor seconds and peak megabytes, in a process of its own."""
    context = multiprocessing.get_context("spawn")
    results = context.SimpleQueue()
    child = context.Process(target=_child, args=(contender, data, model, results))
    child.start()
    child.join()
    if child.exitcode:
        raise RuntimeError(f"{contender.__name__} failed")
    return results.get()


def write_text(folder: Path, pairs: int = 100_000) -> str:
    """Made-up text whose words are as frequent as those of a language; its prefix."""
    rng = np.random.default_rng(0)
    letters = np.array(list("abcdefghijklmnopqrstuvwxyz"))
    words = ["".join(rng.choice(letters, n)) for n in rng.integers(2, 11, 50_000)]
    for language in ("en", "de"):
        with open(folder / f"text.{language}", "w", encoding="utf-8") as f:
            for length in rng.integers(3, 31, pairs):
                ranks = (len(words) ** rng.random(length)).astype(int) - 1  # Zipf's law
                f.write(" ".join(words[rank] for rank in ranks) + ".\n")
    return str(folder / "text")


def define_flags():
    flags.DEFINE_string("data", None, "PREFIX of PREFIX.en and PREFIX.de.")
    flags.DEFINE_string("json", None, "Also writes the numbers to this file.")
    flags.DEFINE_integer("vocab_size", 16_000, "Pieces.", lower_bound=300)
    flags.DEFINE_integer("rounds", 3, "Rounds; medians are printed.", lower_bound=1)


def main(_):
    given = flags.FLAGS
    with tempfile.TemporaryDirectory() as folder:
        prefix = given.data or write_text(Path(folder))
        data = DataConfig(train=str(prefix), vocab_size=given.vocab_size)
        model = Path(folder) / "tokenizer.model"
        table = {"lines": len(_lines(data)), "cores": os.cpu_count()}
        for part, contenders in PARTS.items():
            found = {contender: [] for contender in contenders}
            for _ in range(given.rounds):
                for contender in contenders:
                    found[contender].append(measured(contender, data, model))
            ours, floor = (
                [statistics.median(column) for column in zip(*rounds, strict=True)]
                for rounds in found.values()
            )
            names = ("seconds", "processor_seconds", "peak_megabytes")
            table[part] = {
                "ours": dict(zip(names, ours, strict=True)),
                "sentencepiece_alone": dict(zip(names, floor, strict=True)),
                "time_over_floor": ours[0] / floor[0],
                "processor_time_over_floor": ours[1] / floor[1],
            }
            for name, (seconds, processor, peak) in (("ours", ours), ("alone", floor)):
                print(
                    f"{part:9} {name:5} {table['lines'] / seconds:9,.0f} lines/s "
                    f"{processor:6.1f} s of cores {peak:6,.0f} MB"
                )
            print(
                f"{part:9} ours / SentencePiece alone: time {ours[0] / floor[0]:.2f}, "
                f"processor time {ours[1] / floor[1]:.2f}"
            )
    if given.json:
        Path(given.json).write_text(json.dumps(table, indent=2) + "\n")


if __name__ == "__main__":
    from t2t_jax import command  # not in the measured processes: it loads JAX

    command.run(main, define_flags)
