"""Tells what a config is, beside the paper: `python -m t2t_jax.describe --config=FILE`.

Reads no text and makes no parameters. `describe` is the same from Python.
"""

import dataclasses
import json
import os
import sys
from pathlib import Path

import jax
import numpy as np
from absl import flags
from ml_collections import ConfigDict

from t2t_jax import command
from t2t_jax import config as fields
from t2t_jax import workdir as workdirs
from t2t_jax.config import Config
from t2t_jax.data.packing import STRETCH
from t2t_jax.data.shapes import round_up, rows_within
from t2t_jax.data.vocab import Vocabulary
from t2t_jax.errors import UserError
from t2t_jax.model.transformer import Model, build, compute_dtype
from t2t_jax.training.optimizer import schedule

ROWS_MULTIPLE = 8  # of `data/batching.py`, which training does not change
FLOAT32 = 4  # bytes

# Field -> the paper's section, its base model, its big model.
PAPER = {
    "model.layers": ("3.1", 6, 6),
    "model.width": ("3.1, Table 3", 512, 1024),
    "model.heads": ("3.2.2, Table 3", 8, 16),
    "model.head_width": ("3.2.2", 64, 64),
    "model.hidden": ("3.3, Table 3", 2048, 4096),
    "model.dropout": ("5.4, Table 3", 0.1, 0.3),
    "model.positions": ("3.5", "sinusoid", "sinusoid"),
    "model.norm": ("3.1", "post", "post"),
    "model.attention": ("3.2.1", "fused", "fused"),
    "data.batch_tokens": ("5.1", 25_000, 25_000),
    "train.steps": ("5.2", 100_000, 300_000),
    "train.warmup": ("5.3", 4_000, 4_000),
    "train.peak_learning_rate": ("5.3: 0 is equation 3", 0.0, 0.0),
    "train.adam_b1": ("5.3", 0.9, 0.9),
    "train.adam_b2": ("5.3", 0.98, 0.98),
    "train.adam_epsilon": ("5.3", 1e-9, 1e-9),
    "train.label_smoothing": ("5.4", 0.1, 0.1),
    "train.save_every": ("5.2, 6.1: 10 minutes", 1_500, 600),
    "decode.beam": ("6.1", 4, 4),
    "decode.alpha": ("6.1", 0.6, 0.6),
    "decode.penalty": ("6.1", "gnmt", "gnmt"),
    "decode.extra_length": ("6.1", 50, 50),
    "decode.average": ("6.1", 5, 20),
}
LANGUAGES = {  # what sections 5.1 and 6.1 fix for a pair of languages alone
    frozenset({"en", "de"}): {"data.vocab_size": ("5.1", 37_000, 37_000)},
    frozenset({"en", "fr"}): {
        "data.vocab_size": ("5.1", 32_000, 32_000),
        "model.dropout": ("5.4, 6.1", 0.1, 0.1),
    },
}


def describe(config: Config | ConfigDict) -> dict:
    """What is known of a config before there is any text.

    Args:
      config: of `load_config`, or a `Config`.

    Returns:
      Strings, numbers, lists and dicts, as `--json` prints them; sizes in bytes.

    Raises:
      UserError: a field that training would refuse too.
    """
    if not isinstance(config, Config):
        config = fields.from_config_dict(config)
    data = config.data
    if not data.tokenizer:
        return _describe(config, data.vocab_size, "config.data.vocab_size")
    path = Path(data.dir).expanduser() / Path(data.tokenizer).expanduser()
    return _describe(config, len(Vocabulary.load(path)), str(path))


def describe_workdir(workdir: str | Path) -> dict:
    """`describe` of a workdir's config, with the vocabulary that it has.

    Raises:
      UserError: it is not a workdir, or not a whole one.
    """
    vocabulary = workdirs.read_vocabulary(workdir)
    config = workdirs.read_config(workdir)
    return _describe(config, len(vocabulary), vocabulary.name)


