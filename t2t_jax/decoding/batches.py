"""Batches of lines: blocks of a fixed shape, one for each device.

A block's shape depends on the length of its lines alone, never on their number: empty
rows are computed too. So a line goes through the same arithmetic, whatever is
translated with it. (A matrix product with another number of rows may sum in another
order, which changes the last bits. The translation server tries whether it does.)

A group is several blocks of one shape, one for each device. A device computes a block
as it would alone: the same program on the same shapes, with no communication
(`decoding/programs.py`). So results do not depend on the number of devices. A group has
a block for every device, empty blocks included: then each bucket needs only one
compiled shape, and the device of an empty block would be idle otherwise.

Each of N processes takes every N-th group, on its own devices, and the processes
exchange their results (`gather_results`).
"""

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.sharding import Mesh

from t2t_jax.config import DecodeConfig
from t2t_jax.model.layers import Parameters
from t2t_jax.parallel import processes
from t2t_jax.parallel.mesh import make_mesh, sharding

SHORTEST = 32  # positions of the smallest bucket


def bucket_for(length: int) -> int:
    """Returns the block width for a line of `length` tokens: 32, 64, 128, ..."""
    return max(SHORTEST, 1 << (length - 1).bit_length())


def block_rows(bucket: int, decode: DecodeConfig, platform: str = "") -> int:
    """Returns the number of rows of a block: fixed for its width, a multiple of 8.

    Args:
      platform: of the devices: `cpu`, `gpu` or `tpu`; of this process' if empty.
    """
    tokens = decode.batch_tokens
    if not tokens:  # measured: docs/results/speed.md
        cpu = (platform or jax.default_backend()) == "cpu"
        tokens = 512 if cpu else 16_384
    return max(8, tokens // bucket // 8 * 8)


def longest_output(source_length: int, decode: DecodeConfig) -> int:
    """Returns the output limit in tokens, EOS included: input + 50 in section 6.1."""
    return source_length + decode.extra_length


class Group(NamedTuple):
    """Lines of one bucket, in consecutive blocks of one array."""

    # The numbers of the lines, in row order. Empty rows come last, so the last blocks
    # may be empty.
    lines: list[int]
    bucket: int  # the width of a block, in positions
    rows: int
    blocks: int  # the number of blocks, one for each device

    @property
    def shape(self) -> tuple[int, int]:
        return self.blocks * self.rows, self.bucket

    def split(self, items: Sequence) -> Iterator[Sequence]:
        """Yields each block's part of a sequence with an item for each line."""
        for block in range(self.blocks):
            yield items[block * self.rows : (block + 1) * self.rows]


def groups(lengths: Sequence[int], decode: DecodeConfig, blocks: int) -> list[Group]:
    """Groups the lines of positive length, sorted by length.

    The lines of a block do not depend on `blocks`, the number of blocks in a group.
    """
    order = sorted((length, line) for line, length in enumerate(lengths) if length)
    by_bucket: dict[int, list[int]] = {}
    for length, line in order:
        by_bucket.setdefault(bucket_for(length), []).append(line)
    return [
        Group(lines[start : start + blocks * rows], bucket, rows, blocks)
        for bucket, lines in by_bucket.items()
        for rows in [block_rows(bucket, decode)]
        for start in range(0, len(lines), blocks * rows)
    ]


def pad_rows(ids: Sequence[Sequence[int]], rows: int, width: int):
    """Pads lines; returns tokens and segments, int32 [rows, width], 0 for padding.

    The first position of an empty row is in segment 1 too, so that attention has a key.
    """
    tokens = np.zeros((rows, width), np.int32)
    segments = np.zeros((rows, width), np.int32)
    segments[:, 0] = 1
    for row, line in enumerate(ids):
        tokens[row, : len(line)] = line
        segments[row, : len(line)] = 1
    return tokens, segments


# ---------------------------------------------------------------- devices and processes


def replicate(
    parameters: Parameters, devices: Sequence[jax.Device] | None = None
) -> Parameters:
    """Copies parameters to each of `devices`; to all of this process if None."""
    devices = jax.local_devices() if devices is None else devices
    return jax.device_put(parameters, sharding(make_mesh(devices=devices), ()))


def compute_blocks(
    make: Callable[[Group], Any],
    compute: Callable[[Any], Any],
    lengths: Sequence[int],
    decode: DecodeConfig,
    mesh: Mesh,
    divided: bool = True,
) -> Iterator[tuple[Sequence[int], Any]]:
    """Runs a program on all lines, group by group.

    Args:
      make: a group -> NumPy arrays; the first axis is divided into the group's blocks.
      compute: a function of `decoding/programs.py`: these arrays on their devices ->
        arrays that are divided likewise.
      lengths: of the lines; lines of length 0 are left out.
      divided: each of several processes computes a share of the groups; if False, each
        computes all of them.

    Yields:
      The numbers of the lines of a block, and its outputs as NumPy arrays. Blocks
      without lines are left out.
    """
    for group in own_groups(lengths, decode, mesh, divided):
        outputs = compute(place_blocks(make(group), mesh))
        for block, lines in enumerate(group.split(group.lines)):
            if lines:
                yield lines, jax.device_get(_block_arrays(outputs, block))


def own_groups(
    lengths: Sequence[int], decode: DecodeConfig, mesh: Mesh, divided: bool = True
) -> list[Group]:
    """The groups that this process computes; `divided` as for `compute_blocks`."""
    share = slice(None)
    if divided and processes.distributed():
        share = slice(processes.index(), None, jax.process_count())
    return groups(lengths, decode, mesh.size)[share]


def place_blocks(arrays: Any, mesh: Mesh) -> Any:
    """Puts each block of a group on its device."""
    return jax.device_put(arrays, sharding(mesh, ("batch",)))


def gather_results(
    what: str, own_results: dict[int, processes.Json]
) -> dict[int, processes.Json]:
    """Merges the results of all processes, by line; every process returns all."""
    if not processes.distributed():
        return own_results
    # Pairs and not a dict: the keys of a JSON object are strings.
    results = processes.exchange(
        what, list(own_results.items()), processes.LONG_TIMEOUT
    )
    return dict(itertools.chain.from_iterable(results))


def _block_arrays(outputs: Any, block: int) -> Any:
    """Returns one block of arrays, without moving it from its device."""

    def part(x: jax.Array) -> jax.Array:
        # Blocks are numbered by their first row, in whatever order JAX lists shards.
        shards = sorted(
            x.addressable_shards, key=lambda shard: shard.index[0].start or 0
        )
        return shards[block].data

    return jax.tree.map(part, outputs)
