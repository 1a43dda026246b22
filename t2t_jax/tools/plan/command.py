"""Forecasts whether a run fits on chips before they are rented, and how long it takes.

python -m t2t_jax plan --config=big --slice=v5e:2x4 --mesh=data:2,fsdp:4
"""

import dataclasses
import json
from pathlib import Path

from absl import flags

from t2t_jax import config as fields
from t2t_jax.commands.flags import define_config_flag
from t2t_jax.costs import chips
from t2t_jax.costs.chips import CHIPS, GIB
from t2t_jax.data.tokenizers.vocabulary import show_sizes
from t2t_jax.io.errors import UserError, did_you_mean

PRESET = "tiny"


def define_flags():
    define_config_flag()
    flags.DEFINE_string(
        "slice",
        None,
        "Chips to plan for, as CHIP:SIZE, such as v5e:2x4, h100:8 or cpu:1 (this "
        f"machine). Chips: {', '.join(CHIPS)}.",
        required=True,
    )
    flags.DEFINE_string("mesh", "", "Shorthand for config.mesh, such as data:2,fsdp:4.")
    flags.DEFINE_boolean(
        "kernels", False, "Also list the kernels of the compiled program, by part."
    )
    flags.DEFINE_enum(
        "program",
        "step",
        ["step", "search"],
        "What to compile: a training step, or a position of a search (with --kernels).",
    )
    flags.DEFINE_boolean("json", False, "Print a JSON object, for programs.")
    flags.DEFINE_string("picture", "", "PNG file to write a chart of the memory to.")
    flags.DEFINE_boolean(
        "remedy", True, "If the run does not fit, search for a change that does."
    )


def main(_):
    args = flags.FLAGS
    config = fields.from_config_dict(args.config)
    if args.mesh:
        config = fields.changed(config, "mesh", **parse_mesh(args.mesh))
    if not args.slice.startswith("cpu"):
        chips.find_slice(args.slice)
    elif args.kernels:
        raise UserError(f"--slice={args.slice}: --kernels wants a TPU or a GPU")
    if args.program == "search" and not args.kernels:
        raise UserError("--program=search lists kernels: add --kernels")
    # Mistakes above are reported before JAX is imported.
    from t2t_jax.parallel.process_setup import set_up_process
    from t2t_jax.tools.plan.compilers import check_kernels
    from t2t_jax.tools.plan.forecast import plan, search_kernels

    set_up_process()
    if args.program == "search":
        result = search_kernels(config, args.slice)
        print(json.dumps(result, indent=1) if args.json else search_text(result))
        return
    if args.kernels:
        check_kernels(chips.find_slice(args.slice))
    result = plan(config, args.slice, measure=True, remedy=args.remedy)
    print(
        json.dumps(result, indent=1) if args.json else plan_text(result, args.kernels)
    )
    if args.picture:
        picture(result, args.picture)
    if not result["fits"]:
        raise UserError(refusal(result))


def parse_mesh(text: str) -> dict[str, int]:
    """Parses --mesh: `data:32,fsdp:8` -> `{"data": 32, "fsdp": 8, "tensor": 1}`.

    Without `data`, the data axis gets all remaining devices (-1).

    Raises:
      UserError: no such axis, or a size that is not a number.
    """
    sizes = {axis.name: axis.default for axis in dataclasses.fields(fields.MeshConfig)}
    for part in filter(None, text.split(",")):
        axis, _, size = part.partition(":")
        if axis not in sizes:
            hint = did_you_mean(axis, sizes)
            raise UserError(f"--mesh={text}: no axis {axis!r}{hint}")
        if not size.lstrip("-").isdecimal():
            raise UserError(f"--mesh={text}: want AXIS:NUMBER, such as {axis}:2")
        sizes[axis] = int(size)
    return sizes


# Part of the memory -> its letter in a terminal, its colour in a picture, its meaning.
PARTS = {
    "parameters": ("P", "#4477aa", "parameters, float32"),
    "average": ("E", "#66ccee", "their moving average"),
    "optimizer": ("O", "#228833", "the optimizer's state"),
    "frozen": ("F", "#bbbbbb", "parameters of the models that the loss reads"),
    "batch": ("B", "#ccbb44", "token ids"),
    "temporary": ("T", "#ee6677", "activations, gradients and other temporaries"),
    "program": ("C", "#aa3377", "machine code"),
}