def _describe(config: Config, pieces: int, source: str) -> dict:
    model = build(config.model, pieces)
    train, decode = config.train, config.decode
    longest = decode.max_source
    if config.model.positions == "learned":
        room = config.model.max_positions - decode.extra_length
        longest = min(
            longest, 1 << max(3, room.bit_length() - 1)
        )  # as translating does
    return {
        "config": dataclasses.asdict(config),
        "paper": beside_paper(config),
        "vocabulary": {"pieces": pieces, "from": source},
        "parameters": _parameters(model),
        "bytes": _bytes(config, model.count()),
        "compute": {"dtype": compute_dtype(config.model).name, **_flops(model)},
        "learning_rate": _learning_rate(config),
        "batches": _batches(config),
        "run": {
            "steps": train.steps,
            "minutes": train.minutes,
            "evaluations": -(-train.steps // train.eval_every),  # and one at the end
            "saves": -(-train.steps // train.save_every),
            "kept": {"last": decode.average, "best": train.keep_best, "state": 2},
            "averaged": min(decode.average, max(1, train.steps // train.save_every)),
        },
        "decoding": {
            "beam": decode.beam,
            "alpha": decode.alpha,
            "longest_input": longest,
            "longest_output": longest + decode.extra_length,
        },
    }


def beside_paper(config: Config) -> dict[str, dict]:
    """Of each field that the paper fixes: section, its values, and whose this one is.

    `same` lists the models, `base` and `big`, that have this value.
    """
    pair = frozenset({config.data.source, config.data.target})
    told = {}
    for name, (section, base, big) in (PAPER | LANGUAGES.get(pair, {})).items():
        part, field = name.split(".")
        value = getattr(getattr(config, part), field)
        if name == "model.head_width":  # 0 stands for the paper's way to choose it
            value = value or config.model.width // config.model.heads
        values = {"base": base, "big": big}
        same = [which for which in values if values[which] == value]
        told[name] = {"section": section, "value": value, **values, "same": same}
    return told


def _parameters(model: Model) -> dict:
    """Counts, and every weight once; `*` stands for the number of a layer."""
    parts = {"embedding": 0, "encoder": 0, "decoder": 0, "norms": 0}
    weights: dict[str, dict] = {}
    for name, shape, axes in _weights(model):
        part = "norms" if axes == ("norm",) else name.split(".")[0]
        parts[part] += int(np.prod(shape))
        key = ".".join("*" if word.isdecimal() else word for word in name.split("."))
        weight = {"shape": list(shape), "axes": list(axes), "layers": 0}
        first = weights.setdefault(key, weight)
        if (first["shape"], first["axes"]) != (weight["shape"], weight["axes"]):
            first = weights.setdefault(name, weight)
        first["layers"] += 1
    return {"total": model.count(), "parts": parts, "weights": weights}


def _weights(model: Model):
    """Yields (name, shape, axes) such as ('encoder.0.ff.inner', (512, 2048), ...)."""
    axes = jax.tree.leaves(model.axes, is_leaf=lambda x: isinstance(x, tuple))
    leaves, _ = jax.tree.flatten_with_path(model.shapes)
    for (path, leaf), names in zip(leaves, axes, strict=True):
        yield ".".join(str(part.key) for part in path), leaf.shape, names


def _bytes(config: Config, count: int) -> dict[str, int]:
    """Sizes of what a checkpoint holds, without its few counters and file headers."""
    copies = 3 + bool(config.train.ema_decay)  # parameters, Adam's two moments
    return {"parameters": FLOAT32 * count, "state": FLOAT32 * count * copies}


def _flops(model: Model) -> dict:
    """Operations that matrices of weights take in a training step, a token.

    Forward is a multiplication and an addition for each weight, backward twice that.
    The keys and values of attention to the source are made of source tokens; the
    embedding is looked up without any, and multiplies the decoder's output.
    """
    source = target = 0
    for name, shape, _ in _weights(model):
        if len(shape) < 2 or name == "embedding.positions":
            continue
        if name.startswith("encoder.") or name.endswith(("cross.key", "cross.value")):
            source += int(np.prod(shape))
        else:
            target += int(np.prod(shape))
    return {"flops_source_token": 6 * source, "flops_target_token": 6 * target}


def _learning_rate(config: Config) -> dict:
    """The rate at some steps (from 1), as the schedule computes it in float32."""
    train = config.train
    warmup = train.warmup
    points = {1, warmup // 4, warmup // 2, warmup, 2 * warmup, 4 * warmup, train.steps}
    steps = sorted(step for step in points if 1 <= step <= train.steps)
    with jax.default_device(jax.local_devices(backend="cpu")[0]):
        rates = np.asarray(schedule(config)(np.array(steps) - 1), np.float32)
    scale = f"{config.model.width}^-0.5"
    if train.peak_learning_rate:
        scale = f"{train.peak_learning_rate:g} * {warmup}^0.5"
    # The shortest decimals that are the same float32.
    table = {
        str(step): float(str(rate)) for step, rate in zip(steps, rates, strict=True)
    }
    top = min(warmup, train.steps)
    return {
        "formula": f"{scale} * min(step^-0.5, step * {warmup}^-1.5)",
        "peak": {"step": top, "rate": table[str(top)]},
        "rates": table,
    }


def _batches(config: Config) -> dict:
    """Bounds of the shapes of batches: the text decides where between them they are.

    `shortest` and `longest`: [rows, tokens] of the side that has more tokens. Rows are
    None where a batch has no room for any, which training would tell of; `shortest` is
    None where rows are as short as the sentences.
    """
    data = config.data
    shortest, shapes, longest = None, data.buckets, round_up(data.max_length, 8)
    if data.batching == "packed":
        least = round_up(data.row_length, 8)
        rows = rows_within(data.batch_tokens, least, least, ROWS_MULTIPLE)
        shortest, shapes = [rows, least], 1
        longest = int(max(least, longest) * STRETCH) // 8 * 8
    most = data.batch_tokens // longest // ROWS_MULTIPLE * ROWS_MULTIPLE
    return {
        "tokens_a_side": data.batch_tokens,
        "shapes": shapes,
        "shortest": shortest,
        "longest": [most or None, longest],
    }


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


def define_flags():
    command.define_config_flag()
    flags.DEFINE_string("workdir", None, "A workdir of t2t_jax.main, not a config.")
    flags.DEFINE_boolean("json", False, "Prints a JSON object, for programs.")


def _sources() -> tuple[bool, list[str]]:
    """Whether the command line names a workdir, and its flags of a config."""
    given = [a for a in sys.argv[1:] if a.startswith("-")]
    names = [argument.lstrip("-").partition("=")[0] for argument in given]
    of_config = [n for n in names if n.partition(".")[0] in ("config", "noconfig")]
    return "workdir" in names, of_config


def main(_):
    given = flags.FLAGS
    workdir, of_config = _sources()
    if workdir and of_config:
        raise UserError(
            f"both --workdir and --{of_config[0]} are given, but a workdir has its own "
            "config; leave out one of them"
        )
    if given.workdir == "":
        raise UserError("--workdir is empty; name a folder, or leave the flag out")
    told = describe_workdir(given.workdir) if workdir else describe(given.config)
    print(json.dumps(told, indent=1, ensure_ascii=False) if given.json else page(told))


if __name__ == "__main__":
    # A run may have the GPU at the same time, and this takes next to nothing of it.
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    workdir_alone = _sources()[0] and not _sources()[1]
    default = None if workdir_alone else "configs/tiny.py"
    command.run(main, define_flags, config=default)
