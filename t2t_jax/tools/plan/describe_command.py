"""Describes a config next to the paper: `python -m t2t_jax describe --config=NAME`.

With --workdir it describes the config and the vocabulary of a trained workdir. Reads no
text and allocates no parameters.
"""

import json
import os
import sys

from absl import flags

from t2t_jax.commands.flags import define_config_flag
from t2t_jax.io.errors import UserError
from t2t_jax.workdir import Workdir


def default_config() -> str | None:
    """The config to describe if neither a config nor a workdir is given."""
    # Another run may be using the GPU: do not claim 3/4 of its memory.
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    workdir, config_flags = _given_flags()
    return None if workdir and not config_flags else "tiny"


def define_flags():
    define_config_flag()
    flags.DEFINE_string(
        "workdir", None, "Describe this trained workdir instead of a config."
    )
    flags.DEFINE_boolean("json", False, "Print a JSON object, for programs.")


def main(_):
    args = flags.FLAGS
    workdir, config_flags = _given_flags()
    if workdir and config_flags:
        raise UserError(
            f"both --workdir and --{config_flags[0]} are given, but a workdir has its "
            "own config; leave out one of them"
        )
    if args.workdir == "":
        raise UserError("--workdir is empty; name a folder, or leave the flag out")
    if workdir:
        Workdir(args.workdir).config()  # mistakes are reported before JAX is imported
    from t2t_jax.parallel.process_setup import set_up_process
    from t2t_jax.tools.plan.describe import describe, describe_workdir

    set_up_process()
    result = describe_workdir(args.workdir) if workdir else describe(args.config)
    if args.json:
        print(json.dumps(result, indent=1, ensure_ascii=False))
    else:
        print(description_text(result))


def _given_flags() -> tuple[bool, list[str]]:
    """Returns whether --workdir is given, and the flags about a config.

    Reads the command line itself, as it is called before the flags are parsed.
    """
    arguments = [a for a in sys.argv[1:] if a.startswith("-")]
    names = [argument.lstrip("-").partition("=")[0] for argument in arguments]
    config_flags = [n for n in names if n.partition(".")[0] in ("config", "noconfig")]
    return "workdir" in names, config_flags


def description_text(description: dict) -> str:
    """Formats a description of a config: one fact per line."""
    from t2t_jax.tools.plan.describe import VOCABULARIES

    lines = []
    kind = description["config"]["model"]["kind"]
    for section, values in description["config"].items():
        lines.append(section)
        for field, value in values.items():
            fact = description["paper"].get(f"{section}.{field}")
            if fact and fact["value"] != value:  # head_width 0: add the actual width
                value = f"{value} ({fact['value']})"
            if field == "options":
                value = description["options"][section]
            remark = _remark(fact)
            if f"{section}.{field}" in description["unused"]:
                remark = f"not read by config.model.kind={kind!r}"
            lines.append(f"  {field:20} {value!s:20} {remark}".rstrip())
    parameters, size = description["parameters"], description["bytes"]
    sizes = ["a vocabulary of {pieces:,} tokens ({from})"]
    if description["labels"]:
        sizes.insert(0, "{pieces:,} labels ({from})")
    else:
        sizes.append("one of {pieces:,} for the source ({from})")
    stored = [description[name] for name in VOCABULARIES if name in description]
    sizes = [text.format(**size) for text, size in zip(sizes, stored, strict=False)]
    lines.append(f"parameters  {parameters['total']:,}, with {' and '.join(sizes)}")
    lines += [f"  {part:20} {n:13,}" for part, n in parameters["parts"].items()]
    for name, weight in parameters["weights"].items():
        times = f" x {weight['layers']}" if "*" in name else ""
        axes = ", ".join(weight["axes"])
        lines.append(f"  {name + times:38} {weight['shape']!s:18} {axes}")
    lines += [
        f"float32     parameters {_mib(size['parameters'])}; a checkpoint to continue "
        f"from, with the optimizer's state, {_mib(size['state'])}",
        *_compute_lines(description),
        *_rate_lines(description["learning_rate"]),
        *_run_lines(description),
        *_decoding_lines(description["decoding"]),
    ]
    return "\n".join(lines)


