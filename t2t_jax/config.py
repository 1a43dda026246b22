"""All fields of an experiment: their defaults, types, choices and meaning.

The program reads the frozen dataclasses below. The files in `configs/` and the command
line change an `ml_collections.ConfigDict`, which `defaults` creates from these classes
and `from_config_dict` checks against them. The defaults are the paper's base model
(Vaswani et al. 2017, section 5 and Table 3).

Set a field on the command line as `--config.SECTION.FIELD=VALUE`, such as
`--config.model.layers=4`.
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
    """A dataclass field with its constraints.

    Args:
      default: The value in the paper's base model; its type is the field's type.
      choices: The values allowed; empty allows all.
      low: The least value allowed.
      safe: True if the field may change when a stopped run is continued.
    """
    notes = {"choices": choices, "low": low, "safe": safe}
    return dataclasses.field(default=default, metadata=notes)


@dataclasses.dataclass(frozen=True)
class ModelConfig:
    """The Transformer (section 3)."""

    # N: the number of encoder layers, and also of decoder layers.
    layers: int = _field(6, low=1)
    # d_model: the width of embeddings and layer outputs; even.
    width: int = _field(512, low=2)
    # h: attention heads.
    heads: int = _field(8, low=1)
    # d_k = d_v: the width of a head; 0 means width / heads.
    head_width: int = _field(0, low=0)
    # d_ff: hidden units of the feed-forward layers.
    hidden: int = _field(2048, low=1)
    # P_drop: the dropout rate, 0 <= rate < 1.
    dropout: float = _field(0.1, low=0)
    # Position encodings: sinusoids (section 3.5) or a learned table (Table 3, row E).
    positions: str = _field("sinusoid", ("sinusoid", "learned"))
    # Rows of the learned table, so the longest row of tokens; unused by sinusoids.
    max_positions: int = _field(1024, low=1)
    # LayerNorm after each residual sum ("post", the paper) or before each sub-layer.
    norm: str = _field("post", ("post", "pre"))
    # How attention is computed: a name in ATTENTION of model/attention.py.
    attention: str = _field("fused")
    # The type of activations; "auto" is bfloat16 where the hardware supports it
    # natively, else float32. Parameters are always float32.
    dtype: str = _field("auto", ("auto", "float32", "bfloat16"))
    # Recompute activations in the backward pass to save memory: "dots" keeps only
    # products with weights, "full" keeps only the input of each layer.
    remat: str = _field("none", ("none", "dots", "full"), safe=True)

    @property
    def width_of_head(self) -> int:
        """d_k = d_v, with the default of `head_width` resolved."""
        return self.head_width or self.width // self.heads


@dataclasses.dataclass(frozen=True)
class DataConfig:
    """Training, dev and test text, and how it is batched (section 5.1).

    `train`, `dev` and `test` are places, separated by commas: a prefix of two text
    files (`news` stands for `news.en` and `news.de`, or the same with `.gz`),
    `tfds:NAME:SPLIT` for TensorFlow Datasets, or `grammar:SPLIT` for the built-in
    corpus. In `train`, an epoch reads `PLACE@2` twice and `PLACE@0.5` half.
    """

    # The language to translate from; its text files have this ending, as in news.en.
    source: str = _field("en")
    # The language to translate into; its text files have this ending, as in news.de.
    target: str = _field("de")
    # The folder where relative prefixes of text files start; empty: the current one.
    dir: str = _field("", safe=True)
    # Training text: one or more places.
    train: str = _field("")
    # Dev text, for BLEU and perplexity during training: one or more places, or empty.
    # It must not change within a run, because scores on two dev sets do not compare.
    dev: str = _field("")
    # Test sets: one or more places, each scored by itself.
    test: str = _field("", safe=True)
    # Pieces of the joint vocabulary, including special pieces, bytes and `symbols`.
    vocab_size: int = _field(37_000, low=8)
    # An existing SentencePiece model, relative to `dir`; empty: train a new one.
    tokenizer: str = _field("")
    # The most lines that a new tokenizer is trained on, sampled evenly from the text.
    tokenizer_lines: int = _field(2_000_000, low=1)
    # Strings that are always one piece, separated by commas, such as "<bt>,<2de>".
    symbols: str = _field("")
    # Drop training pairs with more pieces than this on a side, EOS included.
    max_length: int = _field(256, low=2)
    # Drop training pairs if one side has over this many times the pieces of the other;
    # at least 1, or 0 to keep all.
    max_ratio: float = _field(4.0, low=0)
    # Drop repeated training pairs and keep the first of each.
    deduplicate: bool = _field(True)
    # The most tokens of a batch on each side, padding included.
    batch_tokens: int = _field(25_000, low=1)
    # "packed": several pairs share a row. "bucketed": one pair a row, in a few shapes.
    batching: str = _field("packed", ("packed", "bucketed"))
    # Packed batches only: tokens in a row; raised to hold the longest sentence.
    row_length: int = _field(128, low=8)
    # Bucketed batches only: the most shapes.
    buckets: int = _field(10, low=1)
    # What fills batches; "auto" is tf.data if TensorFlow is installed, else NumPy. Both
    # yield the same batches.
    feeder: str = _field("auto", ("auto", "tfdata", "numpy"), safe=True)


@dataclasses.dataclass(frozen=True)
class TrainConfig:
    """Optimizer, schedule and regularization (sections 5.3, 5.4), and the run."""

    # Optimizer steps after which training ends.
    steps: int = _field(100_000, low=1, safe=True)
    # Minutes of training, restarts included, after which it ends early; 0: no limit.
    minutes: float = _field(0.0, low=0, safe=True)
    # End training after this many evaluations without a better dev BLEU; 0: never.
    patience: int = _field(0, low=0, safe=True)
    # A workdir whose parameters this run starts from; empty: random parameters.
    init_from: str = _field("")
    # The checkpoint of `init_from`: "average", "best", "last", a step, or any other
    # value of --checkpoint of the commands.
    init_checkpoint: str = _field("average")
    # Steps in which the learning rate rises linearly; then it falls as step^-0.5.
    warmup: int = _field(4_000, low=1)
    # The learning rate at step `warmup`; 0: the paper's, (width * warmup)^-0.5.
    peak_learning_rate: float = _field(0.0, low=0)
    # Adam's beta_1, 0 <= beta_1 < 1.
    adam_b1: float = _field(0.9, low=0)
    # Adam's beta_2, 0 <= beta_2 < 1.
    adam_b2: float = _field(0.98, low=0)
    # Adam's epsilon.
    adam_epsilon: float = _field(1e-9, low=1e-15)
    # epsilon_ls: the probability spread over the vocabulary (section 5.4), below 1.
    label_smoothing: float = _field(0.1, low=0)
    # The decay of an exponential moving average of the parameters, below 1; 0: none.
    ema_decay: float = _field(0.0, low=0)
    # Seed of the initial parameters, of dropout and of the order of the data.
    seed: int = _field(0, low=0)
    # Microbatches of a batch, computed one after another to save memory.
    accumulate: int = _field(1, low=1, safe=True)
    # Steps between two lines of metrics.
    log_every: int = _field(100, low=1, safe=True)
    # Steps between two evaluations on the dev text.
    eval_every: int = _field(1_500, low=1, safe=True)
    # Steps between two checkpoints. Scoring averages the last ones, so this changes
    # scores.
    save_every: int = _field(1_500, low=1)
    # The first lines of the dev text, which every evaluation translates to measure
    # BLEU; 0: no BLEU.
    dev_lines: int = _field(500, low=0)
    # The number of checkpoints that are kept because of their dev BLEU.
    keep_best: int = _field(1, low=1, safe=True)
    # Warn if a gradient norm exceeds this many times the usual one (the median of
    # recent ones); 0: no such warnings.
    alarm_norm: float = _field(5.0, low=0, safe=True)
    # Updates with a gradient that is not finite are skipped. The run has diverged after
    # this many in a row.
    max_skipped: int = _field(10, low=1, safe=True)
    # The run has diverged if the loss rises this many nats above its lowest; 0: never.
    max_rise: float = _field(0.0, low=0, safe=True)
    # Times that a diverged run goes back to an earlier checkpoint and skips the data in
    # between; after that, divergence is an error.
    rollbacks: int = _field(0, low=0, safe=True)


@dataclasses.dataclass(frozen=True)
class MeshConfig:
    """The number of devices along each axis of the mesh (`parallel/mesh.py`).

    One axis may be -1: all remaining devices. Any mesh trains the same, up to rounding,
    so a run may continue on another mesh.
    """

    # Data parallelism: each device computes different rows of the batch.
    data: int = _field(-1, low=-1, safe=True)
    # Data parallelism in which each device stores only a part of every weight.
    fsdp: int = _field(1, low=-1, safe=True)
    # Tensor parallelism: attention heads, hidden units and vocabulary are divided.
    tensor: int = _field(1, low=-1, safe=True)


@dataclasses.dataclass(frozen=True)
class DecodeConfig:
    """Checkpoints and beam search for translation (section 6.1)."""

    # Hypotheses of the beam; 1 is greedy search.
    beam: int = _field(4, low=1, safe=True)
    # The exponent of the length penalty; higher values prefer longer translations.
    alpha: float = _field(0.6, low=0, safe=True)
    # What a log-probability is divided by: "gnmt" ((5 + length) / 6)^alpha, "length"
    # length^alpha, "none" 1.
    penalty: str = _field("gnmt", ("gnmt", "length", "none"), safe=True)
    # End the search of a sentence when no better result is possible ("best"), or as
    # soon as enough hypotheses have ended ("first").
    stop: str = _field("best", ("best", "first"), safe=True)
    # The longest translation in pieces is the length of the input plus this.
    extra_length: int = _field(50, low=1, safe=True)
    # The longest input in pieces, EOS included; longer lines are truncated.
    max_source: int = _field(1024, low=8, safe=True)
    # The number of last checkpoints that are kept, and averaged for translation.
    average: int = _field(5, low=1)
    # The parameters that translate: the average of the last `average` checkpoints, or
    # the checkpoint with the best dev BLEU.
    checkpoint: str = _field("average", ("average", "best"), safe=True)
    # Source tokens, padding included, that are translated at once; 0: 512 on a CPU,
    # 16,384 on an accelerator.
    batch_tokens: int = _field(0, low=0, safe=True)


@dataclasses.dataclass(frozen=True)
class Config:
    """A complete experiment. Raises UserError if its fields contradict each other."""

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
        room = 32 + self.decode.extra_length  # decoding pads inputs to 32 at least
        if model.positions == "learned" and model.max_positions < room:
            raise UserError(
                f"config.model.max_positions={model.max_positions}; want at least "
                f"{room}: 32 + config.decode.extra_length"
            )
        sizes = dataclasses.asdict(self.mesh)
        if 0 in sizes.values() or [*sizes.values()].count(-1) > 1:
            axes = ", ".join(f"{name}={size}" for name, size in sizes.items())
            raise UserError(
                f"config.mesh has {axes}; want numbers of devices >= 1, and at most "
                "one -1 for all remaining devices"
            )
        if 0 < self.data.max_ratio < 1:
            raise UserError(
                f"config.data.max_ratio={self.data.max_ratio}; want at least 1 (longer "
                "side / shorter side), or 0 to keep pairs of any ratio"
            )
        for name, used in (
            (f"train.patience={self.train.patience}", self.train.patience > 0),
            ("decode.checkpoint='best'", self.decode.checkpoint == "best"),
        ):
            if used and not (self.data.dev and self.train.dev_lines):
                raise UserError(
                    f"config.{name} goes by dev BLEU; set config.data.dev, and "
                    "config.train.dev_lines above 0"
                )
        for name in ("source", "target"):  # parts of file names
            if not re.fullmatch(r"\w[\w.-]*", getattr(self.data, name)):
                raise UserError(
                    f"config.data.{name}={getattr(self.data, name)!r}; want the ending "
                    "of a text file: letters, digits, '.', '-' and '_', such as 'en'"
                )
        if self.data.source == self.data.target:
            raise UserError(
                f"config.data.source and config.data.target are both "
                f"{self.data.source!r}; want the endings of two text files, such as "
                "'en' and 'de'"
            )


SECTIONS = {field.name: field.default for field in dataclasses.fields(Config)}


def field_names() -> list[str]:
    """The full names of all fields: `['model.layers', ...]`."""
    return [
        f"{section}.{field.name}"
        for section, default in SECTIONS.items()
        for field in dataclasses.fields(default)
    ]


def defaults() -> ml_collections.ConfigDict:
    """The paper's base model as a `ConfigDict`, for `configs/*.py` to change."""
    return to_config_dict(Config())


