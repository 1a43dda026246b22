"""Stands in for t2t_jax.main under Slurm: a real JAX program that needs no flags.

All processes add up 1 + 2 + ... over their devices; then, by argument, `--exit2` all
exit with 2, `--kill` process 1 is killed, `--long` the job's first start goes on until
SIGTERM, on which it exits with 143.
"""

import os
import signal
import sys
import time

import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding, PartitionSpec


def main(words):
    jax.config.update("jax_platforms", "cpu")
    jax.distributed.initialize(heartbeat_timeout_seconds=10)
    n = jax.device_count()
    mesh = jax.make_mesh((n,), ("data",))
    numbers = jax.make_array_from_callback(
        (n,),
        NamedSharding(mesh, PartitionSpec("data")),
        lambda index: (jnp.arange(n) + 1.0)[index],
    )
    total = jax.jit(jnp.sum, out_shardings=NamedSharding(mesh, PartitionSpec()))
    i = jax.process_index()
    print(f"process {i} of {jax.process_count()}: {float(total(numbers))}", *words)
    sys.stdout.flush()

    def stop(*_):
        print(f"process {i} saved", flush=True)
        os._exit(143)

    signal.signal(signal.SIGTERM, stop)
    if "--exit2" in words:
        os._exit(2)
    if "--kill" in words and i == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    if "--long" in words and os.environ.get("SLURM_RESTART_COUNT", "0") == "0":
        time.sleep(600)


if __name__ == "__main__":
    main(sys.argv[1:])
