"""Table 1, measured: what a layer costs against the length n and the width d.

    python -m t2t_jax experiment table1 --workdir=DIR

Trains nothing. Each row is one layer: its time and memory with gradients, its FLOPs and
sequential operations, and the longest path between two tokens through a stack of such
layers. An exponent of 2 in the column `cost.time_n` means O(n^2). Some minutes on two
CPU cores; measure on a machine that does nothing else. `--scale=full` has longer rows,
for an accelerator.
"""

import math

from experiments import _texts
from experiments.measures.fits import crossing
from experiments.measures.layer_cost import larger_half
from t2t_jax.io.tables import markdown_table
from t2t_jax.tools.experiment import Experiment, Measure, Row

RESTRICTED = {"neighbourhood": 64}  # r
CONVOLUTION = {"conv_kernel": 3}  # k
DILATED = {"bytenet_kernel": 3}
# Row: the layer, its options, and Table 1's complexity, sequential operations and
# maximum path length.
LAYERS = {
    "self-attention": ("attention", {}, "n^2 d", "1", "1"),
    "self-attention, no projections": ("attention_function", {}, "n^2 d", "1", "1"),
    "restricted": ("restricted", RESTRICTED, "r n d", "1", "n / r"),
    "restricted, no projections": (
        *("restricted_function", RESTRICTED, "r n d", "1", "n / r"),
    ),
    "recurrent": ("recurrence", {}, "n d^2", "n", "n"),
    "convolutional": ("convolution", CONVOLUTION, "k n d^2", "1", "n / k"),
    "convolutional, dilated": (
        *("dilated_convolution", DILATED, "k n d^2", "1", "log_k n"),
    ),
}
ATTENTION, RECURRENT = "self-attention", "recurrent"
SIZES = {
    "small": {
        "lengths": [64, 128, 256, 512, 1024, 2048],
        "widths": [64, 128, 256, 384, 512, 768],
        **{"length": 512, "width": 256},
    },
    "full": {
        "lengths": [256, 512, 1024, 2048, 3072, 4096, 6144, 8192],
        "widths": [128, 256, 384, 512, 768, 1024, 1536, 2048],
        **{"length": 1024, "width": 512},
    },
}
PATHS = [16, 32, 64, 128]  # n of the path lengths
NOTE = (
    "The exponents are of n and d in the time and memory of one layer with gradients, "
    "and in the FLOPs of its forward pass; `path.longest` is for n = "
    f"{PATHS[-1]}. `O()`: the paper's complexity, sequential operations and path "
    "length, which leave out attention's projections (another O(n d^2)): rows without "
    "them measure scores and weighted values alone. Recurrence is an LSTM, convolution "
    f"that of ConvS2S with k = {CONVOLUTION['conv_kernel']} and gates, dilated "
    "convolution a block of ByteNet whose dilations double from layer to layer; "
    f"neighbourhoods have r = {RESTRICTED['neighbourhood']} tokens."
)


def get_experiment(scale="small"):
    """Builds the experiment.

    Args:
      scale: small or full.
    """
    sizes = _texts.entry("scale", scale, SIZES)
    rows = [
        Row(
            name,
            measures=[
                Measure(
                    "layer_costs",
                    {"layer": layer, "options": options, **sizes},
                    name="cost",
                ),
                Measure(
                    "path_lengths",
                    {"layer": layer, "options": options, "lengths": PATHS},
                    name="path",
                ),
            ],
            values={"O(time)": time, "O(sequential)": sequential, "O(path)": path},
        )
        for name, (layer, options, time, sequential, path) in LAYERS.items()
    ]
    return Experiment(
        rows,
        columns=(
            *("O(time)", "cost.time_n", "cost.time_d", "cost.flops_n", "cost.flops_d"),
            *("cost.memory_n", "cost.memory_d", "O(sequential)", "cost.sequential"),
            *("O(path)", "path.longest"),
        ),
        note=NOTE,
        plot=plot,
        report=report,
    )


def measured(results, name="cost"):
    """The results of a measure, by row, of the rows that are finished."""
    return {run.run.row: run.measure(name) for run in results.measured(name)}


