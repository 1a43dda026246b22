"""Every field of an experiment, named once.

The frozen dataclasses below are what the program reads. `ml_collections.ConfigDict`s,
which the files in `configs/` and the command line change, are made from them by
`defaults` and checked against them by `from_config_dict`. The default of every field is
the paper's base model (Vaswani et al. 2017, section 5 and Table 3).
"""

import dataclasses
import math
import re
import typing
from collections.abc import Mapping
from typing import Any

import ml_collections

from t2t_jax.terminal.errors import UserError, did_you_mean


def _field(default: Any, choices: tuple = (), low: float | None = None, safe=False):
    """A field with the values it takes; `safe` ones may change between two runs."""
    notes = {"choices": choices, "low": low, "safe": safe}
    return dataclasses.field(default=default, metadata=notes)


@dataclasses.dataclass(frozen=True)
class ModelConfig:
    """The Transformer (section 3)."""

    layers: int = _field(6, low=1)  # N: as many in the encoder as in the decoder
    width: int = _field(512, low=2)  # d_model
    heads: int = _field(8, low=1)  # h
    head_width: int = _field(0, low=0)  # d_k = d_v; 0 means width / heads
    hidden: int = _field(2048, low=1)  # d_ff
    dropout: float = _field(0.1, low=0)  # P_drop
    positions: str = _field("sinusoid", ("sinusoid", "learned"))  # Table 3 (E)
    max_positions: int = _field(1024, low=1)  # rows of the learned table
    norm: str = _field("post", ("post", "pre"))  # LayerNorm after or before
    attention: str = _field("fused")  # a name in model/attention.py
    dtype: str = _field("auto", ("auto", "float32", "bfloat16"))  # of activations
    remat: str = _field("none", ("none", "dots", "full"), safe=True)  # made twice

    @property
    def width_of_head(self) -> int:
        """d_k = d_v."""
        return self.head_width or self.width // self.heads


@dataclasses.dataclass(frozen=True)
class DataConfig:
    """Where pairs of lines come from and how they become batches (section 5.1).

    `train`, `dev` and `test` name places, separated by commas: a prefix of two text
    files (`news` stands for `news.en` and `news.de`, or the same with `.gz`),
    `tfds:NAME:SPLIT` for TensorFlow Datasets, or `grammar:SPLIT` for the built-in
    corpus. In `train`, `PLACE@2` is read twice an epoch and `PLACE@0.5` half.
    """

    source: str = _field("en")
    target: str = _field("de")
    dir: str = _field("", safe=True)  # relative prefixes start here
    train: str = _field("")
    dev: str = _field("")  # BLEU of two dev sets is not to be compared
    test: str = _field("", safe=True)
    vocab_size: int = _field(37_000, low=8)  # joint pieces, special ones included
    tokenizer: str = _field("")  # an existing SentencePiece model, not a new one
    tokenizer_lines: int = _field(2_000_000, low=1)  # at most, sampled evenly
    symbols: str = _field("")  # pieces never split, such as "<bt>,<2de>"
    max_length: int = _field(256, low=2)  # longest training side, in pieces with EOS
    max_ratio: float = _field(4.0, low=0)  # longer / shorter training side; 0: any
    deduplicate: bool = _field(True)  # of equal training pairs the first is kept
    batch_tokens: int = _field(25_000, low=1)  # a side, padding included
    batching: str = _field("packed", ("packed", "bucketed"))
    row_length: int = _field(128, low=8)  # packed: tokens in a row
    buckets: int = _field(10, low=1)  # bucketed: number of shapes
    feeder: str = _field("auto", ("auto", "tfdata", "numpy"), safe=True)


