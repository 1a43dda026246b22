"""Groups of blocks on all devices: each computes one block.

A device computes a block as it would alone: the same program on the same shapes, and
nothing of the others' (`decoding/programs.py`). So results do not depend on how many
devices there are. A group always has a block for each of them, though it may be empty:
one shape is compiled for a bucket, and whoever has nothing to do would only wait.

Of several processes each takes every so-manieth group, on its own devices, and tells
the others what it found (`shared`).
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


def replicated(
    parameters: Parameters, devices: Sequence[jax.Device] | None = None
) -> Parameters:
    """Parameters, whole on each device of this process (or on those given)."""
    devices = jax.local_devices() if devices is None else devices
    return jax.device_put(parameters, sharding(make_mesh(devices=devices), ()))


def mesh_of(parameters: Parameters) -> Mesh:
    """The devices that `replicated` put them on."""
    return jax.tree.leaves(parameters)[0].sharding.mesh


def computed(
    make: Callable[[Group], Any],
    compute: Callable[[Any], Any],
    lengths: Sequence[int],
    decode: DecodeConfig,
    mesh: Mesh,
    divided: bool = True,
) -> Iterator[tuple[Sequence[int], Any]]:
    """The lines of each block that has any, and what was computed of it.

    Args:
      make: a group -> NumPy arrays, whose first axis divides into its blocks.
      compute: these on their devices -> arrays that divide likewise: a function of
        `decoding/programs.py`.
      divided: of several processes each computes its part, and not all of it.

    Yields:
      NumPy arrays of one block alone.
    """
    for group in own_groups(lengths, decode, mesh, divided):
        outputs = compute(placed(make(group), mesh))
        for block, lines in enumerate(group.parts(group.lines)):
            if lines:
                yield lines, jax.device_get(_of_block(outputs, block))


def own_groups(
    lengths: Sequence[int], decode: DecodeConfig, mesh: Mesh, divided: bool = True
) -> list[Group]:
    """The groups that this process computes; `divided` as for `computed`."""
    ours = slice(None)
    if divided and processes.distributed():
        ours = slice(processes.index(), None, jax.process_count())
    return groups(lengths, decode, mesh.size)[ours]


def placed(arrays: Any, mesh: Mesh) -> Any:
    """Each block of a group on its device."""
    return jax.device_put(arrays, sharding(mesh, ("batch",)))


def shared(what: str, found: dict[int, processes.Json]) -> dict[int, processes.Json]:
    """What all processes have found, each of its lines, in all of them."""
    if not processes.distributed():
        return found
    told = processes.exchange(what, list(found.items()), processes.LONG_TIMEOUT)
    return {line: value for of_one in told for line, value in of_one}


def _of_block(outputs: Any, block: int) -> Any:
    """What one device has of arrays, which stays there."""

    def part(x: jax.Array) -> jax.Array:
        shards = sorted(
            x.addressable_shards, key=lambda shard: shard.index[0].start or 0
        )
        return shards[block].data

    return jax.tree.map(part, outputs)
