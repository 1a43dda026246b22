"""Describes a config next to the paper: sizes, learning rates, FLOPs.

Reads no text and allocates no parameters.
"""

import collections
import dataclasses
import math
import operator
from pathlib import Path

import jax
import numpy as np
from flax.traverse_util import flatten_dict
from ml_collections import ConfigDict

from t2t_jax import config as fields
from t2t_jax.config import Config
from t2t_jax.costs import step_costs
from t2t_jax.data.shapes import ROWS_MULTIPLE, STRETCH, Shape, round_up, rows_within
from t2t_jax.data.tokenizers.training import SEPARATE, existing_tokenizer
from t2t_jax.decoding.batches import longest_output
from t2t_jax.decoding.inputs import longest_source
from t2t_jax.model.layers import compute_dtype
from t2t_jax.model.model import Model, build, check_batching
from t2t_jax.parallel.machine import tree_bytes
from t2t_jax.tasks.table import task_of
from t2t_jax.text.languages import identify
from t2t_jax.training.optimizers import optimizer, split_frozen
from t2t_jax.training.schedules import formula, schedule
from t2t_jax.workdir import Workdir

FLOAT32 = 4  # bytes
# The sizes in a description; the second one only if the vocabulary is not joint.
VOCABULARIES = "vocabulary", "source_vocabulary"

# Field -> section of the paper, value of its base model, value of its big model.
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
    "train.schedule": ("5.3", "paper", "paper"),
    "train.warmup": ("5.3", 4_000, 4_000),
    "train.peak_learning_rate": ("5.3: 0 is equation 3", 0.0, 0.0),
    "train.optimizer": ("5.3", "adam", "adam"),
    "train.adam_b1": ("5.3", 0.9, 0.9),
    "train.adam_b2": ("5.3", 0.98, 0.98),
    "train.adam_epsilon": ("5.3", 1e-9, 1e-9),
    "train.loss": ("5.4", "cross_entropy", "cross_entropy"),
    "train.label_smoothing": ("5.4", 0.1, 0.1),
    # Base: 8 minutes, as 1,500 would not divide the steps.
    "train.save_every": ("5.2, 6.1: 10 minutes", 1_250, 600),
    "decode.beam": ("6.1", 4, 4),
    "decode.alpha": ("6.1", 0.6, 0.6),
    "decode.penalty": ("6.1", "gnmt", "gnmt"),
    "decode.extra_length": ("6.1", 50, 50),
    "decode.average": ("6.1", 5, 20),
}
# Fields whose default is the paper's choice. They are listed if a config has another.
USUAL = {
    **{
        f"model.{side}_{size}": "3.1"
        for side in ("encoder", "decoder")
        for size in ("layers", "heads", "hidden")
    },
    "model.kind": "3",
    "model.value_width": "3.2.2",
    "model.attention_bias": "3.2.2",
    "model.feed_forward": "3.3",
    "model.norm_kind": "3.1",
    "model.residual": "3.1",
    "model.tied": "3.4",
    "model.embedding_scale": "3.4",
    "model.output_bias": "3.4",
    "model.attention_dropout": "5.4",
    "model.activation_dropout": "5.4",
    "data.joint_vocabulary": "5.1",
    "train.clip_norm": "5.3",
    "train.weight_decay": "5.3",
}
# Values that sections 5.1 and 6.1 give for one pair of languages only.
LANGUAGES = {
    frozenset({"en", "de"}): {"data.vocab_size": ("5.1", 37_000, 37_000)},
    frozenset({"en", "fr"}): {
        "data.vocab_size": ("5.1", 32_000, 32_000),
        "model.dropout": ("5.4, 6.1", 0.1, 0.1),
    },
}
# Values of section 6.3; the others are those of the base model for translation.
PARSING = {
    "model.layers": ("6.3", 4, 4),
    "model.width": ("6.3", 1024, 1024),
    "data.vocab_size": ("6.3", 16_000, 16_000),
    "decode.beam": ("6.3", 21, 21),
    "decode.alpha": ("6.3", 0.3, 0.3),
    "decode.extra_length": ("6.3", 300, 300),
}
# Fields of which it says only that they were chosen, or nothing for its width.
CHOSEN = "model.dropout", "model.head_width", "train.warmup", "train.schedule"


def describe(config: Config | ConfigDict) -> dict:
    """Describes a config without reading any text.

    Args:
      config: of `load_config`, or a `Config`.

    Returns:
      Strings, numbers, lists and dicts, as `--json` prints them; sizes in bytes.

    Raises:
      UserError: an invalid field, as training would raise it.
    """
    if not isinstance(config, Config):
        config = fields.from_config_dict(config)
    data, task = config.data, task_of(config)
    vocabularies = []
    for part, size in zip(SEPARATE, task.vocab_sizes, strict=False):
        if task.predicts == "label" and not vocabularies:
            origin = "config.task.options.labels, or the text"
        elif tokenizer := existing_tokenizer(data, part.tokenizer):
            size, origin = len(tokenizer), tokenizer.name
        else:
            origin = f"config.data.{part.size}"
        vocabularies.append({"pieces": size, "from": origin})
    return _describe(config, vocabularies)