@dataclasses.dataclass(frozen=True)
class TrainConfig:
    """Optimizer, schedule and regularisation (sections 5.3, 5.4), and the run."""

    steps: int = _field(100_000, low=1, safe=True)
    minutes: float = _field(0.0, low=0, safe=True)  # ends training early; 0: never
    patience: int = _field(0, low=0, safe=True)  # evaluations without a better BLEU
    init_from: str = _field("")  # a workdir whose parameters this run starts from
    init_checkpoint: str = _field("average")  # which: as --checkpoint of translate
    warmup: int = _field(4_000, low=1)
    peak_learning_rate: float = _field(0.0, low=0)  # at `warmup`; 0: the paper's
    adam_b1: float = _field(0.9, low=0)
    adam_b2: float = _field(0.98, low=0)
    adam_epsilon: float = _field(1e-9, low=1e-15)
    label_smoothing: float = _field(0.1, low=0)
    ema_decay: float = _field(0.0, low=0)  # moving average of parameters; 0: none
    seed: int = _field(0, low=0)
    accumulate: int = _field(1, low=1, safe=True)  # parts of a batch, one by one
    log_every: int = _field(100, low=1, safe=True)  # steps
    eval_every: int = _field(1_500, low=1, safe=True)  # steps
    save_every: int = _field(1_500, low=1)  # steps; what is averaged depends on it
    dev_lines: int = _field(500, low=0)  # the first, translated at an evaluation
    keep_best: int = _field(1, low=1, safe=True)  # checkpoints, by dev BLEU
    alarm_norm: float = _field(5.0, low=0, safe=True)  # times the usual one; 0: none
    max_skipped: int = _field(10, low=1, safe=True)  # non-finite gradients in a row
    max_rise: float = _field(0.0, low=0, safe=True)  # of the loss, in nats; 0: any
    rollbacks: int = _field(0, low=0, safe=True)  # how often, before the run stops


@dataclasses.dataclass(frozen=True)
class MeshConfig:
    """How many devices each axis of the mesh has; -1 is the rest (`parallel/mesh.py`).

    Any mesh trains the same, up to rounding; a run may go on on another one.
    """

    data: int = _field(-1, low=-1, safe=True)  # each with its rows of the batch
    fsdp: int = _field(1, low=-1, safe=True)  # and with its part of every weight
    tensor: int = _field(1, low=-1, safe=True)  # with its heads and hidden units


@dataclasses.dataclass(frozen=True)
class DecodeConfig:
    """Inference (section 6.1)."""

    beam: int = _field(4, low=1, safe=True)
    alpha: float = _field(0.6, low=0, safe=True)  # of the length penalty
    penalty: str = _field("gnmt", ("gnmt", "length", "none"), safe=True)
    stop: str = _field("best", ("best", "first"), safe=True)  # when nothing is better
    extra_length: int = _field(50, low=1, safe=True)  # longest output = input + this
    max_source: int = _field(1024, low=8, safe=True)  # pieces; longer lines are cut
    average: int = _field(5, low=1)  # checkpoints kept, and averaged for scoring
    checkpoint: str = _field("average", ("average", "best"), safe=True)  # for scoring
    batch_tokens: int = _field(0, low=0, safe=True)  # searched at once; 0: by backend


@dataclasses.dataclass(frozen=True)
class Config:
    """An experiment."""

    model: ModelConfig = ModelConfig()
    data: DataConfig = DataConfig()
    train: TrainConfig = TrainConfig()
    decode: DecodeConfig = DecodeConfig()
    mesh: MeshConfig = MeshConfig()

    def __post_init__(self):
        model = self.model
        if not model.head_width and model.width % model.heads:
            raise UserError(
                f"config.model.width={model.width} does not divide into "
                f"config.model.heads={model.heads}; choose a multiple, or set "
                "config.model.head_width"
            )
        if model.width % 2:
            raise UserError(
                f"config.model.width={model.width} is odd; sinusoidal positions come "
                "in pairs of sine and cosine, so choose an even width"
            )
        for name, rate in (
            ("model.dropout", model.dropout),
            ("train.label_smoothing", self.train.label_smoothing),
            ("train.adam_b1", self.train.adam_b1),
            ("train.adam_b2", self.train.adam_b2),
            ("train.ema_decay", self.train.ema_decay),
        ):
            if rate >= 1:
                raise UserError(f"config.{name}={rate}; want 0 <= {name} < 1")
        room = 32 + self.decode.extra_length  # the shortest shape of decoding
        if model.positions == "learned" and model.max_positions < room:
            raise UserError(
                f"config.model.max_positions={model.max_positions}; want at least "
                f"{room}: 32 positions and config.decode.extra_length"
            )
        sizes = dataclasses.asdict(self.mesh)
        if 0 in sizes.values() or [*sizes.values()].count(-1) > 1:
            told = ", ".join(f"{name}={size}" for name, size in sizes.items())
            raise UserError(
                f"config.mesh has {told}; want numbers of devices, one of them may be "
                "-1, the rest"
            )
        if 0 < self.data.max_ratio < 1:
            raise UserError(
                f"config.data.max_ratio={self.data.max_ratio}; want at least 1 (longer "
                "side / shorter side), or 0 to leave nothing out for its lengths"
            )
        for name, wanted in (
            (f"train.patience={self.train.patience}", self.train.patience > 0),
            ("decode.checkpoint='best'", self.decode.checkpoint == "best"),
        ):
            if wanted and not (self.data.dev and self.train.dev_lines):
                raise UserError(
                    f"config.{name} goes by dev BLEU; name config.data.dev and let "
                    "config.train.dev_lines be above 0"
                )
        for name in ("source", "target"):  # parts of names of files
            if not re.fullmatch(r"\w[\w.-]*", getattr(self.data, name)):
                raise UserError(
                    f"config.data.{name}={getattr(self.data, name)!r}; want the ending "
                    "of a text file, of letters, digits, '.', '-' and '_', such as 'en'"
                )
        if self.data.source == self.data.target:
            raise UserError(
                f"config.data.source and config.data.target are both "
                f"{self.data.source!r}; they are the endings of the two text files, "
                "such as 'en' and 'de'"
            )


