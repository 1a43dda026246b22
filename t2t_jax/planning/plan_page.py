"""A `plan` as text and as a picture."""

from pathlib import Path

from t2t_jax.planning import chips, suggestions
from t2t_jax.terminal.errors import UserError

GIB = 2**30
COLORS = {  # of the parts of memory, and their letters in a terminal
    "parameters": ("P", "#4477aa"),
    "average": ("E", "#66ccee"),
    "optimizer": ("O", "#228833"),
    "batch": ("B", "#ccbb44"),
    "temporary": ("T", "#ee6677"),
    "program": ("C", "#aa3377"),
}
MEANING = {
    "parameters": "parameters, float32",
    "average": "their moving average",
    "optimizer": "Adam's two moments",
    "batch": "token ids",
    "temporary": "activations, gradients and other temporaries",
    "program": "machine code",
}


def page(told: dict) -> str:
    """A `plan` for a person."""
    mesh = " x ".join(f"{axis} {n}" for axis, n in told["mesh"].items())
    batch = told["batch"]
    lines = [
        f"{told['slice']}   {told['chips']} chips, mesh {mesh}",
        f"model     {told['parameters']:,} parameters, {told['vocabulary']:,} pieces; "
        f"activations in {told['dtype']}, remat {told['remat']}",
        f"batch     {batch['rows']} rows, in {told['accumulate']} parts; assumed, as "
        "the text decides:",
        f"          {batch['assumed']}",
        *memory_lines(told),
        *_collective_lines(told["collectives"]),
        *_time_lines(told),
        f"chip      {told['chip']['source']}",
    ]
    if told["fits"]:
        lines.append("It fits.")
    return "\n".join(lines)


def _size(n: float) -> str:
    return f"{n / GIB:,.2f} GiB" if n >= GIB / 100 else f"{n / 2**20:,.2f} MiB"


def memory_lines(told: dict, width: int = 64) -> list[str]:
    """The memory of a chip as a bar of letters, and what they stand for."""
    memory = told["memory"]
    scale = width / max(memory["chip"], min(memory["needed"], 4 * memory["chip"]))
    bar, at = "", 0.0
    for name, size in memory["parts"].items():
        at += size
        bar += COLORS[name][0] * (min(round(at * scale), 4 * width) - len(bar))
    end = round(memory["chip"] * scale)
    bar = bar.ljust(end, ".")
    if len(bar) > end:  # what is behind the mark does not fit
        bar = f"{bar[:end]}|{bar[end:]}"
    share = memory["needed"] / memory["chip"]
    compiler = memory["by"]
    guess = "" if told["chip"]["kind"] != "gpu" else " (more than a GPU's would take)"
    lines = [
        f"memory    {_size(memory['needed'])} of {_size(memory['chip'])} a chip "
        f"({share:.0%}), by {compiler}{guess}",
        f"          [{bar}]",
    ]
    for name, size in memory["parts"].items():
        if size:
            lines.append(
                f"          {COLORS[name][0]} {_size(size):>12}  {MEANING[name]}"
            )
    if told["chip"]["kind"] == "gpu":
        whole = memory["chip"] / chips.GPU_USABLE
        if memory["needed"] > chips.JAX_TAKES * whole and told["fits"]:
            lines.append(
                "          set XLA_PYTHON_CLIENT_MEM_FRACTION="
                f"{chips.GPU_USABLE}: JAX takes {chips.JAX_TAKES} by itself"
            )
    return lines


def _collective_lines(rows: list[dict] | None) -> list[str]:
    if rows is None:
        return ["sent      not known: the compiler gave up for lack of memory"]
    if not rows:
        return ["sent      nothing: one device"]
    lines = ["sent      by each chip in a step, passed round a ring"]
    for row in rows:
        axes = "+".join(row["axes"])
        lines.append(
            f"          {row['count']:4} {row['kind']} over {axes}: "
            f"{_size(row['sent'])} ({', '.join(row['types'])}; largest "
            f"{row['largest']})"
        )
        lines.append(f"               {row['why']}")
    return lines


def _time_lines(told: dict) -> list[str]:
    spent, flops = told["time"], told["flops"]
    lines = [
        f"compute   {flops['model']:.3g} FLOPs a step"
        + (
            f", {flops['computed']:.3g} with what is made twice"
            if flops["computed"] > flops["model"]
            else ""
        )
    ]
    if spent is None:
        return lines
    lines += [
        f"          {1e3 * spent['compute']:8.2f} ms  products, at "
        f"{spent['share_of_peak']} of the peak (assumed)",
        f"          {1e3 * spent['memory']:8.2f} ms  memory, "
        f"{_size(spent['moved_bytes'])} at least",
        f"          {1e3 * spent['links']:8.2f} ms  links, at "
        f"{spent['share_of_links']} of their bandwidth (assumed)",
        f"step      {1e3 * spent['step']:.2f} ms if nothing is sent meanwhile, "
        f"{1e3 * spent['best']:.2f} ms if all is: {spent['tokens_per_second']:,.0f} "
        "tokens/s of both sides",
        f"run       {told['steps']:,} steps: {spent['days']:.2f} days, "
        f"{spent['chip_hours']:,.0f} chip-hours; evaluations and saves not counted",
    ]
    if "measured_step" in told:
        real = told["measured_step"]
        lines.append(
            f"measured  {1e3 * real:.1f} ms a step, "
            f"{real / spent['step']:.2f} times the forecast"
        )
    return lines


def picture(told: dict, path: str | Path) -> None:
    """The memory of a chip as a stacked bar, in a PNG.

    Raises:
      UserError: no matplotlib.
    """
    try:
        import matplotlib
    except ImportError:
        raise UserError(
            "--picture needs matplotlib: pip install -e '.[notebooks]'"
        ) from None
    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(9, 2.4))
    left = 0.0
    for name, size in told["memory"]["parts"].items():
        if size:
            label = f"{MEANING[name]}: {_size(size)}"
            axes.barh(0, size / GIB, left=left, color=COLORS[name][1], label=label)
            left += size / GIB
    limit = told["memory"]["chip"] / GIB
    if left < limit:
        label = f"free: {limit - left:.2f} GiB"
        axes.barh(0, limit - left, left=left, color="#eeeeee", label=label)
    axes.axvline(limit, color="black")
    axes.set_yticks([])
    axes.set_xlabel(f"GiB of a chip of {told['slice']}")
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.35), ncol=2, frameon=False)
    figure.savefig(path, dpi=120, bbox_inches="tight")
    pyplot.close(figure)


def refusal(told: dict) -> str:
    """What a person is told of a run that does not fit."""
    memory = told["memory"]
    text = (
        f"does not fit: {_size(memory['needed'])} a chip of {told['slice']}, which has "
        f"{_size(memory['chip'])}"
    )
    if not told["remedy"]:
        return text + "; nothing that was tried fits: take more or larger chips"
    then = told["remedy"]["forecast"]["memory"]
    return (
        f"{text}. This fits, with {_size(then['needed'])}: "
        f"{suggestions.as_flags(told['remedy']['change'])}"
    )
