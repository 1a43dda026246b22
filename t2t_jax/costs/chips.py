"""Chips that a run can be planned for, and the slices they are rented in.

The numbers in tpus.csv and gpus.csv are the makers', and each chip names its source.
Rates are for dense matrices, half of a data sheet's figure "with sparsity"; bandwidths
are for one direction, half of a "bidirectional" figure. The numbers of v5e, v5p and v6e
were checked against their maker's pages; for other chips the source says where to
check, which was not done for all.
"""

import csv
import dataclasses
import itertools
import math
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from t2t_jax.costs.timing import timed
from t2t_jax.io.errors import UserError, did_you_mean
from t2t_jax.parallel.machine import memory_here

GIB, TERA, GIGA = 2**30, 1e12, 1e9

# Assumptions, which are in no data sheet.
SHARE_OF_PEAK = 0.45  # of the peak rate, reached by matrix products in training
# Of the peak of products and of the memory's bandwidth: what one H200 reached, with 650
# TFLOP/s and 3.2 TB/s (docs/results/devices.md).
REACHED_PEAK, REACHED_BANDWIDTH = 0.657, 0.667
# A step of base took 47.1 ms there, and its kernels 34.7 ms at these rates: products
# reached less, and a GPU has gaps between kernels.
MEASURED_BY_KERNELS = 1.36
SHARE_OF_LINKS = 0.8  # of the interconnect's bandwidth, reached by collectives
GPU_USABLE = 0.9  # of a GPU's memory, if XLA_PYTHON_CLIENT_MEM_FRACTION is raised
JAX_TAKES = 0.75  # of a GPU's memory: JAX's default for XLA_PYTHON_CLIENT_MEM_FRACTION


@dataclasses.dataclass(frozen=True)
class Chip:
    """One kind of chip."""

    kind: str  # tpu, gpu or cpu
    memory: float  # bytes available to a program
    # Peak FLOP/s of matrix products at JAX's default precision, which multiplies
    # float32 in one bfloat16 pass on a TPU, and as TF32 on a GPU since Ampere.
    bfloat16: float
    float32: float
    bandwidth: float  # of the memory, bytes/s
    # Bytes/s in one direction: of one link to a neighbour (TPU), or of all links or the
    # bus of one GPU together.
    link: float
    source: str  # where the numbers are from
    native: bool = True  # the hardware multiplies bfloat16; otherwise float32 is used
    sizes: tuple[str, ...] = ()  # dimensions of the slices on offer (TPU)
    torus: int = 0  # a dimension that is a multiple closes into a ring (TPU)
    clock: float = 0.0  # Hz, of the cycles that the compiler estimates (TPU)
    network: float = 0.0  # bytes/s in one direction, a GPU's part of its node's
    nvidia: "Nvidia | None" = None  # of a GPU since Ampere

    def peak(self, dtype: str) -> float:
        """Peak FLOP/s of matrix products for activations of a type."""
        return self.bfloat16 if dtype == "bfloat16" else self.float32


class Multiprocessor(NamedTuple):
    """A core of an NVIDIA GPU."""

    threads: int  # at a time
    float32_units: int
    shared: int  # KiB of shared memory


# By compute capability (CUDA C++ Programming Guide, "Compute Capabilities").
MULTIPROCESSORS = {
    8.0: Multiprocessor(2048, 64, 164),
    8.6: Multiprocessor(1536, 128, 100),
    8.9: Multiprocessor(1536, 128, 100),
    9.0: Multiprocessor(2048, 128, 228),
}
NODE = 8  # GPUs with `Chip.link` among them; nodes are linked by a network


class Nvidia(NamedTuple):
    """Numbers of a GPU that XLA's compiler reads in addition to those of a `Chip`."""

    capability: float  # NVIDIA's "compute capability"
    multiprocessors: int
    clock: float  # GHz, the boost clock
    cache: int  # MiB, of level 2


