"""Shared parts of the benchmarks: alternating rounds, the limit, tables.

Ours and its peers run in one process, in turns, round by round, so that other load on
the machine affects all of them; medians are compared. The limit is the rate that
the work would have if its matrix products alone took time, at the highest rate of
matrix multiplication measured on this machine.
"""

import dataclasses
import gc
import logging
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import median
from typing import TypeVar

import jax
import numpy as np
from absl import flags

from benchmarks import results
from t2t_jax.commands.flags import test_sets
from t2t_jax.config import Config, DataConfig
from t2t_jax.costs import chips
from t2t_jax.data import prepare
from t2t_jax.data.corpus import Corpus, Pair, open_corpora
from t2t_jax.data.pairs import Pairs
from t2t_jax.data.tokenizers.training import make_tokenizer
from t2t_jax.data.tokenizers.vocabulary import Vocabulary
from t2t_jax.io.errors import UserError, did_you_mean
from t2t_jax.io.tables import markdown_cell, markdown_table
from t2t_jax.io.threads import core_count
from t2t_jax.metrics.measures import Measure, bounds, measured, sampled_sums

Result = TypeVar("Result")

log = logging.getLogger("t2t_jax")

# Name of a peer on the command line -> in tables and pictures.
NAMES = {
    "marianmt": "Hugging Face's MarianMT on PyTorch",
    "ctranslate2": "CTranslate2",
    "ctranslate2-int8": "CTranslate2 int8",
    "ours-int8": "t2t_jax int8",
    "huggingface": "Hugging Face generate",
    "torch": "PyTorch",
}
PAUSE = 0.3  # seconds for the previous contender's threads to go to sleep


@dataclasses.dataclass(frozen=True)
class Row:
    """One comparison.

    Attributes:
      work: what is measured.
      unit: of `ours` and `peer`.
      ours, peer: medians; None without a peer.
      peer_name: of the other program.
      share_of_limit: share of the limit that ours reaches, 1 at best; None if unknown.
      ours_megabytes, peer_megabytes: peak memory above that of imports, if measured.
      more_is_better: True for rates, False for times.
    """

    work: str
    unit: str
    ours: float
    peer: float | None = None
    peer_name: str = ""
    share_of_limit: float | None = None
    ours_megabytes: float | None = None
    peer_megabytes: float | None = None
    more_is_better: bool = True

    @property
    def ratio(self) -> float | None:
        """Ours by the peer, so that more is better; None without a peer."""
        if not self.peer or not self.ours:
            return None
        ratio = self.ours / self.peer
        return ratio if self.more_is_better else 1 / ratio

    def to_json(self) -> dict:
        """The row as a dict for JSON."""
        row = dataclasses.asdict(self)
        del row["more_is_better"]
        return row | {"ratio": self.ratio}


def rows_of(
    work: str, unit: str, medians: Mapping[str, float], ours="ours", **common
) -> list[Row]:
    """Builds a row for each peer of some medians, or one row if there is no peer."""
    our_rate = medians[ours]
    rows = [
        Row(work, unit, our_rate, peer=rate, peer_name=NAMES.get(name, name), **common)
        for name, rate in medians.items()
        if name != ours
    ]
    return rows or [Row(work, unit, our_rate, **common)]


def turns(
    contenders: Mapping[str, Callable[[], Result]], rounds: int, pause: float = PAUSE
) -> dict[str, list[Result]]:
    """Calls all contenders in every round; returns each one's results.

    The first contender changes from round to round, so that none has the advantage of
    a fixed position.
    """
    names, results = list(contenders), {name: [] for name in contenders}
    for number in range(rounds):
        start = number % len(names)
        for name in names[start:] + names[:start]:
            gc.collect()  # not during somebody's measurement
            time.sleep(pause)
            results[name].append(contenders[name]())
    return results


def alternate(
    contenders: Mapping[str, Callable[[], float]], rounds: int, pause: float = PAUSE
) -> dict[str, float]:
    """The median of each contender's results, which they give in `turns`."""
    results = turns(contenders, rounds, pause)
    return {name: median(values) for name, values in results.items()}


def alternate_with_peak(
    contenders: Mapping[str, Callable[[], float]], rounds: int, *products
) -> tuple[dict[str, float], dict[str, float]]:
    """Medians as of `alternate`, and matrix peaks, the higher of before and after."""
    early = matrix_peaks(*products)
    medians = alternate(contenders, rounds)
    late = matrix_peaks(*products)
    return medians, {name: max(early[name], late[name]) for name in early}


class Stopwatch:
    """A call returns the seconds since the last call, or since its creation."""

    def __init__(self):
        self._last = time.perf_counter()

    def __call__(self) -> float:
        previous, self._last = self._last, time.perf_counter()
        return self._last - previous


def with_interval(name: str, measure: Measure, statistics_nk: np.ndarray) -> dict:
    """Cells of a row: a score, and its 95% interval by bootstrap over the examples."""
    bound = bounds(measure.of(sampled_sums(statistics_nk)))
    low, high = (f"{limit:.{measure.digits}f}" for limit in bound)
    score = measured(measure, statistics_nk)
    return {name: score, f"{name} interval": f"[{low}, {high}]"}


