"""What the benchmarks share: alternating rounds, the floor, tables, rows of JSON.

Ours and its peers run in one process, one after the other, round by round, so that
whatever else the machine does hits all of them; medians are what counts. The floor is
the time that the work's matrix products alone would take at the highest rate at which
this machine was seen to multiply matrices.
"""

import dataclasses
import gc
import json
import logging
import multiprocessing
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from statistics import median

import jax
import jax.numpy as jnp
import numpy as np
from absl import flags

from t2t_jax.files import atomic
from t2t_jax.terminal.errors import UserError, did_you_mean

log = logging.getLogger("t2t_jax")

PAUSE = 0.3  # seconds in which the threads of the one before go to sleep


@dataclasses.dataclass(frozen=True)
class Row:
    """One comparison.

    Attributes:
      ours, peer: medians, in `unit`; of the peer None where there is none.
      floor_share: 1 would be the floor; None where nobody knows it.
      ours_megabytes, peer_megabytes: peak memory above the imports', if measured.
      more_is_better: rates, and not times.
    """

    work: str
    unit: str
    ours: float
    peer: float | None = None
    peer_name: str = ""
    floor_share: float | None = None
    ours_megabytes: float | None = None
    peer_megabytes: float | None = None
    more_is_better: bool = True

    @property
    def ratio(self) -> float | None:
        """How many times better ours is."""
        if not self.peer or not self.ours:
            return None
        ratio = self.ours / self.peer
        return ratio if self.more_is_better else 1 / ratio

    def told(self) -> dict:
        """As JSON has it."""
        row = dataclasses.asdict(self)
        del row["more_is_better"]
        return row | {"ratio": self.ratio}


def rows_of(
    work: str, unit: str, medians: Mapping[str, float], ours="ours", **common
) -> list[Row]:
    """A row for each peer of some medians; one without a peer where there is none."""
    peers = {name: rate for name, rate in medians.items() if name != ours}
    mine = medians[ours]
    return [Row(work, unit, mine, *peer[::-1], **common) for peer in peers.items()] or [
        Row(work, unit, mine, **common)
    ]


def alternate(
    contenders: Mapping[str, Callable[[], float]], rounds: int, pause: float = PAUSE
) -> dict[str, float]:
    """The median of what each contender returns; each round another one begins."""
    names, found = list(contenders), {name: [] for name in contenders}
    for number in range(rounds):
        first = number % len(names)
        for name in names[first:] + names[:first]:
            gc.collect()
            time.sleep(pause)
            found[name].append(contenders[name]())
    return {name: median(values) for name, values in found.items()}


def floor_share(rate: float, flops: float, peak: float) -> float:
    """Which share of a peak [FLOP/s] a rate [1/s] of units of `flops` each has."""
    return rate * flops / peak


def matrix_peak(dtype: str = "float32", torch=None, sizes: Sequence = ()) -> float:
    """The highest rate of a square matrix product seen here, FLOP/s.

    JAX's and, if the module is given, PyTorch's; more than a program can reach.
    `sizes`: of the matrices, if not as the hardware wants them.
    """
    on_host = jax.default_backend() == "cpu"
    best = 0.0
    sizes = [int(size) for size in sizes]
    for size in sizes or ((2048, 4096) if on_host else (4096, 8192)):
        a = jnp.ones((size, size), dtype)
        product = jax.jit(jnp.matmul)
        makers = [lambda a=a, f=product: f(a, a).block_until_ready()]
        if torch is not None:
            makers.append(_torch_product(torch, size, dtype))
        for make in makers:
            make()  # compiles
            times = []
            for _ in range(3 if size == 4096 and on_host else 8):
                began = time.perf_counter()
                make()
                times.append(time.perf_counter() - began)
            best = max(best, 2 * size**3 / min(times))
    return best


def _torch_product(torch, size: int, dtype: str) -> Callable[[], object]:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    a = torch.ones((size, size), dtype=getattr(torch, dtype), device=device)

    def make():
        a @ a
        if device == "cuda":
            torch.cuda.synchronize()

    return make


def share_the_device() -> None:
    """Leaves room on a GPU for the peer. Call it before JAX finds its devices."""
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")