def _tpu(row: dict[str, str]) -> Chip:
    """A row of tpus.csv: GiB, TFLOP/s, GB/s of the memory and of one link.

    `units` are arrays of 128 x 128 that multiply, each once in a cycle. A link has half
    of the chip's two-way bandwidth, divided by its 4 or 6 links.
    """
    peak = float(row["peak"]) * TERA
    return Chip(
        kind="tpu",
        # XLA reserves 1/64: of 16 GiB its out-of-memory message names 15.75G.
        memory=float(row["memory"]) * GIB * 63 / 64,
        bfloat16=peak,
        float32=peak,
        bandwidth=float(row["bandwidth"]) * GIGA,
        link=float(row["link"]) * GIGA,
        source=row["source"],
        sizes=tuple(row["sizes"].split()),
        torus=int(row["torus"]),
        clock=peak / (2 * int(row["units"]) * 128**2),
    )


def _gpu(row: dict[str, str]) -> Chip:
    """A row of gpus.csv: GB, TFLOP/s, GB/s of memory, of all links, of the network.

    The other numbers are those of `Nvidia`; a GPU without them is older than Ampere and
    has no bfloat16.
    """
    nvidia = None
    if row["capability"]:
        cores, cache = int(row["multiprocessors"]), int(row["cache"])
        nvidia = Nvidia(float(row["capability"]), cores, float(row["clock"]), cache)
    return Chip(
        kind="gpu",
        memory=float(row["memory"]) * GIGA * GPU_USABLE,
        bfloat16=float(row["bfloat16"]) * TERA,
        float32=float(row["float32"]) * TERA,
        bandwidth=float(row["bandwidth"]) * GIGA,
        link=float(row["link"]) * GIGA,
        source=row["source"],
        native=nvidia is not None,
        network=float(row["network"]) * GIGA,
        nvidia=nvidia,
    )


CHIPS: dict[str, Chip] = {}
# JAX's `device_kind` -> name above. The slower PCIe versions of the same GPUs are
# missing on purpose: their peak is lower.
DEVICES: dict[str, str] = {}
for _name, _chip in ("tpus.csv", _tpu), ("gpus.csv", _gpu):
    with Path(__file__).with_name(_name).open(encoding="utf-8", newline="") as _file:
        for _row in csv.DictReader(_file):
            CHIPS[_row["name"]] = _chip(_row)
            DEVICES |= dict.fromkeys(_row["devices"].split(";"), _row["name"])


def peak(device_kind: str, dtype: str) -> float | None:
    """Peak FLOP/s of matrix products on a device of JAX's name; None if unknown."""
    name = DEVICES.get(device_kind)
    return name and CHIPS[name].peak(dtype)


