"""The configs that the laws run over, derived from the tables of `ModelConfig`."""

import dataclasses
import itertools
import random
from collections.abc import Callable, Iterator

from t2t_jax import config as fields
from t2t_jax.config import ModelConfig
from t2t_jax.model.model import MODELS
from t2t_jax.sections import known_options, table_of

# So small that rows of LENGTH tokens have several blocks, buckets and clipped ends.
SMALL_OPTIONS = {
    "neighbourhood": 4,
    "neural_gpu_rows": 4,  # with 2, XLA divides the memory over devices otherwise
    "chunk": 8,
    "relative_clip": 3,
    "rotary_base": 100.0,
    "t5_buckets": 8,
    "t5_distance": 16,
}
# Choices that are no table of their own, each a difference from the default.
OTHERS = {
    "norm=pre": {"norm": "pre"},
    "norm=post_final, norm_epsilon": {"norm": "post_final", "norm_epsilon": 0.1},
    "tied=target, learned with an offset": {
        **{"tied": "target", "positions": "learned"},
        "options": {"position_offset": 2},
    },
    "tied=none, output_bias": {"tied": "none", "output_bias": True},
    "attention_bias, no scale, residual=False": {
        **{"attention_bias": True, "embedding_scale": False, "residual": False}
    },
    "d_k=3, d_v=5": {"head_width": 3, "value_width": 5},
    "other sizes a side": {
        **{"encoder_layers": 2, "decoder_layers": 3, "positions": "relative"},
        **{"decoder_heads": 4, "encoder_hidden": 8},
    },
    "sinusoid as tensor2tensor": {
        "options": {"sinusoid_layout": "half", "sinusoid_spacing": "tensor2tensor"}
    },
    "relative keys only": {
        "positions": "relative",
        "options": {"relative_values": False},
    },
    "lstm of 3 layers": {"kind": "lstm", "layers": 3, "tied": "none"},
    "lstm as Luong's": {
        **{"kind": "lstm", "layers": 2},
        "options": {"lstm_form": "luong"},
    },
    "conv of 2 layers, wide kernel": {
        **{"kind": "conv", "layers": 2},
        "options": {"conv_kernel": 4},
    },
    "bytenet, 3 blocks": {
        **{"kind": "bytenet", "layers": 3},
        "options": {"bytenet_set": 2, "bytenet_extra": 1},
    },
}
# Models made of the Transformer's stacks; its cases try the layers' choices in pairs.
HALVES = ("encoder_only", "decoder_only", "classifier")
OF_HALVES = {
    "encoder_only, relative, pre, tied=none": {
        **{"kind": "encoder_only", "layers": 2, "positions": "relative"},
        **{"norm": "pre", "tied": "none", "encoder_heads": 4},
    },
    "decoder_only, rotary, swiglu, tied=none": {
        **{"kind": "decoder_only", "layers": 2, "positions": "rotary"},
        **{"feed_forward": "swiglu", "tied": "none", "decoder_hidden": 8},
    },
    "decoder_only, t5, rms, pre, chunked": {
        **{"kind": "decoder_only", "positions": "t5", "norm_kind": "rms"},
        **{"norm": "pre", "attention": "chunked", "output_bias": True},
    },
    "classifier, max, learned": {
        **{"kind": "classifier", "positions": "learned"},
        "options": {"pooling": "max"},
    },
    "classifier, first, alibi, pre": {
        **{"kind": "classifier", "layers": 2, "positions": "alibi", "norm": "pre"},
        "options": {"pooling": "first"},
    },
}


# Tables whose entries do not meet: neither a feed-forward layer nor an embedding sees
# another token, and all models share the embeddings.
APART = [
    *({"positions", "feed_forward"}, {"attention", "feed_forward"}),
    *({"positions", "tied"}, {"attention", "tied"}, {"kind", "tied"}),
]


def unused(kind: str) -> frozenset[str]:
    """The fields that a model does not read."""
    return MODELS[kind].unused


TABLES = [f for f in dataclasses.fields(ModelConfig) if f.metadata["table"]]
# Imported before the modules of --ideas (conftest.py), so that theirs are known.
SHIPPED = {f.name: {*table_of(f)} for f in TABLES}


def entries(case: dict) -> set[str]:
    """The tables of which a case without other choices has an entry."""
    return {*SHIPPED} & {*case} if len(case) == 1 else set()


def own(case: dict) -> bool:
    """True if a case has an entry that is not the package's own."""
    return any(case[name] not in SHIPPED[name] for name in {*SHIPPED} & {*case})