def describe_workdir(workdir: str | Path) -> dict:
    """Describes a workdir's config, with its actual vocabulary; see `describe`.

    Raises:
      UserError: not a workdir, or an incomplete one.
    """
    workdir = Workdir.open(workdir)
    vocabulary, config = workdir.vocabulary(), workdir.config()
    sides = [{"pieces": len(side), "from": side.name} for side in vocabulary.sides]
    return _describe(config, sides)


def _describe(config: Config, vocabularies: list[dict]) -> dict:
    """Describes a config; `vocabularies` has size and origin of `Vocabulary.sides`."""
    model = build(config.model, *(side["pieces"] for side in vocabularies))
    check_batching(model, config)
    train, decode = config.train, config.decode
    return {
        "config": dataclasses.asdict(config),
        "options": _options(config),
        "paper": beside_paper(config),
        "unused": _unused(config),
        **dict(zip(VOCABULARIES, vocabularies, strict=False)),
        "labels": model.predicts == "label",  # are what its vocabulary holds
        "parameters": _parameters(model),
        "bytes": checkpoint_bytes(config, model),
        "compute": {"dtype": compute_dtype(config.model).name, **_flops(model, config)},
        "learning_rate": _learning_rate(config),
        "batches": _batches(config),
        "run": {
            "steps": train.steps,
            "minutes": train.minutes,
            "evaluations": -(-train.steps // train.eval_every),  # and one at the end
            "saves": -(-train.steps // train.save_every),
            # The `state` of two checkpoints stays, in case the newest is damaged. What
            # was saved between two multiples of `save_every` is kept besides.
            "kept": {"last": decode.average, "best": train.keep_best, "state": 2},
            "averaged": min(decode.average, max(1, train.steps // train.save_every)),
        },
        "decoding": _decoding(config, model),
    }


def _options(config: Config) -> dict[str, dict]:
    """By section, the options of the chosen entries, also those at their defaults."""
    sections = {name: getattr(config, name) for name in fields.SECTIONS}
    return {
        name: {
            option.name: getattr(entry, option.name)
            for chooser in section.choosers()
            if (entry := section.own_options(section.variant(chooser.name)))
            for option in dataclasses.fields(entry)
        }
        for name, section in sections.items()
        if hasattr(section, "options")
    }


def beside_paper(config: Config) -> dict[str, dict]:
    """Compares each field that the paper gives a value for and the model reads.

    The paper translates and parses. Of other tasks, it says nothing about the fields of
    its sections 5 and 6.

    Returns:
      By field: `section`, `value` (the config's), `base` and `big` (the paper's), and
      `same`, the list of those two models that have the config's value.
    """
    kind = config.task.kind
    pair = frozenset(identify(c).code for c in (config.data.source, config.data.target))
    task_facts = PARSING if kind == "parsing" else LANGUAGES.get(pair, {})
    defaults = {name: fields.default_of(name) for name in USUAL}
    usual = {name: (USUAL[name], value, value) for name, value in defaults.items()}
    compared, unused = {}, _unused(config)
    facts = PAPER | usual | task_facts
    if kind == "parsing":  # with what else the base model has
        facts = {
            name: (section, base, base)
            for name, (section, base, _) in facts.items()
            if name not in CHOSEN
        }
    elif kind != "translation":
        facts = {name: fact for name, fact in facts.items() if fact[0][0] == "3"}
    for name, (section, base, big) in facts.items():
        value = operator.attrgetter(name)(config)
        if name == "model.head_width":  # 0 means width / heads, as in the paper
            value = config.model.width_of_head
        values = {"base": base, "big": big}
        matching = [model for model in values if values[model] == value]
        if name not in unused and not (name in USUAL and matching):
            fact = {"section": section, "value": value, **values, "same": matching}
            compared[name] = fact
    return compared


def _unused(config: Config) -> list[str]:
    """The fields that the model does not read."""
    return sorted(f"model.{name}" for name in config.model.variant("kind").unused)


def _parameters(model: Model) -> dict:
    """Counts parameters, and lists every weight once, with `*` for a layer's number."""
    # These come first and in this order; a new module of the model adds its own part.
    parts = collections.Counter(embedding=0, encoder=0, decoder=0, norms=0)
    weights: dict[str, dict] = {}
    axes_of = flatten_dict(model.axes)
    for path, x in sorted(flatten_dict(model.shapes).items()):
        axes, words = axes_of[path], [*map(str, path)]
        part = "norms" if axes == ("norm",) else words[0]
        parts[part] += int(np.prod(x.shape))
        name = ".".join(words)
        key = ".".join("*" if word.isdecimal() else word for word in words)
        weight = {"shape": list(x.shape), "axes": list(axes), "layers": 0}
        listed = weights.setdefault(key, weight)
        # A layer that differs from the first one is listed under its own number.
        if (listed["shape"], listed["axes"]) != (weight["shape"], weight["axes"]):
            listed = weights.setdefault(name, weight)
        listed["layers"] += 1
    return {"total": model.count(), "parts": dict(parts), "weights": weights}


def checkpoint_bytes(config: Config, model: Model) -> dict[str, int]:
    """Sizes of the arrays in a checkpoint, without its counters and file headers."""
    if adapter := config.train.variant("adapter"):
        model = adapter.model(model, config)
    trained, _ = split_frozen(model.shapes, config.train.freeze)
    moments = jax.tree.leaves(jax.eval_shape(optimizer(config).init, trained))
    parameters = FLOAT32 * model.count()
    state = parameters * (1 + bool(config.train.ema_decay))
    state += tree_bytes([x for x in moments if x.shape])
    return {"parameters": parameters, "state": state}


def _flops(model: Model, config: Config) -> dict:
    """FLOPs in a training step: per token, without those that grow with the row.

    A row's FLOPs are a polynomial of its lengths, in which attention's pairs of tokens
    are the products and squares. These are the factors of the two lengths: 6 for each
    weight that multiplies the token. Cross-attention's keys and values are computed
    from source tokens, the logits from target tokens.

    If there is no such polynomial: the FLOPs of the longest row, None if they cannot be
    counted.
    """
    row = step_costs.row_flops(model, config)
    if row is not None:
        return {
            "flops_source_token": round(row[1, 0]),
            "flops_target_token": round(row[0, 1]),
            "predicted_share": task_of(config).predicted_share,
        }
    _, length = _batches(config)["longest"]
    flops = step_costs.model_flops(model, config, Shape(1, length, length))
    return {"flops_longest_row": None if math.isnan(flops) else round(flops)}


def _decoding(config: Config, model: Model) -> dict | None:
    """The search for outputs; None if the model generates none."""
    longest, _ = longest_source(config, model)
    if not model.generates:
        return None
    return {
        "beam": config.decode.beam,
        "alpha": config.decode.alpha,
        "longest_input": longest,
        "longest_output": longest_output(longest, config.decode),
        "prompts": not model.has_source,
    }


def _learning_rate(config: Config) -> dict:
    """The learning rate at some steps (from 1), as the schedule computes it."""
    warmup, last_step = config.train.warmup, config.train.steps
    points = {1, warmup // 4, warmup // 2, warmup, 2 * warmup, 4 * warmup, last_step}
    steps = sorted(step for step in points if 1 <= step <= last_step)
    # On the CPU: another run may be using the accelerator.
    with jax.default_device(jax.local_devices(backend="cpu")[0]):
        rates = np.asarray(schedule(config)(np.array(steps) - 1), np.float32)
    # str() gives the shortest decimal that is the same float32: 0.0007, and not the
    # float64 0.0006999999...
    table = dict(zip(map(str, steps), (float(str(r)) for r in rates), strict=True))
    top = min(warmup, last_step)
    return {
        "formula": formula(config),
        "peak": {"step": top, "rate": table[str(top)]},
        "rates": table,
    }


def _batches(config: Config) -> dict:
    """Bounds on the shapes of batches; the actual shapes depend on the text.

    Returns:
      `tokens_a_side`, the budget; `shapes`, their number at most; `shortest` and
      `longest`: [rows, tokens] of the side that has more tokens. Rows are None if the
      budget has no room for one, which training refuses. `shortest` is None if rows are
      as short as the sentences.
    """
    data = config.data
    shortest, shapes, longest = None, data.buckets, round_up(data.max_length, 8)
    if data.batching == "packed":
        shortest_row = round_up(data.row_length, 8)
        rows = rows_within(data.batch_tokens, shortest_row, shortest_row, ROWS_MULTIPLE)
        shortest, shapes = [rows, shortest_row], 1
        # Packing may lengthen the rows of one side by this factor.
        longest = int(max(shortest_row, longest) * STRETCH) // 8 * 8
    longest_rows = data.batch_tokens // longest // ROWS_MULTIPLE * ROWS_MULTIPLE
    return {
        "tokens_a_side": data.batch_tokens,
        "shapes": shapes,
        "shortest": shortest,
        "longest": [longest_rows or None, longest],
    }