def plot(results):
    """Time against n and d, and memory against n, of all layers."""
    from matplotlib.figure import Figure

    from t2t_jax.tools.experiment.plots import lines

    costs = measured(results)
    if not costs:
        return None
    figure = Figure(figsize=(13, 4.2))
    panels = figure.subplots(1, 3)
    for axes, (sweep, x, y, scale, label) in zip(
        panels,
        (
            ("lengths", "length", "time", 1e3, "ms, with gradients"),
            ("widths", "width", "time", 1e3, "ms, with gradients"),
            ("lengths", "length", "memory", 2**-20, "MiB, with gradients"),
        ),
        strict=True,
    ):
        series = {
            row: (
                [point[x] for point in cost[sweep]],
                [scale * (point[y] or math.nan) for point in cost[sweep]],
            )
            for row, cost in costs.items()
        }
        symbol = "n" if x == "length" else "d"
        lines(series, f"{x} {symbol}", label, True, True, axes=axes)
    for axes in panels[:2]:
        if axes.get_legend():
            axes.get_legend().remove()  # one for all panels
    return figure


def report(results):
    """The exponents with their intervals, path lengths, and attention's crossings."""
    costs, paths = measured(results), measured(results, "path")
    if not costs:
        return ""
    cost = next(iter(costs.values()))
    parts = [
        "## Exponents with 95% intervals",
        f"Of n in {_range(cost, 'lengths')} and d in {_range(cost, 'widths')}, the "
        "larger halves of what was measured: smaller layers take the time of overheads "
        f"(device: {cost['device']}). One fit of log y = c + a log n + b log d for "
        "each layer and quantity. A sum such as n^2 d + n d^2 is not a power law: its "
        "exponents are those of the measured range, and its intervals hold the misfit.",
        _exponents(costs),
        "Memory is what the compiler allocates for results and temporary arrays, "
        "without what its libraries allocate inside their kernels.",
        "## Path lengths",
        "Layers that the gradient of the last output needs to reach the first input, "
        "times the sequential operations in a layer.",
        *markdown_table(
            ["row", *(f"n = {n}" for n in PATHS)],
            [
                [name, *map("{:,.0f}".format, path["paths"])]
                for name, path in paths.items()
            ],
        ),
    ]
    if {ATTENTION, RECURRENT} <= set(costs):
        parts += ["## Self-attention against recurrence", _crossings(costs)]
    return "\n\n".join(parts)


def _exponents(costs):
    """The exponents of all rows, as a Markdown table."""
    names = ("time", "forward", "memory", "flops")
    head = [f"{name}, {x}" for name in names for x in "nd"]
    rows = []
    for row, cost in costs.items():
        cells = []
        for key in (f"{name}_{x}" for name in names for x in "nd"):
            if key not in cost:
                cells.append("")
                continue
            low, high = cost[f"{key}_low"], cost[f"{key}_high"]
            cells.append(f"{cost[key]:.2f} [{low:.2f}, {high:.2f}]")
        rows.append([row, *cells])
    return "\n".join(markdown_table(["row", *head], rows))


def _crossings(costs):
    """Finds where attention becomes slower than recurrence; the paper says n < d."""
    parts = [
        "The paper (section 4): self-attention is faster than recurrence if n < d. "
        "Measured, with gradients:",
    ]
    length, width = (costs[ATTENTION][sweep] for sweep in ("lengths", "widths"))
    for fixed, sweep, symbol, points in (
        (f"d = {length[0]['width']}", "lengths", "n", length),
        (f"n = {width[0]['length']}", "widths", "d", width),
    ):
        x = [point[sweep[:-1]] for point in points]
        attention, recurrence = (
            [point["time"] for point in costs[name][sweep]]
            for name in (ATTENTION, RECURRENT)
        )
        # Attention loses with growing n, and wins with growing d.
        slower = attention, recurrence
        equal_at = crossing(x, *(slower if symbol == "n" else slower[::-1]))
        ratios = ", ".join(
            f"{r / a:.1f} ({symbol} = {value})"
            for value, a, r in zip(x, attention, recurrence, strict=True)
        )
        finding = (
            f"the two are equally fast at {symbol} = {equal_at:,.0f}"
            if equal_at
            else f"no crossing at {symbol} = {x[0]} to {x[-1]}"
        )
        parts.append(
            f"- {fixed}: {finding}. Recurrence takes, times the seconds of "
            f"self-attention: {ratios}."
        )
    return "\n".join([parts[0], "", *parts[1:]])


def _range(cost, sweep):
    sizes = [point[sweep[:-1]] for point in larger_half(cost[sweep])]
    return f"{sizes[0]} to {sizes[-1]}"