def plan_text(plan: dict, kernels: bool = False) -> str:
    """Formats a plan: model, batch, memory, communication, time, and its kernels."""
    from t2t_jax.tools.plan.describe import VOCABULARIES

    mesh = " x ".join(f"{axis} {n}" for axis, n in plan["mesh"].items())
    batch = plan["batch"]
    labels, *sizes = [plan[name] for name in VOCABULARIES if name in plan]
    sizes = sizes if plan["labels"] else [labels, *sizes]
    pieces = f"{show_sizes(sizes)} tokens"
    if plan["labels"]:
        pieces = f"{labels:,} labels, {pieces}"
    lines = [
        f"{plan['slice']}   {plan['chips']} chips, mesh {mesh}{_nodes(plan)}",
        f"model     {plan['parameters']:,} parameters, {pieces}; "
        f"activations in {plan['dtype']}, remat {plan['remat']}",
        f"batch     {batch['rows']} rows; microbatches: {plan['accumulate']}; shape "
        "assumed, since no text is read:",
        f"          {batch['assumed']}",
        *memory_lines(plan),
        *_collective_lines(plan["collectives"]),
        *(kernel_lines(plan["kernels"]) if kernels and plan["kernels"] else ()),
        *_time_lines(plan),
        f"chip      {plan['chip']['source']}",
    ]
    if plan["fits"]:
        lines.append("It fits.")
    return "\n".join(lines)


def _nodes(plan: dict) -> str:
    """Says how chips of several machines are linked; a chip's own links are not."""
    if plan["nodes"] == 1:
        return ""
    rate = plan["chip"]["network"] / chips.GIGA
    return f"; {plan['nodes']} nodes of {chips.NODE}, linked at {rate:g} GB/s a chip"


def _size(n: float) -> str:
    return f"{n / GIB:,.2f} GiB" if n >= GIB / 100 else f"{n / 2**20:,.2f} MiB"


def memory_lines(plan: dict) -> list[str]:
    """Draws the memory of a chip as a bar of letters, with a legend.

    The bar is longer where more than four times the chip's is needed.
    """
    memory, width = plan["memory"], 64
    scale = width / max(memory["chip"], min(memory["needed"], 4 * memory["chip"]))
    # Round the end of every part, not its length, so that the bar's length is right.
    bar, total = "", 0.0
    for name, size in memory["parts"].items():
        total += size
        bar += PARTS[name][0] * (min(round(total * scale), 4 * width) - len(bar))
    end = round(memory["chip"] * scale)
    bar = bar.ljust(end, ".")
    if len(bar) > end:  # everything after the mark does not fit
        bar = f"{bar[:end]}|{bar[end:]}"
    gpu = plan["chip"]["kind"] == "gpu"
    by_cpu = memory["by"] == "the CPU's compiler"
    guess = " (an upper estimate for a GPU)" if gpu and by_cpu else ""
    lines = [
        f"memory    {_size(memory['needed'])} of {_size(memory['chip'])} a chip "
        f"({memory['needed'] / memory['chip']:.0%}), by {memory['by']}{guess}",
        f"          [{bar}]",
    ]
    for name, size in memory["parts"].items():
        letter, _, meaning = PARTS[name]
        if size:
            lines.append(f"          {letter} {_size(size):>12}  {meaning}")
    installed = memory["chip"] / chips.GPU_USABLE
    if gpu and plan["fits"] and memory["needed"] > chips.JAX_TAKES * installed:
        lines.append(
            "          set XLA_PYTHON_CLIENT_MEM_FRACTION="
            f"{chips.GPU_USABLE}: JAX's default is {chips.JAX_TAKES}"
        )
    return lines


def _collective_lines(rows: list[dict] | None) -> list[str]:
    if rows is None:
        return ["sent      unknown: the compiler ran out of memory"]
    if not rows:
        return ["sent      nothing: one device"]
    lines = ["sent      by each chip in a step, with ring algorithms"]
    for row in rows:
        lines += [
            f"          {row['count']:4} {row['kind']} over {'+'.join(row['axes'])}: "
            f"{_size(row['sent'])} ({', '.join(row['types'])}; largest "
            f"{row['largest']})",
            f"               {row['why']}",
        ]
    return lines


def search_text(search: dict) -> str:
    """Formats the kernels of a search, of `search_kernels`."""
    shape = search["shape"]
    return "\n".join(
        [
            f"{search['slice']}   a search with beam {shape['beam']} on one chip, "
            f"activations in {search['dtype']}",
            f"batch     {shape['lines']} lines of {shape['source']} tokens; caches for "
            f"{shape['room']}",
            f"memory    {_size(search['memory'])}",
            *kernel_lines(search["kernels"], "a position"),
        ]
    )


_COLUMNS = "{:<14}{:>7}{:>9}{:>10}{:>9}  {}"


