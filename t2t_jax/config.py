"""All fields of an experiment: their defaults, types, choices and meaning.

The program reads the frozen dataclasses below. The files in `configs/` and the command
line change an `ml_collections.ConfigDict`, which `defaults` creates from these classes
and `from_config_dict` checks against them. The defaults are the paper's base model
(Vaswani et al. 2017, section 5 and Table 3).

Set a field on the command line as `--config.SECTION.FIELD=VALUE`, such as
`--config.model.layers=4`.
"""

import dataclasses
import functools
import re
from collections.abc import Callable, Mapping
from typing import Any

import ml_collections

from t2t_jax.io.errors import UserError, did_you_mean
from t2t_jax.sections import (
    NO_OPTIONS,
    Options,
    Section,
    checked_options,
    checked_section,
    field,
    known_options,
)

# Types of the weights of a model that only decodes. They are chosen when it is loaded,
# not in its config: any workdir can be loaded either way.
WEIGHTS = ("float32", "int8")
ENGINES = ("jax", "ctranslate2", "auto")  # what computes then


@dataclasses.dataclass(frozen=True)
class TaskConfig(Section):
    """The task: how text becomes examples, and how answers are scored (`tasks/`)."""

    # The task; each goes with some kinds of model.
    kind: str = field("translation", table="tasks.table.TASKS")
    # Hyperparameters of the task.
    options: Options = field(NO_OPTIONS)  # noqa: RUF009  (immutable)


@dataclasses.dataclass(frozen=True)
class ModelConfig(Section):
    """The model (section 3)."""

    # The architecture.
    kind: str = field("transformer", table="model.model.MODELS")
    # N: the number of encoder layers, and also of decoder layers.
    layers: int = field(6, low=1)
    # The same for one side only; 0 means `layers`.
    encoder_layers: int = field(0, low=0)
    decoder_layers: int = field(0, low=0)
    # d_model: the width of embeddings and layer outputs; even.
    width: int = field(512, low=2)
    # h: attention heads.
    heads: int = field(8, low=1)
    # The same for one side only; 0 means `heads`.
    encoder_heads: int = field(0, low=0)
    decoder_heads: int = field(0, low=0)
    # d_k: the width of a head's queries and keys; 0 means width / heads.
    head_width: int = field(0, low=0)
    # d_v: the width of a head's values; 0 means that of its keys.
    value_width: int = field(0, low=0)
    # d_ff: hidden units of the feed-forward layers.
    hidden: int = field(2048, low=1)
    # The same for one side only; 0 means `hidden`.
    encoder_hidden: int = field(0, low=0)
    decoder_hidden: int = field(0, low=0)
    # P_drop: the dropout rate of embeddings and of sub-layer outputs.
    dropout: float = field(0.1, low=0, below=1)
    # Dropout of attention weights and of hidden units; the paper has none.
    attention_dropout: float = field(0.0, low=0, below=1)
    activation_dropout: float = field(0.0, low=0, below=1)
    # Position encodings: sinusoids (section 3.5), a learned table (Table 3, row E), ...
    positions: str = field("sinusoid", table="model.positions.POSITIONS")
    # Rows of the learned table, so the longest row of tokens; unused by other schemes.
    max_positions: int = field(1024, low=1)
    # Normalization after each residual sum ("post", the paper), before each sub-layer
    # ("pre"), or after each sum and once more at the end of each side ("post_final").
    norm: str = field("post", ("post", "pre", "post_final"))
    # The normalization itself, and the constant added to the variance.
    norm_kind: str = field("layer", table="model.layers.NORMS")
    norm_epsilon: float = field(1e-6, low=0)
    # Adds each sub-layer's input to its output (section 3.1).
    residual: bool = field(True)
    # How attention is computed.
    attention: str = field("fused", table="model.attention.ATTENTION")
    # Adds biases to queries, keys, values and outputs of attention.
    attention_bias: bool = field(False)
    # The feed-forward layer, by its activation.
    feed_forward: str = field("relu", table="model.feed_forward.FEED_FORWARD")
    # Matrices that are one: "all" is source, target and output embeddings (section
    # 3.4), "target" is target and output, "none" has three matrices.
    tied: str = field("all", ("all", "target", "none"))
    # Multiplies embeddings by the root of the width (section 3.4).
    embedding_scale: bool = field(True)
    # Adds a bias to the logits.
    output_bias: bool = field(False)
    # The type of activations; "auto" is bfloat16 where the hardware supports it
    # natively, else float32. Parameters are always float32.
    dtype: str = field("auto", ("auto", "float32", "bfloat16"))
    # Products with weights, where activations are float32: "bfloat16" rounds their
    # operands and adds up in float32, for processors that have such products; gradients
    # of weights stay float32. "auto" times both when a run starts, and the workdir's
    # config says what it chose.
    products: str = field("float32", ("float32", "bfloat16", "auto"))
    # Recompute activations in the backward pass to save memory: "dots" keeps only
    # products with weights, "full" keeps only the input of each layer.
    remat: str = field("none", ("none", "dots", "full"), safe=True)

    # Hyperparameters of the variants chosen above.
    options: Options = field(NO_OPTIONS)  # noqa: RUF009  (immutable)

    def side(self, name: str) -> "ModelConfig":
        """The config of the `encoder` or `decoder`, with its own sizes as the sizes."""
        sizes = {
            size: getattr(self, f"{name}_{size}") or getattr(self, size)
            for size in ("layers", "heads", "hidden")
        }
        return dataclasses.replace(self, **sizes)

    def reads(self, name: str) -> bool:
        """True if the architecture reads the field `name`."""
        return name not in self.variant("kind").unused

    @property
    def width_of_head(self) -> int:
        """d_k, with the default of `head_width` resolved."""
        return self.head_width or self.width // self.heads

    @property
    def width_of_value(self) -> int:
        """d_v, with the default of `value_width` resolved."""
        return self.value_width or self.width_of_head