def config_of(**changes) -> ModelConfig:
    """A small model with options small enough for small rows."""
    own_options = changes.pop("options", {})
    small = {
        **{"layers": 1, "max_positions": 64},
        **{"width": 16, "heads": 2, "hidden": 24},
        **changes,
    }
    # A config refuses the options of variants that it does not choose.
    available = known_options(ModelConfig())
    choices = {f"{f.name}={small.get(f.name, f.default)!r}" for f in TABLES}
    options = {
        name: value
        for name, value in {**SMALL_OPTIONS, **own_options}.items()
        if choices & {*available[name][1]}
    }
    return fields.from_config_dict({"model": {**small, "options": options}}).model


def alone() -> dict[str, dict]:
    """The defaults, and each entry of each table against them."""
    cases = {"defaults": {}}
    for field in TABLES:
        for name in table_of(field):
            if name != field.default:
                cases[f"{field.name}={name}"] = {field.name: name}
    return cases | OTHERS


def pairs() -> dict[str, dict]:
    """Configs in which any two entries of two tables meet that can (greedy covering).

    Besides some of the models that are halves of the Transformer.
    """
    tables = {f.name: [*table_of(f)] for f in TABLES} | {
        "norm": ["post", "pre", "post_final"],
        "tied": ["all", "target", "none"],
    }
    tables["kind"] = [kind for kind in tables["kind"] if kind not in HALVES]
    # On a CPU, `fused` is `dense`.
    tables["attention"] = [name for name in tables["attention"] if name != "dense"]
    tables = {name: values for name, values in tables.items() if len(values) > 1}
    names = [*tables]
    missing = {
        ((factor, a), (factor2, b))
        for factor, factor2 in itertools.combinations(names, 2)
        for a in tables[factor]
        for b in tables[factor2]
        if {factor, factor2} not in APART and _meet(tables, {factor: a, factor2: b})
    }
    rows = covering(tables, missing, lambda case: _meet(tables, case))
    # A model with defaults only is one of `alone`.
    alone = {name: values[0] for name, values in tables.items() if name != "kind"}
    rows = [case for case in rows if not alone.items() <= case.items()]
    return {_named(case): case for case in rows} | OF_HALVES


def covering(
    tables: dict[str, list[str]],
    missing: set,
    meet: Callable[[dict], bool],
    chance: random.Random | None = None,
) -> Iterator[dict[str, str]]:
    """Yields rows of values in which pairs of them meet (greedy covering).

    Args:
      tables: the values of each factor.
      missing: the pairs ((factor, value), (factor, value)), in the order of `tables`.
      meet: False of a row, or of a part of one, whose values do not go together.
      chance: draws several rows at a time, of which the best is taken: fewer in all.
    """

    def mixed(values):
        return chance.sample([*values], len(values)) if chance else values

    while missing:
        rows = []
        for _ in range(8 if chance else 1):
            row = dict(chance.choice(sorted(missing)) if chance else min(missing))
            for name in mixed(tables):
                if name not in row:
                    # The value that meets most others for the first time.
                    row[name] = max(
                        [v for v in mixed(tables[name]) if meet(row | {name: v})],
                        key=lambda v, name=name, row=row: len(
                            missing & _met(row, tables, (name, v))
                        ),
                    )
            rows.append(row)
        best = max(rows, key=lambda row: len(missing & _met(row, tables)))
        missing = missing - _met(best, tables)
        yield best


def _meet(tables: dict[str, list[str]], case: dict[str, str]) -> bool:
    """False if the model of a case does not read one of the other choices.

    A case without a model is of the Transformer, once all its choices are made.
    """
    ignored = unused(case.get("kind", tables.get("kind", ["transformer"])[0]))
    return not any(
        name in ignored and value != tables[name][0] for name, value in case.items()
    )


def _met(case: dict[str, str], tables: dict, new: tuple | None = None) -> set:
    """The pairs of a row, or those of a new value."""
    present = [(name, case[name]) for name in tables if name in case]
    if new is None:
        return {*itertools.combinations(present, 2)}
    order = [*tables]
    return {
        (pair, new) if order.index(pair[0]) < order.index(new[0]) else (new, pair)
        for pair in present
    }


def _named(case: dict[str, str]) -> str:
    return ", ".join(f"{name}={value}" for name, value in case.items())


def halves() -> dict[str, dict]:
    """The halves of the Transformer with any positions and any attention."""
    tables = {f.name: [*table_of(f)] for f in TABLES}
    names = ("kind", "positions", "attention")
    choices = HALVES, tables["positions"], tables["attention"]
    combinations = (
        dict(zip(names, x, strict=True)) for x in itertools.product(*choices)
    )
    return {_named(case): case for case in combinations}
