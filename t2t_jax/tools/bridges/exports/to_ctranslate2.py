"""Export to CTranslate2, a C++ library that translates on CPUs and GPUs.

The weights go through its own specification (`ctranslate2.specs`), as in its
converters. Its Transformer has all of ours as special cases but a few, which `check`
refuses. `rules` maps the parameters; it needs no CTranslate2.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import jax.numpy as jnp
import numpy as np

from t2t_jax.config import ModelConfig
from t2t_jax.data.tokenizers.vocabulary import TOKENIZER_FILES, Vocabulary
from t2t_jax.decoding.alignment import alignment_heads
from t2t_jax.decoding.batches import longest_output
from t2t_jax.decoding.inputs import longest_source
from t2t_jax.decoding.translator import Translator
from t2t_jax.extensions.decoding.exported import library
from t2t_jax.io.errors import UserError, did_you_mean, listed
from t2t_jax.io.sealed import seal
from t2t_jax.model.layers import Parameters
from t2t_jax.model.positions import Learned, Relative, Rotary, Sinusoid, sinusoids
from t2t_jax.search.algorithm import never_generated
from t2t_jax.tools.bridges import weights
from t2t_jax.tools.bridges.exports.card import card, direction, write_files
from t2t_jax.tools.bridges.formats import ExportFormat, check_choices, repetition_fields
from t2t_jax.tools.bridges.vocabularies.written import sentencepiece_files
from t2t_jax.tools.bridges.weights import SAME, LayerNames, TableNames, TensorRule
from t2t_jax.workdir import EXPORTED, Workdir

QUANTIZATIONS = ("float32", "int8", "int8_float32", "int16", "float16", "bfloat16")

# CTranslate2's names of our activations; its GELU is exact, its SWISH is SiLU.
_ACTIVATIONS = {
    "relu": "RELU",
    "gelu": "GELU",
    "silu": "SWISH",
    "swiglu": "SWISH",
    "geglu": "GELU",
}
# The choices that CTranslate2 computes as we do, of the fields that have others.
_CHOICES = {
    "kind": ("transformer",),
    "positions": ("sinusoid", "learned", "none", "rotary", "relative"),
    "norm_kind": ("layer", "rms"),
    "residual": (True,),
    "attention": ("fused", "dense", "chunked", "unscaled"),
    "feed_forward": tuple(_ACTIVATIONS),
}
# Tied tables are stored as copies.
TABLES = TableNames(
    source="encoder/embeddings_0/weight",
    target="decoder/embeddings/weight",
    output="decoder/projection/weight",
    bias="decoder/projection/bias",
    positions={
        side: f"{side}/position_encodings/encodings" for side in ("encoder", "decoder")
    },
)
# It multiplies by the matrices of one input together.
LAYERS = LayerNames(
    layer="{side}/layer_{number}/",
    linears={
        "attention.query": "self_attention/linear_0/{}",
        "attention.key": "self_attention/linear_0/{}",
        "attention.value": "self_attention/linear_0/{}",
        "attention.out": "self_attention/linear_1/{}",
        "cross.query": "attention/linear_0/{}",
        "cross.key": "attention/linear_1/{}",
        "cross.value": "attention/linear_1/{}",
        "cross.out": "attention/linear_2/{}",
        "ff.inner": "ffn/linear_0/{}",
        "ff.outer": "ffn/linear_1/{}",
    },
    norms={
        "attention": "self_attention/layer_norm/{}",
        "cross": "attention/layer_norm/{}",
        "ff": "ffn/layer_norm/{}",
    },
    final_norm="{side}/layer_norm/{}",
    norm=("gamma", "beta"),
)
_GATED = {"ff.gate": "ffn/linear_0/{}", "ff.inner": "ffn/linear_0_noact/{}"}
# The bias of tokens that no search may generate. float16 ends at -65,504.
_NEVER = -60_000.0
# On some GPUs, CTranslate2 pads rows to a multiple of this, padding has positions too.
_MULTIPLE = 8


def write(
    translator: Translator, folder: Path, options: dict[str, Any]
) -> dict[str, Any]:
    """Writes a model that CTranslate2 loads, its tokenizer and a README.md.

    The folder is sealed, and has a workdir without parameters: `Translator.load` opens
    it. The option `quantization` is one of `QUANTIZATIONS`.
    """
    quantization = options.get("quantization") or "float32"
    files, tokenizer = sentencepiece_files(translator.vocabulary)
    save(translator, folder, quantization)
    target = translator.vocabulary
    peer = {
        "tokenizer": tokenizer,
        # What every target line begins with: the token of its language, or nothing.
        "target_prefix": [target.piece(token) for token in target.encode([""])[0]],
        "quantization": quantization,
        "max_input_length": longest_source(translator.config, translator.model)[0],
    }
    text = readme(translator, peer, options.get("scores"))
    write_files(folder, files | {"README.md": text.encode()})
    workdir = Workdir(folder / EXPORTED)
    with workdir.hold():
        workdir.store(translator.config, target, {"exported": True})
    member = translator.members[0]
    digest, steps = member.parameters_sha256(), [*member.steps]
    seal(folder, parameters_sha256=digest, steps=steps, weights=quantization)
    return peer


def check(translator: Translator, quantization: str) -> None:
    """Raises UserError for what CTranslate2 does not compute exactly as we do."""
    if (models := len(translator.members)) > 1:
        raise UserError(
            f"an ensemble of {models} models; CTranslate2 holds one: export one "
            "workdir, or average its checkpoints with --checkpoint"
        )
    if quantization not in QUANTIZATIONS:
        raise UserError(
            f"--quantization={quantization}{did_you_mean(quantization, QUANTIZATIONS)}"
        )
    config = translator.config.model
    hint = "; --to=safetensors and --to=stablehlo hold more kinds of models"
    check_choices(config, _CHOICES, "CTranslate2", hint)
    for side in ("encoder", "decoder"):
        sizes = config.side(side)
        if sizes.width_of_value != sizes.width_of_head:
            raise UserError(
                f"config.model.value_width={config.value_width}: in CTranslate2, a "
                f"head's values are as wide as its keys ({sizes.width_of_head}){hint}"
            )


def save(
    translator: Translator, folder: Path, quantization: str = "float32", rows: int = 0
) -> None:
    """Writes CTranslate2's own files: model.bin, config.json and the vocabularies.

    Sinusoids are those of sentences as long as ours, and of `rows` positions at least.
    """
    check(translator, quantization)
    config, vocabulary = translator.config.model, translator.vocabulary
    longest = longest_source(translator.config, translator.model)[0]
    rows = max(rows, longest_output(longest, translator.config.decode))
    arrays = variables(config, translator.parameters, rows, never_generated(vocabulary))
    unknown = vocabulary.bos if vocabulary.unknown < 0 else vocabulary.unknown
    tokens = {
        "unk_token": vocabulary.piece(unknown),
        "bos_token": vocabulary.piece(vocabulary.bos),
        "eos_token": vocabulary.piece(vocabulary.eos),
    }
    names = [piece_names(v, tokens) for v in (vocabulary.source, vocabulary)]
    specs = library("ctranslate2.specs")
    spec = _empty(specs, config)
    layers, all_heads = len(spec.decoder.layer), config.side("decoder").heads
    alignment_layer, heads = alignment_heads(translator.config, layers)
    spec.decoder.alignment_layer = np.int16(alignment_layer)
    spec.decoder.alignment_heads = np.int16(heads or all_heads)  # from the first one
    for name, array in arrays.items():
        layer, _, attribute = name.rpartition("/")
        if quantization == "bfloat16":  # its own conversion would need PyTorch
            array = array.astype(jnp.bfloat16)
        setattr(specs.model_spec.index_spec(spec, layer), attribute, array)
    spec.register_source_vocabulary(names[0])
    spec.register_target_vocabulary(names[1])
    for name, value in tokens.items():
        setattr(spec.config, name, value)
    spec.config.decoder_start_token = tokens["bos_token"]
    spec.config.add_source_bos, spec.config.add_source_eos = False, True
    spec.config.layer_norm_epsilon = config.norm_epsilon
    spec.validate()
    spec.optimize(quantization=quantization)
    spec.save(str(folder))


def variables(
    config: ModelConfig, parameters: Parameters, rows: int, banned: Sequence[int]
) -> dict[str, np.ndarray]:
    """The model's arrays by CTranslate2's names, float32.

    A sentence has at most `rows` positions. A bias bans tokens in every search, so
    probabilities are among the other tokens, as with its `suppress_sequences`.
    """
    config, parameters = weights.with_biases(config, parameters, "output_bias")
    arrays = weights.write(rules(config), parameters)
    arrays[TABLES.bias][list(banned)] = _NEVER
    for copy in (TABLES.source, TABLES.output):
        arrays.setdefault(copy, arrays[TABLES.target])
    rows = -(-rows // _MULTIPLE) * _MULTIPLE
    for name in TABLES.positions.values():
        if config.positions == "sinusoid":
            sinusoid = config.own_options(Sinusoid)
            table = sinusoids(
                rows + sinusoid.position_offset,
                config.width,
                sinusoid.sinusoid_layout,
                sinusoid.sinusoid_spacing,
            )
            arrays[name] = table[sinusoid.position_offset :]
        elif config.positions == "learned":
            # Rows before the offset are never used.
            arrays[name] = arrays[name][config.own_options(Learned).position_offset :]
        elif config.positions == "none":  # without a table, it would add sinusoids
            arrays[name] = np.zeros((rows, config.width), np.float32)
    return arrays


def rules(config: ModelConfig) -> list[TensorRule]:
    """The rules between our parameters, with `output_bias`, and its variables."""
    table_rules = [*weights.table_rules(config, TABLES)]
    if config.positions == "relative":
        values = config.own_options(Relative).relative_values
        for side in ("encoder", "decoder"):
            for number in range(config.side(side).layers):
                prefix = f"{side}/layer_{number}/self_attention/relative_position_"
                for part in ("key", "value") if values else ("key",):
                    parameter = f"{side}_positions.{number}.{part}"
                    table_rules.append(
                        TensorRule(f"{prefix}{part}s", (parameter,), SAME)
                    )
    names = LAYERS
    if weights.is_gated(config):
        names = LAYERS._replace(linears=LAYERS.linears | _GATED)
    return [*table_rules, *weights.layer_rules(config, names)]


def piece_names(vocabulary: Vocabulary, tokens: dict[str, str]) -> list[str]:
    """The names of all tokens; those that CTranslate2 looks up are as in `tokens`."""
    names = [vocabulary.piece(i) for i in range(len(vocabulary))]
    # Both vocabularies need the same names of these.
    names[vocabulary.eos] = tokens["eos_token"]
    if vocabulary.unknown >= 0:
        names[vocabulary.unknown] = tokens["unk_token"]
    if len(set(names)) < len(names):
        twice = sorted({name for name in names if names.count(name) > 1})
        raise UserError(
            f"{vocabulary.name} has several tokens named {listed(twice)}; CTranslate2 "
            "looks tokens up by their names, which must differ"
        )
    return names


def _empty(specs: ModuleType, config: ModelConfig):
    """A TransformerSpec of a config, without arrays."""
    module, sides = specs.transformer_spec, {}
    activation = specs.common_spec.Activation[_ACTIVATIONS[config.feed_forward]]
    for side, make in (
        ("encoder", module.TransformerEncoderSpec),
        ("decoder", module.TransformerDecoderSpec),
    ):
        sizes = config.side(side)
        options = {}
        if sizes.width_of_head * sizes.heads != sizes.width:
            options["head_dim"] = sizes.width_of_head
        if config.positions == "rotary":
            # 0: all features turn, neighbours as pairs.
            options |= {"rotary_dim": 0, "rotary_interleave": True}
            options["rotary_base"] = config.own_options(Rotary).rotary_base
        spec = sides[side] = make(
            sizes.layers,
            sizes.heads,
            pre_norm=config.norm in ("pre", "post_final"),  # a norm after the stack
            activation=activation,
            ffn_glu=weights.is_gated(config),
            rms_norm=config.norm_kind == "rms",
            relative_position=config.positions == "relative",
            **options,
        )
        spec.pre_norm = config.norm == "pre"
        spec.scale_embeddings = config.embedding_scale
        for layer in spec.layer:
            _set_attention(specs, config, layer.self_attention)
            if side == "decoder":
                _set_attention(specs, config, layer.attention)
    return module.TransformerSpec(sides["encoder"], sides["decoder"])


def _set_attention(specs: ModuleType, config: ModelConfig, attention) -> None:
    if config.attention == "unscaled":
        attention.queries_scale = 1.0  # its default is the root of the head width
    if hasattr(attention, "relative_position_values"):
        if not config.own_options(Relative).relative_values:
            attention.relative_position_values = specs.model_spec.OPTIONAL


EXPORT = ExportFormat(
    "CTranslate2", write, "ctranslate2_peer", options=("quantization",)
)


def readme(
    translator: Translator,
    peer: dict[str, Any],
    scores: Mapping[str, Any] | None = None,
) -> str:
    """Returns the text of README.md; `peer` is what `write` returns."""
    decode = translator.config.decode
    arguments = {
        "beam_size": decode.beam,
        "length_penalty": 0.0 if decode.penalty == "none" else decode.alpha,
        # Ours searches on while a better hypothesis is possible; with twice as many
        # finished ones as usual, hardly any translation differs.
        "patience": 2 if decode.stop == "best" else 1,
        "max_input_length": peer["max_input_length"],
        "max_decoding_length": f"max(map(len, sources)) + {decode.extra_length + 1}",
        "min_decoding_length": 0,
        **repetition_fields(decode),
    }
    if peer["target_prefix"]:
        prefix = json.dumps([peer["target_prefix"]], ensure_ascii=False)
        arguments["target_prefix"] = f"{prefix} * len(sources)"
    use = _USE.format(
        quantization=peer["quantization"],
        tokenizer=_tokenizer_code(translator.vocabulary, peer["tokenizer"]),
        arguments="".join(f"    {name}={x},\n" for name, x in arguments.items()),
        prefix=_PREFIX if peer["target_prefix"] else "",
    )
    differences = (
        "CTranslate2 divides log-probabilities by length^`length_penalty`; the model "
        f"was searched with the penalty `{decode.penalty}`, so lengths may differ a "
        "little.",
        "t2t_jax translates a line without a visible character as an empty line.",
    )
    heading = f"{direction(translator)}, for CTranslate2"
    return card(translator, heading, use, differences, scores)


def _tokenizer_code(vocabulary: Vocabulary, described: dict[str, Any] | None) -> str:
    """Python code that defines `encode(line)` and `decode(pieces)`."""
    if described is None:
        target_file, source_file = TOKENIZER_FILES
        source = f'Vocabulary.load("{source_file}")'
        if vocabulary.joint:
            source = "target.source"
        return _OURS.format(target=target_file, source=source)
    return _PIECES.format(described=json.dumps(described, ensure_ascii=False))


_USE = """\
Weights: {quantization}. Needs `pip install ctranslate2 sentencepiece`. In a script in
this folder, run there, with `lines` of text:

```python
{tokenizer}
import ctranslate2

# Small models are slower with more threads a line; for large ones, measure.
translator = ctranslate2.Translator(".", intra_threads=1)
sources = [encode(line) for line in lines]
results = translator.translate_batch(
    sources,
{arguments})
print(*(decode(result.hypotheses[0]) for result in results), sep="\\n")
```

- CTranslate2 adds the end of the source itself (`add_source_eos`).
{prefix}- Padding, beginning and tokens that the model must not generate have a bias of
  -60,000, so that no search finds them.
- `return_attention=True` returns the attention to the source of the layer that aligns
  words best, averaged over its heads.
"""
_PREFIX = """\
- Every translation begins with the tokens of `target_prefix`, which name the language.
  `decode` leaves them out.
"""
_PIECES = """\
from pieces import Pieces  # pieces.py is in this folder

text = Pieces(".", {described})
encode, decode = text.encode, text.decode
"""
_OURS = """\
from t2t_jax.data.tokenizers.vocabulary import Vocabulary

# Byte-pair codes and Moses; needs t2t_jax.
target = Vocabulary.load("{target}")
source = {source}
ids = {{target.piece(i): i for i in range(len(target))}}
encode = source.pieces

def decode(pieces):
    return target.decode([[ids[piece] for piece in pieces]])[0]
"""