@dataclasses.dataclass(frozen=True)
class DataConfig(Section):
    """Training, dev and test text, and how it is batched (section 5.1).

    `train`, `dev` and `test` are corpora, separated by commas: a prefix (`news` for
    `news.en` and `news.de`), a table (`news.tsv`, `news.jsonl`; each also `.gz`), a
    pattern (`raw/*.tsv`), `tfds:NAME:SPLIT` for TensorFlow Datasets, `grammar:SPLIT`
    for the built-in corpus. In `train`, an epoch reads `NAME@2` twice.
    """

    # The language to translate from; its text files have this ending, as in news.en.
    source: str = field("en")
    # The language to translate into; its text files have this ending, as in news.de.
    target: str = field("de")
    # The folder where relative prefixes of text files start; empty: the current one.
    dir: str = field("", safe=True)
    # Training text: one or more corpora.
    train: str = field("")
    # Columns of source and target in `.tsv` files, as "2,3", or keys in `.jsonl` files.
    # Empty: the only two columns; the keys that are called like the languages.
    columns: str = field("")
    # Their column or key of a score, and the least score of a training pair.
    score_column: str = field("")
    min_score: float = field(0.0)
    # T: an epoch draws pairs of a corpus in proportion to size^(1/T) and its weight.
    # 1: all pairs equally often; higher: small corpora more often, large ones less.
    temperature: float = field(1.0, low=1e-3)
    # Dev text, for BLEU and perplexity during training: one or more corpora, or empty.
    # It must not change within a run, because scores on two dev sets do not compare.
    dev: str = field("")
    # Test sets: one or more corpora, each scored by itself.
    test: str = field("", safe=True)
    # One vocabulary for both languages (section 5.1), or one for each. Then the next
    # two fields are of the target.
    joint_vocabulary: bool = field(True)
    # Tokens of the vocabulary, including special tokens, bytes and `symbols`.
    vocab_size: int = field(37_000, low=8)
    # An existing SentencePiece model, relative to `dir`; empty: train a new one.
    tokenizer: str = field("")
    # Without a joint vocabulary: tokens of the source's; 0 means `vocab_size`.
    source_vocab_size: int = field(0, low=0)
    # Without a joint vocabulary: an existing model for the source; empty: train one.
    source_tokenizer: str = field("")
    # The most lines that a new tokenizer is trained on, sampled evenly from the text.
    tokenizer_lines: int = field(2_000_000, low=1)
    # Strings that are always one token, separated by commas, such as "<bt>,<2de>".
    symbols: str = field("")
    # BPE-dropout (Provilkov et al. 2020): the probability with which each merge is left
    # out while training text is encoded, anew in every epoch. The paper: 0.1.
    subword_dropout: float = field(0.0, low=0, below=1)
    # Drop training pairs with more tokens than this on a side, EOS included. A language
    # model's text is cut into blocks of this length instead.
    max_length: int = field(256, low=2)
    # Drop training pairs if one side has over this many times the tokens of the other;
    # at least 1, or 0 to keep all.
    max_ratio: float = field(4.0, low=0)
    # Drop repeated training pairs and keep the first of each.
    deduplicate: bool = field(True)
    # Changes to training lines that differ in each epoch, separated by commas, each
    # with its share of lines (0.1 if not given), such as "typos,case@0.05". The names
    # are those of AUGMENTATIONS and DAMAGES (`extensions/text/damage.py`). Empty: none.
    augment: str = field("")
    # The most tokens of a batch on each side, padding included.
    batch_tokens: int = field(25_000, low=1)
    # "packed": several pairs share a row. "bucketed": one pair a row, in a few shapes.
    batching: str = field("packed", ("packed", "bucketed"))
    # Packed batches only: tokens in a row; raised to hold the longest sentence.
    row_length: int = field(128, low=8)
    # Bucketed batches only: the most shapes.
    buckets: int = field(10, low=1)
    # What fills batches; "auto" is tf.data if TensorFlow is installed, else NumPy. Both
    # yield the same batches.
    feeder: str = field("auto", ("auto", "tfdata", "numpy"), safe=True)

    @property
    def vocab_sizes(self) -> tuple[int, ...]:
        """The tokens of new tokenizers: one size, or the target's and the source's."""
        if self.joint_vocabulary:
            return (self.vocab_size,)
        return self.vocab_size, self.source_vocab_size or self.vocab_size