@dataclasses.dataclass(frozen=True)
class Slice:
    """Chips that are rented together: `v5e:4x4`, `h100:8`, `cpu:1`."""

    name: str
    chip: Chip
    shape: tuple[int, ...]

    @property
    def count(self) -> int:
        """Number of chips."""
        return math.prod(self.shape)

    @property
    def topology(self) -> str:
        """The slice's name for the TPU compiler, such as `v5e:2x4`."""
        return f"{self.name}:{'x'.join(map(str, self.shape))}"

    @property
    def nodes(self) -> int:
        """Number of machines of GPUs; 1 for other chips."""
        return -(-self.count // NODE) if self.chip.network else 1

    def interconnect(self) -> float:
        """Bytes/s that a chip can send in a collective of the complete slice.

        GPUs of several nodes wait for the network between these. A TPU is linked to its
        neighbours. In a dimension of n chips, each has two links if the ring is closed,
        otherwise 2 (n - 1) / n on average.
        """
        if self.chip.kind != "tpu":
            return self.chip.network if self.nodes > 1 else self.chip.link
        links = 0.0
        for n in self.shape:
            # In a ring of two, both links would go to the same neighbour.
            closed = n > 2 and n % self.chip.torus == 0
            links += 2 if closed else 2 * (n - 1) / n
        return links * self.chip.link


def find_slice(name: str, measured: Chip | None = None) -> Slice:
    """Finds a slice by a name such as `v5e:2x4`, `h100:8` or `cpu:1`.

    `measured` is this machine's processor, for `cpu:N`.
    """
    chips = CHIPS | ({"cpu": measured} if measured else {})
    kind, colon, size = name.lower().partition(":")
    if kind not in chips:
        raise UserError(f"--slice={name}: no chip {kind!r}" + did_you_mean(kind, chips))
    chip = chips[kind]
    example = "2x4" if "2x4" in chip.sizes else "2x2x1" if chip.sizes else "8"
    if not colon or not re.fullmatch(r"[1-9]\d*(x[1-9]\d*)*", size):
        raise UserError(
            f"--slice={name}: want CHIP:SIZE with the size, such as {kind}:{example}"
        )
    shape = _shape(size)
    if not chip.sizes:
        if len(shape) > 1 or (chip.network and shape[0] > NODE and shape[0] % NODE):
            raise UserError(
                f"--slice={name}: want a number of chips, such as {kind}:{example}; "
                f"more than {NODE} are whole nodes of {NODE}"
            )
        return Slice(kind, chip, shape)
    for candidate in map(_shape, chip.sizes):  # the order does not matter: 4x2 is 2x4
        if sorted(candidate) == sorted(shape):
            return Slice(kind, chip, candidate)
    count = math.prod(shape)
    # By the ratio of the numbers of chips.
    near = sorted(
        chip.sizes, key=lambda s: abs(math.log(math.prod(_shape(s)) / count))
    )[:2]
    raise UserError(
        f"--slice={name}: no such slice; the nearest are "
        f"{' and '.join(f'{kind}:{s}' for s in near)} (all sizes: "
        f"{', '.join(chip.sizes)})"
    )


def _shape(size: str) -> tuple[int, ...]:
    return tuple(map(int, size.split("x")))


# ------------------------------------------------------------------------- this machine

CPU_SIZE = 1536  # of the square matrices that measure a processor


def measured_cpu() -> Chip:
    """This machine's processor as a `Chip`, with rates measured now."""
    peak = matrix_rate("float32", CPU_SIZE, 20)
    return _measured("cpu", memory_here(), (peak, peak), CPU_SIZE, 64)


def chip_here(device: Any) -> tuple[str, Chip]:
    """The name and numbers of a device of JAX here, measured unless in `CHIPS`."""
    if device.platform == "cpu":
        return "cpu", measured_cpu()
    if name := DEVICES.get(device.device_kind):
        return name, CHIPS[name]
    kind = "tpu" if device.platform == "tpu" else "gpu"
    limit = (device.memory_stats() or {}).get("bytes_limit", 8 * GIB)
    peaks = [matrix_rate(dtype, 8192, 10) for dtype in ("bfloat16", "float32")]
    return device.device_kind, _measured(kind, float(limit), peaks, 8192, 1024)


def _measured(
    kind: str, memory: float, peaks: Sequence[float], size: int, mib: int
) -> Chip:
    """A chip of measured peaks, from products of a size; measures its memory's rate."""
    traffic = memory_rate(mib << 20)
    source = f"measured now: products of {size} x {size}, an addition over {mib} MiB"
    return Chip(kind, memory, *peaks, traffic, traffic, source, native=kind != "cpu")


def matrix_rate(dtype: str, size: int, times: int) -> float:
    """FLOP/s of the fastest of some products of two square matrices of a size."""
    import jax

    # Random numbers: some GPUs are faster, as they stay cooler, on constants.
    x = jax.random.normal(jax.random.key(0), (size, size), dtype)
    product = jax.jit(lambda x: x @ x)
    return 2 * size**3 / fastest(lambda: product(x), times)


def memory_rate(size: int) -> float:
    """Bytes/s to and from the memory: those of an addition over `size` bytes."""
    import jax

    y = jax.numpy.ones(size // 4, jax.numpy.float32)
    # `y + 1` reads and writes the array.
    addition = jax.jit(lambda y: y + 1)
    return 2 * y.nbytes / fastest(lambda: addition(y))


def fastest(call: Callable[[], object], times: int = 5) -> float:
    """Seconds of the fastest of some calls, after the one that compiles."""
    return min(itertools.islice(timed(call), 1, 1 + times))