def training_text(data: DataConfig) -> tuple[Vocabulary, Pairs]:
    """The tokenizer of a config, and its training text, tokenized."""
    where = data.source, data.target, data.dir
    training = open_corpora(data.train, *where, weights=True)
    vocabulary = make_tokenizer(training, data)
    return vocabulary, prepare.training_pairs(training, vocabulary, data)


def test_pairs(args: flags.FlagValues, config: Config) -> tuple[Corpus, list[Pair]]:
    """The first set of --test, and its pairs; the first --lines of them, if not 0."""
    corpus = test_sets(args, config)[0]
    return corpus, list(corpus.pairs())[: args.lines or None]


def share_of_limit(rate: float, flops: float, peaks: Mapping[str, float]) -> float:
    """The share of the highest peak that a rate reaches, in units of `flops` each."""
    return rate * flops / max(peaks.values())


def matrix_peaks(
    dtype: str = "float32", torch=None, sizes: Sequence = ()
) -> dict[str, float]:
    """Measures the highest rate of a square matrix product, in FLOP/s by library.

    A complete program cannot reach it. Libraries differ: PyTorch's for x86 uses AVX-512
    on one maker's processors only.

    Args:
      dtype: of the matrices.
      torch: the module of PyTorch, to measure its product too.
      sizes: of the matrices; by default large ones that suit the hardware.
    """
    on_host = jax.default_backend() == "cpu"
    peaks = {"jax": 0.0} | ({"torch": 0.0} if torch else {})
    for size in map(int, sizes or ((2048, 4096) if on_host else (4096, 8192))):
        times = 3 if size == 4096 and on_host else 8
        peaks["jax"] = max(peaks["jax"], chips.matrix_rate(dtype, size, times))
        if torch:
            product = _torch_product(torch, size, dtype)
            rate = 2 * size**3 / chips.fastest(product, times)
            peaks["torch"] = max(peaks["torch"], rate)
    return peaks


def _torch_product(torch, size: int, dtype: str) -> Callable[[], object]:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    # Random: some GPUs multiply constants faster.
    a = torch.randn((size, size), device=device).to(getattr(torch, dtype))

    def make():
        a @ a
        if device == "cuda":
            torch.cuda.synchronize()

    return make


def share_the_device() -> None:
    """Leaves memory on a GPU for the peer. Call it before JAX finds its devices."""
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")


def warn_if_busy() -> None:
    """Warns if other programs use the processor, which slows PyTorch down most."""
    busy = os.getloadavg()[0]
    if busy > 0.5 * core_count():
        log.warning(
            "the load of this machine is %.1f on %d cores; measurements beside other "
            "programs are not reliable, wait until they end",
            busy,
            core_count(),
        )


def define_flags(rounds: int | None = 5) -> None:
    """Defines the flags that all benchmarks with rows share.

    Args:
      rounds: default of --rounds; None for a benchmark without rounds.
    """
    if rounds:
        flags.DEFINE_integer(
            "rounds", rounds, "Number of rounds; medians are compared.", lower_bound=1
        )
    flags.DEFINE_list(
        "peak_sizes", [], "Sizes of the square matrices that measure the matrix peak."
    )
    flags.DEFINE_string("output", None, "New file for the rows and their conditions.")


def chosen(names: Iterable[str], available: Iterable[str], flag: str) -> list[str]:
    """Checks the names given to a flag; drops empty ones."""
    available, wanted_names = list(available), [name for name in names if name]
    for name in wanted_names:
        if name not in available:
            raise UserError(f"--{flag}={name!r}{did_you_mean(name, available)}")
    return wanted_names


def begin(args: flags.FlagValues) -> None:
    """Checks --output, shares the GPU with the peers and warns of other load.

    Every benchmark calls it first.
    """
    results.check_new(args.output)
    share_the_device()
    warn_if_busy()


def publish(rows: Sequence[Row | dict], path: str | None, **measured) -> None:
    """Prints rows with their conditions, and writes both as JSON to a file.

    Args:
      rows: the rows, or dicts with equal keys.
      path: a new file; None writes nothing.
      measured: further conditions, such as `matrix_peak`.
    """
    rows = [row.to_json() if isinstance(row, Row) else row for row in rows]
    conditions = results.conditions(**measured)
    print("\n".join([*markdown(rows), "", results.describe(conditions)]))
    results.write(path, rows, conditions)


def markdown(rows: Sequence[dict]) -> list[str]:
    """The lines of a Markdown table of dicts; columns without content are left out."""
    if not rows:
        return []
    names = [
        name for name in rows[0] if any(row[name] not in ("", None) for row in rows)
    ]
    aligned = [
        column
        for column, name in enumerate(names)
        if any(isinstance(row[name], str) for row in rows)
    ]
    cells = [[_cell(row[name]) for name in names] for row in rows]
    return markdown_table([name.replace("_", " ") for name in names], cells, aligned)


def _cell(value) -> str:
    if value is None:
        return ""
    if not isinstance(value, float):
        return f"{value:,}" if isinstance(value, int) else markdown_cell(str(value))
    return f"{value:,.0f}" if abs(value) >= 1e3 else f"{value:.4g}"