@dataclasses.dataclass(frozen=True)
class TrainConfig(Section):
    """Optimizer, schedule and regularization (sections 5.3, 5.4), and the run."""

    # Optimizer steps after which training ends.
    steps: int = field(100_000, low=1, safe=True)
    # Minutes of training, restarts included, after which it ends early; 0: no limit.
    minutes: float = field(0.0, low=0, safe=True)
    # End training after this many evaluations without a better dev BLEU; 0: never.
    patience: int = field(0, low=0, safe=True)
    # A workdir whose parameters this run starts from; empty: random parameters.
    init_from: str = field("")
    # The checkpoint of `init_from`: "average", "best", "last", a step, or any other
    # value of --checkpoint of the commands.
    init_checkpoint: str = field("average")
    # Parts of the model that start from `init_from`, such as "encoder,embedding"; the
    # others start random. Empty: all parts.
    init_parts: str = field("")
    # Whether this run has a tokenizer of its own: tokens that `init_from` has too keep
    # their embeddings; the others start from the mean of the tokens of their text.
    remap_vocabulary: bool = field(False)
    # The learning rate: "paper" falls as step^-0.5 (section 5.3), ...
    schedule: str = field("paper", table="training.schedules.SCHEDULES")
    # Steps in which the learning rate rises linearly, before the schedule sets in.
    warmup: int = field(4_000, low=1)
    # The learning rate at step `warmup`; 0: the paper's, (width * warmup)^-0.5.
    peak_learning_rate: float = field(0.0, low=0)
    # The optimizer; the next three fields are those of Adam.
    optimizer: str = field("adam", table="training.optimizers.OPTIMIZERS")
    # Adam's beta_1.
    adam_b1: float = field(0.9, low=0, below=1)
    # Adam's beta_2.
    adam_b2: float = field(0.98, low=0, below=1)
    # Adam's epsilon.
    adam_epsilon: float = field(1e-9, low=1e-15)
    # Scale gradients down to this global norm if theirs is larger; 0: never.
    clip_norm: float = field(0.0, low=0)
    # Decoupled weight decay, times the learning rate; not of biases and norms. 0: none.
    weight_decay: float = field(0.0, low=0)
    # Parts of the model that keep their parameters, such as "embedding,encoder"; a part
    # includes its norms and positions. "encoder:3": its first 3 layers. Empty: none.
    freeze: str = field("")
    # "lora": train small changes of some weights of `init_from`, and nothing else; the
    # workdir then holds these alone.
    adapter: str = field("none", table="training.step.ADAPTERS")
    # The learning rate of a layer is multiplied by this once for each layer above it,
    # and once more for the output layer; the embeddings are below all. 1: one rate.
    layer_decay: float = field(
        1.0, low=0, high=1, hint="lower layers learn more slowly, never faster"
    )
    # What training minimizes; evaluation always measures -log p of the target.
    loss: str = field("cross_entropy", table="training.losses.LOSSES")
    # epsilon_ls: the probability spread over the vocabulary (section 5.4).
    label_smoothing: float = field(0.1, low=0, below=1)
    # The decay of an exponential moving average of the parameters; 0: none.
    ema_decay: float = field(0.0, low=0, below=1)
    # Seed of the initial parameters, of dropout and of the order of the data.
    seed: int = field(0, low=0, below=1 << 32)
    # Microbatches of a batch, computed one after another to save memory.
    accumulate: int = field(1, low=1, safe=True)
    # Steps between two lines of metrics.
    log_every: int = field(100, low=1, safe=True)
    # Steps between two evaluations on the dev text.
    eval_every: int = field(1_500, low=1, safe=True)
    # Steps between two checkpoints; scores are of averages, so this changes them.
    save_every: int = field(1_250, low=1)
    # Minutes in place of `save_every`: its steps, by the first ones' speed. 0: not.
    save_minutes: float = field(0.0, low=0)
    # The first lines of the dev text, which every evaluation translates to measure
    # BLEU; 0: no BLEU.
    dev_lines: int = field(500, low=0)
    # The number of checkpoints that are kept because of their dev BLEU.
    keep_best: int = field(1, low=1, safe=True)
    # Warn if a gradient norm exceeds this many times the usual one (the median of
    # recent ones); 0: no such warnings.
    alarm_norm: float = field(5.0, low=0, safe=True)
    # Updates with a gradient that is not finite are skipped. The run has diverged after
    # this many in a row.
    max_skipped: int = field(10, low=1, safe=True)
    # The run has diverged if the loss rises this many nats above its lowest; 0: never.
    max_rise: float = field(0.0, low=0, safe=True)
    # Times that a diverged run goes back to an earlier checkpoint and skips the data in
    # between; after that, divergence is an error.
    rollbacks: int = field(0, low=0, safe=True)
    # Hyperparameters of the variants chosen above.
    options: Options = field(NO_OPTIONS)  # noqa: RUF009  (immutable)