def kernel_lines(kernels: dict, unit: str = "a step") -> list[str]:
    """Tables of kernels: by part, and the largest with the lines that made them."""
    from t2t_jax.tools.plan.kernels import MEANINGS

    indent = " " * 10
    lines = [
        f"kernels   {kernels['count']:,} {unit}, {1e3 * kernels['seconds']:.2f} ms by "
        f"{kernels['by']};",
        f"{indent}waits for the host {unit}: {kernels['stops']}",
        indent + _COLUMNS.format("part", "kernels", "ms", "TFLOP", "GB", "bound by"),
    ]
    rows = [*kernels["parts"].items(), ("all", kernels)]
    if "outside" in kernels:
        rows.append(("outside", kernels["outside"]))
    for name, row in rows:
        bounds = sorted(row["bounds"].items(), key=lambda item: -item[1])
        shares = [
            f"{bound} {seconds / row['seconds']:.0%}"
            for bound, seconds in bounds
            if seconds > 0.005 * row["seconds"]
        ]
        lines.append(
            indent
            + _COLUMNS.format(
                *(name, f"{row['count']:,}", f"{1e3 * row['seconds']:.3f}"),
                *(f"{row['flops'] / 1e12:.3f}", f"{row['bytes'] / 1e9:.2f}"),
                ", ".join(shares),
            ).rstrip()
        )
    lines += [
        f"{indent}{name}: {meaning}"
        for name, meaning in MEANINGS.items()
        if name in kernels["parts"]
    ]
    lines.append(f"largest   ms {unit}, times, MB and GFLOP of one, what bounds it")
    for row in kernels["largest"]:
        bound = max(row["bounds"], key=row["bounds"].get)
        lines.append(
            f"{indent}{1e3 * row['seconds']:7.3f} {row['count']:4} "
            f"{row['bytes'] / row['count'] / 1e6:8.1f} "
            f"{row['flops'] / row['count'] / 1e9:7.1f}  {bound:<9} {row['part']:<13} "
            f"{row['line']:<31} {row['name'].rpartition('/')[2]}"
        )
    return lines


def _time_lines(plan: dict) -> list[str]:
    spent, flops = plan["time"], plan["flops"]
    compute = f"compute   {flops['model']:.3g} FLOPs a step"
    if flops["computed"] > flops["model"]:
        compute += f", {flops['computed']:.3g} with recomputation"
    if spent is None:
        return [compute]
    computed = f"matrix products, at {spent['share_of_peak']} of the peak (assumed)"
    if plan["kernels"]:
        computed = "kernels (--kernels lists them)"
    lines = [
        compute,
        f"          {1e3 * spent['compute']:8.2f} ms  {computed}",
        f"          {1e3 * spent['memory']:8.2f} ms  memory traffic, at least "
        f"{_size(spent['moved_bytes'])}",
        f"          {1e3 * spent['links']:8.2f} ms  links, at "
        f"{spent['share_of_links']} of their bandwidth (assumed)",
        f"step      {1e3 * spent['step']:.2f} ms if nothing overlaps with sending "
        f"({spent['tokens_per_second']:,.0f} tokens/s, source and target), "
        f"{1e3 * spent['best']:.2f} ms if everything does",
        f"run       {plan['steps']:,} steps: {spent['days']:.2f} days, "
        f"{spent['chip_hours']:,.0f} chip-hours; evaluations and saves not counted",
        f"          a checkpoint every {plan['save_every']:,} steps is one every "
        f"{spent['step'] * plan['save_every'] / 60:,.1f} minutes; "
        "config.train.save_minutes sets these",
    ]
    if plan["kernels"] and plan["chip"]["kind"] == "gpu":
        lines.append(
            f"          the one step measured on a GPU: {chips.MEASURED_BY_KERNELS} "
            "times the sum of its kernels (docs/results/devices.md)"
        )
    if "measured_step" in plan:
        real = plan["measured_step"]
        lines.append(
            f"measured  {1e3 * real:.1f} ms a step, "
            f"{real / spent['step']:.2f} times the forecast"
        )
    return lines


def picture(plan: dict, path: str | Path) -> None:
    """Draws the memory of a chip as a stacked bar and writes it as a PNG."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise UserError(
            "--picture needs matplotlib: pip install -e '.[notebooks]'"
        ) from None
    figure = Figure(figsize=(9, 2.4))
    axes, used = figure.subplots(), 0.0
    for name, size in plan["memory"]["parts"].items():
        _, color, meaning = PARTS[name]
        if size:
            label = f"{meaning}: {_size(size)}"
            axes.barh(0, size / GIB, left=used, color=color, label=label)
            used += size / GIB
    limit = plan["memory"]["chip"] / GIB
    if used < limit:
        label = f"free: {limit - used:.2f} GiB"
        axes.barh(0, limit - used, left=used, color="#eeeeee", label=label)
    axes.axvline(limit, color="black")
    axes.set_yticks([])
    axes.set_xlabel(f"GiB of a chip of {plan['slice']}")
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.35), ncol=2, frameon=False)
    figure.savefig(path, dpi=120, bbox_inches="tight")


def refusal(plan: dict) -> str:
    """The error message for a run that does not fit, with a change that does."""
    from t2t_jax.costs import memory_check

    memory = plan["memory"]
    text = (
        f"does not fit: needs {_size(memory['needed'])} on each chip of "
        f"{plan['slice']}, which has {_size(memory['chip'])}"
    )
    if not plan["remedy"]:
        return text + "; no change that was tried fits: take more or larger chips"
    changed = plan["remedy"]["forecast"]["memory"]
    return (
        f"{text}. With {memory_check.as_flags(plan['remedy']['change'])} it fits, in "
        f"{_size(changed['needed'])}"
    )