def _remark(fact: dict | None) -> str:
    """Compares a field with the paper; empty if the paper gives no value."""
    if fact is None:
        return ""
    base, big, matching = fact["base"], fact["big"], fact["same"]
    if len(matching) == 2:
        remark = "the paper's"
    elif matching:
        (other_model,) = {"base", "big"} - set(matching)
        remark = f"the paper's {matching[0]}; {other_model}: {fact[other_model]}"
    else:
        remark = f"paper: {base}" + (f" (base), {big} (big)" if big != base else "")
    return f"{remark}, section {fact['section']}"


def _mib(size: int) -> str:
    return f"{size:,} bytes ({size / 2**20:,.1f} MiB)"


def _compute_lines(description: dict) -> list[str]:
    compute = description["compute"]
    dtype = f"compute     activations in {compute['dtype']} on this machine"
    if "flops_longest_row" in compute:
        flops = compute["flops_longest_row"]
        counted = "not known" if flops is None else f"{flops:.3g} FLOPs"
        return [
            dtype,
            f"  forward and backward of one row of the longest sentences: {counted};",
            "  no number per token: the cost is not a polynomial of the two lengths",
        ]
    source, target = compute["flops_source_token"], compute["flops_target_token"]
    counts = {"source token": source}
    counts["label" if description["labels"] else "target token"] = target
    counted = [
        f"{flops:.3g} FLOPs per {token}" for token, flops in counts.items() if flops
    ]
    share, frozen = compute["predicted_share"], description["config"]["train"]["freeze"]
    return [
        dtype,
        f"  forward and backward: {', '.join(counted)},",
        "  6 for each weight that multiplies the token, including the output projection"
        + (f" of the {share:.0%} that are predicted" if share < 1 else "")
        + (", fewer for frozen parts and below them;" if frozen else ";"),
        "  not counted: attention scores (they grow with the row), biases, norms, "
        "softmax, the optimizer",
    ]


def _rate_lines(rate: dict) -> list[str]:
    top = rate["peak"]["rate"]
    lines = [
        f"learning rate  {rate['formula']}",
        f"  highest at step {rate['peak']['step']:,}: {top:.3e}",
    ]
    for step, value in rate["rates"].items():
        bar = "#" * max(1, round(40 * value / top))
        lines.append(f"  step {int(step):9,}  {value:.3e}  {bar}")
    return lines


def _decoding_lines(decoding: dict | None) -> list[str]:
    if decoding is None:
        return []
    prompts = decoding["prompts"]
    return [
        f"decoding    beam {decoding['beam']}, alpha {decoding['alpha']}; "
        + ("prompts have at most " if prompts else "inputs are cut to ")
        + f"{decoding['longest_input'] - prompts:,} tokens",
        f"  outputs have at most "
        f"{decoding['longest_output'] - decoding['longest_input']} tokens more than "
        + ("their prompt" if prompts else "their input"),
    ]


def _run_lines(description: dict) -> list[str]:
    batches, run = (description[k] for k in ("batches", "run"))
    longest_rows, longest = batches["longest"]
    bounds = f"{longest_rows or 'no room for'} x {longest}"
    if batches["shortest"]:
        rows, shortest_tokens = batches["shortest"]
        bounds = f"from {rows} x {shortest_tokens} to {bounds}, depending on the text"
    else:
        bounds = f"{bounds} for the longest sentences that are not filtered out"
    minutes = f"{run['minutes']:g}" if run["minutes"] else "no limit"
    shapes = "1" if batches["shapes"] == 1 else f"at most {batches['shapes']}"
    return [
        f"batches     at most {batches['tokens_a_side']:,} tokens a side; shapes: "
        f"{shapes}",
        f"  rows x tokens of the longer side: {bounds}",
        f"run         {run['steps']:,} steps, minutes: {minutes}; "
        f"{run['evaluations']:,} evaluations, {run['saves']:,} saves",
        f"  kept: the parameters of the last {run['kept']['last']} and the best "
        f"{run['kept']['best']} checkpoints, and {run['kept']['state']} to continue "
        "from",
        f"  for scoring, the last {run['averaged']} are averaged",
    ]