def tell_if_busy() -> None:
    """Warns where other programs take the processor: PyTorch suffers most of it."""
    busy = os.getloadavg()[0]
    if busy > 0.5 * cores():
        log.warning(
            "the load of this machine is %.1f on %d cores; what is measured beside "
            "other programs cannot be trusted, wait until they end",
            *(busy, cores()),
        )


def cores() -> int:
    """Of this process."""
    return len(os.sched_getaffinity(0))


def in_own_process(function: Callable, *arguments):
    """What a function returns that runs in a new process; both must be picklable."""
    context = multiprocessing.get_context("spawn")
    results = context.SimpleQueue()
    child = context.Process(target=_child, args=(function, arguments, results))
    child.start()
    child.join()
    if child.exitcode:
        raise RuntimeError(f"{function.__name__} ended with {child.exitcode}")
    return results.get()


def _child(function: Callable, arguments: Sequence, results) -> None:
    results.put(function(*arguments))


def megabytes(what: str) -> float | None:
    """Memory of this process: `VmRSS` now, `VmHWM` at most; None where unknown."""
    try:
        status = Path("/proc/self/status").read_text()
    except OSError:
        return None
    (line,) = (line for line in status.splitlines() if line.startswith(what + ":"))
    return int(line.split()[1]) / 1024


def table(rows: Iterable[Row]) -> str:
    """Rows for a person to read."""
    heads = "work", "unit", "ours", "peer", "", "ratio", "of floor", "MB", "peer's MB"
    lines = [heads] + [
        (
            row.work,
            row.unit,
            _number(row.ours),
            row.peer_name,
            _number(row.peer),
            "" if row.ratio is None else f"{row.ratio:.2f}",
            "" if row.floor_share is None else f"{row.floor_share:.2f}",
            _number(row.ours_megabytes),
            _number(row.peer_megabytes),
        )
        for row in rows
    ]
    shown = [i for i in range(len(heads)) if any(line[i] for line in lines[1:])]
    widths = [max(len(line[i]) for line in lines) for i in shown]
    return "\n".join(
        "  ".join(
            line[i].ljust(width) if i in (0, 1, 3) else line[i].rjust(width)
            for i, width in zip(shown, widths, strict=True)
        ).rstrip()
        for line in lines
    )


def _number(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def define_flags(rounds: int | None = 5) -> None:
    """The flags of every benchmark that has rows; None: it has no rounds."""
    if rounds:
        flags.DEFINE_integer("rounds", rounds, "Rounds; medians count.", lower_bound=1)
    flags.DEFINE_list(
        "peak_sizes", [], "Of the square matrices that tell the matrix peak."
    )
    flags.DEFINE_string("json", None, "Also writes the rows to this new file.")


def chosen(names: Iterable[str], known: Iterable[str], flag: str) -> list[str]:
    """The names of a flag without empty ones.

    Raises:
      UserError: one is not known.
    """
    known, found = list(known), [name for name in names if name]
    for name in found:
        if name not in known:
            raise UserError(f"--{flag}={name!r}{did_you_mean(name, known)}")
    return found


def begin(given: flags.FlagValues) -> None:
    """What every benchmark does first: refusals, warnings, room on a GPU.

    Raises:
      UserError: of `check_new`.
    """
    check_new(given.json)
    share_the_device()
    tell_if_busy()


def check_new(path: str | None) -> None:
    """Refuses a file that is there, before hours are spent.

    Raises:
      UserError: so, or its folder is missing.
    """
    if path is None:
        return
    if os.path.lexists(path):
        raise UserError(
            f"--json={path} is there already; name another file, or move it away: "
            "measurements are not overwritten"
        )
    if not Path(path).absolute().parent.is_dir():
        raise UserError(f"--json={path}: its folder does not exist; make it first")


def publish(rows: Sequence[Row], path: str | None) -> None:
    """Prints rows, and writes them to a file that is there whole or not at all."""
    print(table(rows))
    if path is None:
        return
    check_new(path)
    content = json.dumps([row.told() for row in rows], indent=2) + "\n"
    atomic.write_atomically(path, content.encode())


def random_tokens(shape: tuple[int, ...], vocab_size: int, seed: int = 0) -> np.ndarray:
    """int32, all but the first four pieces, which have a meaning of their own."""
    return np.random.default_rng(seed).integers(4, vocab_size, shape, np.int32)