@dataclasses.dataclass(frozen=True)
class MeshConfig(Section):
    """The number of devices along each axis of the mesh (`parallel/mesh.py`).

    One axis may be -1: all remaining devices. Any mesh trains the same, up to rounding,
    so a run may continue on another mesh.
    """

    # Data parallelism: each device computes different rows of the batch.
    data: int = field(-1, low=-1, safe=True)
    # Data parallelism in which each device stores only a part of every weight.
    fsdp: int = field(1, low=-1, safe=True)
    # Tensor parallelism: attention heads, hidden units and vocabulary are divided.
    tensor: int = field(1, low=-1, safe=True)


@dataclasses.dataclass(frozen=True)
class SearchOptions(Section):
    """Options of beam search (section 6.1), each declared here, once.

    A field is a field of `config.decode`, a flag of the commands that search, and a
    keyword argument of `Translator.translate`. Its bounds, its help and the record of
    what a score depends on follow from it.
    """

    beam: int = field(4, low=1, safe=True, help="Beam width; 1 is greedy search.")
    groups: int = field(
        1,
        low=1,
        safe=True,
        help="Diverse beam search: the number of groups of the beam, which avoid each "
        "other's words. It divides the beam; 1 is the plain beam.",
    )
    diversity: float = field(
        0.5,
        low=0,
        safe=True,
        help="With several groups: the log-probability that a token loses for each "
        "hypothesis of earlier groups that has chosen it at the same step.",
    )
    alpha: float = field(
        0.6,
        low=0,
        safe=True,
        help="Exponent of the length penalty; higher values favor long translations.",
    )
    penalty: str = field(
        "gnmt",
        table="search.algorithm.PENALTIES",
        safe=True,
        help="What a log-probability is divided by: gnmt, ((5 + length) / 6)^alpha; "
        "length, length^alpha; none, 1.",
    )
    stop: str = field(
        "best",
        ("best", "first"),
        safe=True,
        help="When the search of a sentence ends. best: when no better hypothesis is "
        "possible; first: as soon as enough hypotheses are complete.",
    )
    no_repeat_ngram: int = field(
        0, low=0, high=64, safe=True, help="No N tokens in a row occur twice; 0: any."
    )
    repetition_penalty: float = field(
        1.0, above=0, safe=True, help="Above 1: makes repeated tokens less probable."
    )
    extra_length: int = field(
        50,
        low=1,
        high=1 << 16,
        safe=True,
        help="The longest translation in tokens is the length of the input plus this.",
    )

    def override(self, label: str = "", **changes: Any) -> "SearchOptions":
        """Returns these options with some values replaced; None keeps a value.

        Args:
          label: written before the names in messages, such as "--" for flags.
        """
        changes = checked_options(SearchOptions, changes, label)
        options = dataclasses.replace(self, **changes)
        options.check(label)
        if "diversity" in changes and options.groups == 1:
            raise UserError(
                f"{label}diversity={changes['diversity']} acts between groups, and the "
                f"beam has only one ({label}groups=1); set {label}groups to 2 or more, "
                f"or leave {label}diversity out"
            )
        return options

    def check(self, label: str = "") -> None:
        """Raises UserError if values contradict each other."""
        if self.beam % self.groups:
            wider = -(-self.beam // self.groups) * self.groups
            raise UserError(
                f"{label}groups={self.groups} with beam={self.beam}; the groups of a "
                f"beam are equally wide: set beam={wider}, or other groups"
            )

    def recorded(self) -> dict[str, Any]:
        """Returns what results depend on, for the record of where a score comes from.

        Options without an effect are left out, and later ones at their default, so that
        scores that were stored before an option existed are those of the same search.
        """
        named = {
            option.name: option.default for option in dataclasses.fields(SearchOptions)
        }
        del named["extra_length"]  # `Searcher.decode_options` records all lengths
        if self.groups == 1:
            del named["diversity"]
        always = "beam", "alpha", "penalty", "stop", "diversity"
        return {
            name: value
            for name, default in named.items()
            if (value := getattr(self, name)) != default or name in always
        }


@dataclasses.dataclass(frozen=True)
class DecodeConfig(SearchOptions):
    """Checkpoints and beam search for translation (section 6.1)."""

    # The longest input in tokens, EOS included; longer lines are truncated.
    max_source: int = field(1024, low=8, safe=True)
    # The number of last checkpoints that are kept, and averaged for translation.
    average: int = field(5, low=1)
    # The parameters that translate: the average of the last `average` checkpoints, or
    # the checkpoint with the best dev BLEU.
    checkpoint: str = field("average", ("average", "best"), safe=True)
    # The choice among the hypotheses of a line, for translations and scores of test
    # sets; the dev score during training is that of "probability".
    choose: str = field("probability", table="decoding.choosing.CHOICES", safe=True)
    # Source tokens, padding included, that are translated at once; 0: 512 on a CPU,
    # 16,384 on an accelerator.
    batch_tokens: int = field(0, low=0, safe=True)
    # Hyperparameters of the choice.
    options: Options = field(NO_OPTIONS)  # noqa: RUF009  (immutable)


@dataclasses.dataclass(frozen=True)
class Config:
    """A complete experiment. Raises UserError if its fields contradict each other."""

    task: TaskConfig = TaskConfig()
    model: ModelConfig = ModelConfig()
    data: DataConfig = DataConfig()
    train: TrainConfig = TrainConfig()
    decode: DecodeConfig = DecodeConfig()
    mesh: MeshConfig = MeshConfig()

    def __post_init__(self):
        sizes = dataclasses.asdict(self.mesh)
        if 0 in sizes.values() or [*sizes.values()].count(-1) > 1:
            axes = ", ".join(f"{name}={size}" for name, size in sizes.items())
            raise UserError(
                f"config.mesh has {axes}; want numbers of devices >= 1, and at most "
                "one -1 for all remaining devices"
            )
        self.decode.check("config.decode.")
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
                    f"config.{name} goes by the dev score; set config.data.dev, and "
                    "config.train.dev_lines above 0"
                )
        for name in ("remap_vocabulary", "init_parts"):
            if (value := getattr(self.train, name)) and not self.train.init_from:
                raise UserError(
                    f"config.train.{name}={value!r}, but there is no model to start "
                    "from; set config.train.init_from, or leave it out"
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
        self._check_vocabularies()

    def _check_vocabularies(self):
        data = self.data
        if data.joint_vocabulary:
            for name in ("source_vocab_size", "source_tokenizer"):
                if value := getattr(data, name):
                    raise UserError(
                        f"config.data.{name}={value!r}, but one joint vocabulary "
                        "serves both sides; set config.data.joint_vocabulary=False, or "
                        f"leave {name} out"
                    )
        elif self.model.tied == "all" and self.model.reads("tied"):
            raise UserError(
                "config.data.joint_vocabulary=False with config.model.tied='all'; one "
                "matrix cannot embed two vocabularies: choose "
                "config.model.tied='target' or 'none'"
            )
        elif data.source_tokenizer and data.source_vocab_size:
            raise UserError(
                f"config.data.source_vocab_size={data.source_vocab_size}, but "
                f"config.data.source_tokenizer={data.source_tokenizer!r} has a size of "
                "its own; leave one of the two out"
            )


SECTIONS = {part.name: part.default for part in dataclasses.fields(Config)}


def field_names(options: bool = True) -> list[str]:
    """The full names of all fields: `['model.layers', ...]`.

    Args:
      options: include those of variants, which imports the variants.
    """
    names = []
    for section, default in SECTIONS.items():
        for config_field in dataclasses.fields(default):
            if config_field.name != "options":
                names.append(f"{section}.{config_field.name}")
            elif options:
                names += [f"{section}.options.{o}" for o in known_options(default)]
    return names


def similar_field(name: str) -> str:
    """A hint at the field whose name is most like this one, which does not exist."""
    hint = did_you_mean(name, field_names(options=False))
    return hint if "did you mean" in hint else did_you_mean(name, field_names())


def default_of(name: str) -> Any:
    """The default of a field, by its full name, such as `train.steps`."""
    section, *path = name.split(".")
    if len(path) == 2:
        return known_options(SECTIONS[section])[path[1]][0].default
    return getattr(SECTIONS[section], path[0])


def defaults() -> ml_collections.ConfigDict:
    """The paper's base model as a `ConfigDict`, for `configs/*.py` to change."""
    return to_config_dict(Config())


class _Options(ml_collections.ConfigDict):
    """The options of a section; one at its default is added when it is first read.

    So flags can set the options of all variants, and a config that reads none imports
    no variant.
    """

    _available: Callable[[], Mapping] = dict

    def __getitem__(self, name: str) -> Any:
        if name not in self and name in (available := self._available()):
            with self.unlocked():
                self[name] = available[name][0].default
        return super().__getitem__(name)

    def __setstate__(self, state: dict):  # of a copy
        super().__setstate__(state)
        object.__setattr__(self, "_available", state["_available"])


class _Fields(ml_collections.ConfigDict):
    """A section of a mutable config, which has the fields of a `Section` alone."""

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            if name[0] == "_" or not any(hasattr(s, name) for s in SECTIONS.values()):
                raise
        raise AttributeError(
            f"{name} is not a field: a ConfigDict, as load_config returns it, has no "
            "methods of a config; from_config_dict(config) (t2t_jax.config) makes the "
            f"Config whose sections have {name}"
        )


def to_config_dict(config: Config) -> ml_collections.ConfigDict:
    """Converts a config to a mutable, type-safe `ConfigDict`.

    Its `options` have those of all variants.
    """
    sections = dataclasses.asdict(config)
    for section, values in sections.items():
        if "options" in values:
            values["options"] = _Options(dict(values["options"]))
            available = functools.partial(known_options, SECTIONS[section])
            object.__setattr__(values["options"], "_available", available)
        sections[section] = _Fields(values)
    return ml_collections.ConfigDict(sections)


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
        default = SECTIONS[section]
        for name in dict(values):
            if name not in (f.name for f in dataclasses.fields(default)):
                full = f"{section}.{name}"
                raise UserError(f"config.{full}: no such field{similar_field(full)}")
        sections[section] = checked_section(section, default, values)
    return Config(**sections)


def changed(config: Config, section: str, **values) -> Config:
    """The config with some values of one section replaced."""
    fields = dataclasses.asdict(config)
    fields[section].update(values)
    return from_config_dict(fields)


def with_fields(
    config: Config | ml_collections.ConfigDict, changes: Mapping[str, Any]
) -> Config:
    """Returns the config with some fields changed, by their full names.

    For example `with_fields(base, {"model.heads": 1, "model.head_width": 512})`; an
    option of a variant is `model.options.NAME`.

    Raises:
      UserError: no such field, or a value that it does not take.
    """
    if not isinstance(config, Config):
        config = from_config_dict(config)
    sections, names = dataclasses.asdict(config), field_names()
    for name, value in changes.items():
        if name not in names:
            raise UserError(f"config.{name}: no such field{did_you_mean(name, names)}")
        section, *options, field = name.split(".")
        if options:
            field, value = "options", {**sections[section]["options"], field: value}
        sections[section][field] = value
    return from_config_dict(sections)


def differences(old: Config, new: Config) -> dict[str, tuple[Any, Any, bool]]:
    """The fields that differ: `{'train.steps': (old value, new value, is safe)}`.

    A safe field may change when a stopped run is continued.
    """
    changed = {}
    for section, default in SECTIONS.items():
        old_section, new_section = getattr(old, section), getattr(new, section)
        for config_field in dataclasses.fields(default):
            name = f"{section}.{config_field.name}"
            values = (
                getattr(old_section, config_field.name),
                getattr(new_section, config_field.name),
            )
            if values[0] == values[1]:
                continue
            if config_field.name != "options":
                safe = config_field.metadata["safe"] and not new_section.fixed_by(
                    config_field.name
                )
                changed[name] = (*values, safe)
                continue
            for option in {**values[0], **values[1]}:
                # An option is stored only if it differs from its default.
                option_field, _ = known_options(default)[option]
                pair = [stored.get(option, option_field.default) for stored in values]
                if pair[0] != pair[1]:
                    safe = option_field.metadata.get("safe", False)
                    changed[f"{name}.{option}"] = (*pair, safe)
    return changed


def unusual(config: Config) -> dict[str, Any]:
    """The fields that are not at their defaults, the paper's base model, by full names.

    A field that a later version adds leaves the result as it is.
    """
    changed = differences(Config(), config)
    return {name: new for name, (_, new, _) in changed.items()}
