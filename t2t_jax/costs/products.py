"""`config.model.products="auto"`: times the model's products, chooses their type."""

import math
from collections import Counter
from collections.abc import Mapping
from functools import partial

import jax
import jax.numpy as jnp
from flax.traverse_util import flatten_dict

from t2t_jax import config as fields
from t2t_jax.config import Config
from t2t_jax.costs.chips import fastest
from t2t_jax.io.messages import say
from t2t_jax.model.layers import compute_dtype
from t2t_jax.model.model import Model, build
from t2t_jax.model.products import Rounded, product
from t2t_jax.parallel import processes
from t2t_jax.parallel.mesh import make_mesh
from t2t_jax.tasks.table import task_of
from t2t_jax.workdir import Workdir

FASTER = 1.2  # bfloat16 has to be, to be worth its rounding
# Larger products are cut to these sizes: their rates are the same, and all of them
# together take about a second.
MOST_ROWS, MOST_COLUMNS = 512, 2048
TRIALS = 3


def with_products(config: Config, workdir: Workdir) -> Config:
    """Returns the config with `auto` replaced: by the run's choice, or by a new one.

    A new choice is that of process 0, for all. `Workdir.store` records it.
    """
    if config.model.products != "auto":
        return config

    def recorded_or_new() -> str:
        return workdir.config().model.products if workdir.has_run() else _choice(config)

    products = processes.from_first("the type of products", recorded_or_new)
    return fields.changed(config, "model", products=products)


def _choice(config: Config) -> str:
    dtype = compute_dtype(config.model).name
    if dtype != "float32":
        say(f"products    not timed: activations are {dtype}, and so are products")
        return "float32"
    mesh, data = make_mesh(config.mesh), config.data
    rows = data.batch_tokens // (config.train.accumulate * mesh.size)
    model = build(config.model, *task_of(config).vocab_sizes)
    seconds = product_seconds(product_sizes(model), min(max(1, rows), MOST_ROWS))
    speedup = seconds["float32"] / seconds["bfloat16"]
    products = "bfloat16" if speedup >= FASTER else "float32"
    listed = ", ".join(f"{name} {s * 1e3:,.1f} ms" for name, s in seconds.items())
    say(
        f"products    {products}: forward and by inputs {listed}; bfloat16 is chosen "
        f"if it is {FASTER} times as fast, and it is {speedup:.2f} times"
    )
    return products


def product_sizes(model: Model) -> Counter[tuple[int, int]]:
    """Counts the model's products with weights by the weight's (inputs, outputs)."""
    sizes: Counter[tuple[int, int]] = Counter()
    axes, summed = flatten_dict(model.axes), flatten_dict(model.summed)
    tables = []
    for path, x in flatten_dict(model.shapes).items():
        if not summed[path]:
            continue
        inputs = math.prod(x.shape[axis] for axis in summed[path])
        size = inputs, x.size // inputs
        if "vocab" in axes[path]:
            tables.append(size)
        else:
            sizes[size] += 1
    # One table makes the logits; others are only looked up.
    return sizes + Counter([max(tables)] if tables else [])


def product_seconds(
    sizes: Mapping[tuple[int, int], int], rows: int
) -> dict[str, float]:
    """Times products and their gradients by the inputs, in float32 and in bfloat16.

    Args:
      sizes: the weights' (inputs, outputs), and how many there are.
      rows: tokens; the times are for so many.
    """

    def step(x, weight, grad):
        y, pull = jax.vjp(lambda x: product("rd,df->rf", x, weight), x)
        return y, pull(grad)

    step, seconds = jax.jit(step), {"float32": 0.0, "bfloat16": 0.0}
    for (inputs, outputs), count in sizes.items():
        columns = min(outputs, MOST_COLUMNS)
        x, weight, grad = (
            jnp.ones(shape, jnp.float32)
            for shape in ((rows, inputs), (inputs, columns), (rows, columns))
        )
        for name, factor in (("float32", weight), ("bfloat16", Rounded(weight))):
            once = fastest(partial(step, x, factor, grad), TRIALS)
            seconds[name] += count * once * outputs / columns
    return seconds
