"""Compares the time and the memory of a training step with the forecast of `plan`.

    python -m benchmarks.forecast --steps=12                    # base; on a GPU or TPU
    python -m benchmarks.forecast --config=configs/big.py --steps=12
    python -m benchmarks.forecast --config.data.row_length=32 \\
        --config.data.batch_tokens=512                          # on a CPU

One device takes batches of the shape that `plan` assumes, without padding; tokens are
as frequent as in text. `ms` is that of steps in a row, and `awaited ms` of one that is
waited for; tokens are of source and target, and the first step takes the time to
compile, too. MFU is relative to the product of matrices that was measured here, and to
that of the data sheet, where it is known. The rate of the memory is that of an
addition, read and write.

On a GPU or TPU a forecast that fails leaves its columns empty. On a CPU the step runs
in its own process, so that memory is counted that this one has freed, but kept.
"""

import jax
from absl import flags

from benchmarks import measuring, run
from t2t_jax.commands import config_files
from t2t_jax.commands.flags import define_config_flag
from t2t_jax.config import Config, from_config_dict
from t2t_jax.costs import chips, step_costs
from t2t_jax.costs.timing import median_seconds
from t2t_jax.parallel.process_setup import set_up_process
from t2t_jax.tools.verify.memory import FirstStep, without_kept_memory

DTYPES = "float32", "bfloat16"


def step_cost(config: Config, count: int) -> dict:
    """Measures some steps: numbers of the row, with rates and shares not computed."""
    step = FirstStep(config)
    set_up_process()  # from here on with training's settings
    awaited = median_seconds(step.update, count)

    def steps():
        for _ in range(count):
            arrays = step.update()
        return arrays

    shape, planned = step.shape, step.forecast
    time = planned and planned["time"]
    return {
        "dtype": step.config.model.dtype,
        "batch": f"{shape.rows} rows of {shape.source} + {shape.target}",
        "tokens": shape.rows * (shape.source + shape.target),
        "parameters": step.model.count(),
        "flops": step_costs.model_flops(step.model, step.config, shape),
        "first": step.seconds,
        "awaited": awaited,
        "seconds": median_seconds(steps, 1) / count,
        "planned_seconds": time["step"] if time else None,
        "memory": step.memory,
        "planned_memory": planned["memory"]["needed"] if planned else None,
        "planned_by": planned["memory"]["by"] if planned else None,
    }


def row(name: str, cost: dict, peak: float, sheet: float | None) -> dict:
    """The row of a step, given the FLOP/s of a product here and of the data sheet."""
    rate = cost["flops"] / cost["seconds"]
    return {
        "step": f"{name}, {cost['parameters']:,} parameters",
        "dtype": cost["dtype"],
        "batch": cost["batch"],
        "ms": 1e3 * cost["seconds"],
        "awaited ms": 1e3 * cost["awaited"],
        "forecast ms": cost["planned_seconds"] and 1e3 * cost["planned_seconds"],
        "time / forecast": _ratio(cost["seconds"], cost["planned_seconds"]),
        "tokens/s": cost["tokens"] / cost["seconds"],
        "MFU": rate / peak,
        "MFU of the data sheet": _ratio(rate, sheet),
        "first step s": cost["first"],
        "GiB": _ratio(cost["memory"], 2**30),
        "forecast GiB": _ratio(cost["planned_memory"], 2**30),
        "memory / forecast": _ratio(cost["memory"], cost["planned_memory"]),
        "forecast by": cost["planned_by"],
    }


def _ratio(measured: float | None, expected: float | None) -> float | None:
    return measured / expected if measured and expected else None


def products(sizes: list[str]) -> dict[str, float]:
    """The highest rate of a product of matrices by dtype, in FLOP/s."""
    return {d: measuring.matrix_peaks(d, sizes=sizes)["jax"] for d in DTYPES}


def define_flags():
    define_config_flag()
    measuring.define_flags(rounds=None)
    flags.DEFINE_integer("steps", 3, "Steps that are timed.", lower_bound=1)


def main(_):
    args = flags.FLAGS
    measuring.begin(args)
    config = from_config_dict(args.config)
    # Before anything else: on a GPU the allocator's peak of memory only rises.
    cost = without_kept_memory(step_cost, config, args.steps)
    peaks = products(args.peak_sizes)
    kind = jax.devices()[0].device_kind
    sheets = {d: chips.peak(kind, d) for d in DTYPES}
    memory_rate = chips.memory_rate(1 << (26 if kind == "cpu" else 30))
    print(f"memory {memory_rate / 1e9:,.0f} GB/s")
    for name, sheet in sheets.items():
        if sheet:
            print(f"{name}: {peaks[name] / sheet:.0%} of the data sheet's peak")
    name = config_files.config_name(args["config"].config_filename)
    rows = [row(name, cost, peaks[cost["dtype"]], sheets[cost["dtype"]])]
    measuring.publish(rows, args.output, matrix_peak=peaks, memory_rate=memory_rate)


if __name__ == "__main__":
    run(main, define_flags, config="base")