SECTIONS = {field.name: field.default for field in dataclasses.fields(Config)}


def field_names() -> list[str]:
    """All fields with their sections: `['model.layers', ...]`."""
    return [
        f"{section}.{field.name}"
        for section, default in SECTIONS.items()
        for field in dataclasses.fields(default)
    ]


def defaults() -> ml_collections.ConfigDict:
    """The paper's base model as a `ConfigDict`, for `configs/*.py` to change."""
    return to_config_dict(Config())


def to_config_dict(config: Config) -> ml_collections.ConfigDict:
    """The same fields as a mutable, type-safe `ConfigDict`."""
    return ml_collections.ConfigDict(dataclasses.asdict(config))


def _checked(name: str, field: dataclasses.Field, value: Any) -> Any:
    """`value` if it is what `field` takes, else a UserError naming the field."""
    wanted = typing.cast(type, field.type)
    if wanted is float and type(value) is int:
        value = float(value)
    if type(value) is not wanted:
        raise UserError(
            f"config.{name}={value!r} is of type {type(value).__name__}; "
            f"want {wanted.__name__}, such as {field.default!r}"
        )
    choices, low = field.metadata["choices"], field.metadata["low"]
    if choices and value not in choices:
        raise UserError(f"config.{name}={value!r}{did_you_mean(value, choices)}")
    if wanted is float and not math.isfinite(value):
        raise UserError(f"config.{name}={value!r}; want a finite number")
    if low is not None and value < low:
        raise UserError(f"config.{name}={value!r} is too small; want at least {low}")
    return value


def from_config_dict(fields: Mapping) -> Config:
    """A checked `Config` from a `ConfigDict` or a plain dict of dicts.

    Raises:
      UserError: an unknown section or field (with the nearest right name), a value of
        the wrong type or out of range.
    """
    sections = {}
    for section, values in dict(fields).items():
        if section not in SECTIONS:
            raise UserError(
                f"config.{section}: no such section" + did_you_mean(section, SECTIONS)
            )
        known = {f.name: f for f in dataclasses.fields(SECTIONS[section])}
        checked = {}
        for name, value in dict(values).items():
            if name not in known:
                full = f"{section}.{name}"
                raise UserError(
                    f"config.{full}: no such field" + did_you_mean(full, field_names())
                )
            checked[name] = _checked(f"{section}.{name}", known[name], value)
        sections[section] = type(SECTIONS[section])(**checked)
    return Config(**sections)


def changed(config: Config, section: str, **values) -> Config:
    """A config with other values in one section.

    Raises:
      UserError: as `from_config_dict`.
    """
    fields = dataclasses.asdict(config)
    fields[section].update(values)
    return from_config_dict(fields)


def differences(old: Config, new: Config) -> dict[str, tuple[Any, Any, bool]]:
    """Changed fields: `{'train.steps': (old value, new value, safe to change)}`."""
    changed = {}
    for section, default in SECTIONS.items():
        before, after = getattr(old, section), getattr(new, section)
        for field in dataclasses.fields(default):
            values = getattr(before, field.name), getattr(after, field.name)
            if values[0] != values[1]:
                safe = field.metadata["safe"]
                changed[f"{section}.{field.name}"] = (*values, safe)
    return changed