def to_config_dict(config: Config) -> ml_collections.ConfigDict:
    """Converts a config to a mutable, type-safe `ConfigDict`."""
    return ml_collections.ConfigDict(dataclasses.asdict(config))


def _checked(name: str, field: dataclasses.Field, value: Any) -> Any:
    """Returns `value` if `field` allows it; raises UserError with its name if not."""
    wanted = typing.cast(type, field.type)
    if wanted is float and type(value) is int:
        value = float(value)
    # Not isinstance: a bool is an int, too.
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
    """Builds and checks a `Config` from a `ConfigDict` or a plain dict of dicts.

    Missing sections and fields take their defaults.

    Raises:
      UserError: An unknown section or field (the message suggests the nearest name), or
        a value of the wrong type or out of range.
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
    """The config with some values of one section replaced.

    Args:
      config: The config to start from.
      section: The section, such as "model".
      **values: New values by field name.

    Raises:
      UserError: As `from_config_dict`.
    """
    fields = dataclasses.asdict(config)
    fields[section].update(values)
    return from_config_dict(fields)


def differences(old: Config, new: Config) -> dict[str, tuple[Any, Any, bool]]:
    """The fields that differ: `{'train.steps': (old value, new value, is safe)}`.

    A safe field may change when a stopped run is continued.
    """
    changed = {}
    for section, default in SECTIONS.items():
        before, after = getattr(old, section), getattr(new, section)
        for field in dataclasses.fields(default):
            values = getattr(before, field.name), getattr(after, field.name)
            if values[0] != values[1]:
                safe = field.metadata["safe"]
                changed[f"{section}.{field.name}"] = (*values, safe)
    return changed
