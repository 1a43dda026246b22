"""A `describe` as text for people."""


def page(told: dict) -> str:
    """A `describe` for a person."""
    lines = []
    for section, values in told["config"].items():
        lines.append(section)
        for field, value in values.items():
            fact = told["paper"].get(f"{section}.{field}")
            if fact and fact["value"] != value:
                value = f"{value} ({fact['value']})"
            lines.append(f"  {field:20} {value!s:20} {_remark(fact)}".rstrip())
    parameters, size = told["parameters"], told["bytes"]
    vocabulary = told["vocabulary"]
    lines += [
        f"parameters  {parameters['total']:,}, with a vocabulary of "
        f"{vocabulary['pieces']:,} pieces ({vocabulary['from']})"
    ]
    lines += [f"  {part:20} {n:13,}" for part, n in parameters["parts"].items()]
    for name, weight in parameters["weights"].items():
        times = f" x {weight['layers']}" if "*" in name else ""
        axes = ", ".join(weight["axes"])
        lines.append(f"  {name + times:38} {weight['shape']!s:18} {axes}")
    lines += [
        f"float32     parameters {_mib(size['parameters'])}; with the optimizer's "
        f"state, as a checkpoint to continue from, {_mib(size['state'])}",
        *_compute_lines(told["compute"]),
        *_rate_lines(told["learning_rate"]),
        *_run_lines(told),
    ]
    return "\n".join(lines)


def _remark(fact: dict | None) -> str:
    if fact is None:
        return ""
    base, big, same = fact["base"], fact["big"], fact["same"]
    if len(same) == 2:
        told = "the paper's"
    elif same:
        (other,) = {"base", "big"} - set(same)
        told = f"the paper's {same[0]}; {other}: {fact[other]}"
    else:
        told = f"paper: {base}" + (f" (base), {big} (big)" if big != base else "")
    return f"{told}, section {fact['section']}"


def _mib(size: int) -> str:
    return f"{size:,} bytes ({size / 2**20:,.1f} MiB)"


def _compute_lines(compute: dict) -> list[str]:
    source, target = compute["flops_source_token"], compute["flops_target_token"]
    return [
        f"compute     activations in {compute['dtype']} on this machine",
        f"  forward and backward: {source:.3g} FLOPs a source token, {target:.3g} a "
        "target token,",
        "  6 for each weight of a matrix that the token meets, the output projection "
        "included;",
        "  not counted: attention scores (they grow with the row), biases, norms, "
        "softmax, Adam",
    ]


def _rate_lines(rate: dict) -> list[str]:
    rates = rate["rates"]
    peak = rate["peak"]
    top = peak["rate"]
    return [
        f"learning rate  {rate['formula']}",
        f"  highest at step {peak['step']:,}: {top:.3e}",
        *(
            f"  step {int(step):9,}  {value:.3e}  "
            + "#" * max(1, round(40 * value / top))
            for step, value in rates.items()
        ),
    ]


def _run_lines(told: dict) -> list[str]:
    batches, run, decoding = told["batches"], told["run"], told["decoding"]
    most, longest = batches["longest"]
    bounds = f"{most or 'no room for'} x {longest}"
    if batches["shortest"]:
        rows, least = batches["shortest"]
        bounds = f"from {rows} x {least} to {bounds}, by the text"
    else:
        bounds = f"{bounds} for the longest text that is not left out"
    minutes = f"{run['minutes']:g}" if run["minutes"] else "no limit"
    return [
        f"batches     {batches['tokens_a_side']:,} tokens a side at most; shapes: "
        f"{'1' if batches['shapes'] == 1 else 'at most ' + str(batches['shapes'])}",
        f"  rows x tokens of the longer side: {bounds}",
        f"run         {run['steps']:,} steps, minutes: {minutes}; "
        f"{run['evaluations']:,} evaluations, {run['saves']:,} saves",
        f"  kept: the parameters of the last {run['kept']['last']} and of the best "
        f"{run['kept']['best']}, {run['kept']['state']} to continue from",
        f"  for scoring, the last {run['averaged']} are averaged",
        f"decoding    beam {decoding['beam']}, alpha {decoding['alpha']}; inputs are "
        f"cut to {decoding['longest_input']:,} pieces",
        f"  outputs end at {decoding['longest_output'] - decoding['longest_input']} "
        "more than the input",
    ]
