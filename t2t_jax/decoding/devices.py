"""Data-parallel decoding: each device computes one block of a group.

A device computes a block as it would alone: the same program on the same shapes, with
no communication (`decoding/programs.py`). So results do not depend on the number of
devices. A group has a block for every device, empty blocks included: then each bucket
needs only one compiled shape, and the device of an empty block would be idle otherwise.

Each of N processes takes every N-th group, on its own devices, and the processes
exchange their results (`shared`).
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
from jax.sharding import Mesh

from t2t_jax.config import DecodeConfig
from t2t_jax.decoding.shapes import Group, groups
from t2t_jax.model.layers import Parameters
from t2t_jax.parallel import processes
from t2t_jax.parallel.mesh import make_mesh, sharding


def replicate(
    parameters: Parameters, devices: Sequence[jax.Device] | None = None
) -> Parameters:
    """Copies parameters to each of `devices`; to all of this process if None."""
    devices = jax.local_devices() if devices is None else devices
    return jax.device_put(parameters, sharding(make_mesh(devices=devices), ()))


def mesh_of(parameters: Parameters) -> Mesh:
    """Returns the mesh of devices that `replicated` copied the parameters to."""
    return jax.tree.leaves(parameters)[0].sharding.mesh


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
                yield lines, jax.device_get(_of_block(outputs, block))


def own_groups(
    lengths: Sequence[int], decode: DecodeConfig, mesh: Mesh, divided: bool = True
) -> list[Group]:
    """The groups that this process computes; `divided` as for `compute_blocks`."""
    ours = slice(None)
    if divided and processes.distributed():
        ours = slice(processes.index(), None, jax.process_count())
    return groups(lengths, decode, mesh.size)[ours]


def place_blocks(arrays: Any, mesh: Mesh) -> Any:
    """Puts each block of a group on its device."""
    return jax.device_put(arrays, sharding(mesh, ("batch",)))


def gather_results(
    what: str, found: dict[int, processes.Json]
) -> dict[int, processes.Json]:
    """Merges the results of all processes; every process returns all lines.

    Args:
      what: a name for the exchange, in error messages.
      found: line number -> result, of this process's lines.
    """
    if not processes.distributed():
        return found
    # Pairs and not a dict: the keys of a JSON object are strings.
    results = processes.exchange(what, list(found.items()), processes.LONG_TIMEOUT)
    return {line: value for of_process in results for line, value in of_process}


def _of_block(outputs: Any, block: int) -> Any:
    """Returns one block of arrays, without moving it from its device."""

    def part(x: jax.Array) -> jax.Array:
        # Blocks are numbered by their first row, in whatever order JAX lists shards.
        shards = sorted(
            x.addressable_shards, key=lambda shard: shard.index[0].start or 0
        )
        return shards[block].data

    return jax.tree.map(part, outputs)
