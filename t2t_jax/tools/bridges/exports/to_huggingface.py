"""Writes a model as a folder of Hugging Face, without that library.

Post-norm models become a MarianMT and pre-norm ones a Pegasus: the two classes that
compute what ours do and take the decoder's first token and the table of positions as
they are given.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from t2t_jax.config import DecodeConfig, ModelConfig
from t2t_jax.decoding.batches import longest_output
from t2t_jax.decoding.translator import Translator
from t2t_jax.io.errors import UserError
from t2t_jax.model.layers import Parameters
from t2t_jax.model.positions import sinusoids
from t2t_jax.search.algorithm import never_generated
from t2t_jax.text.languages import identify
from t2t_jax.tools.bridges import weights
from t2t_jax.tools.bridges.exports.card import (
    card,
    direction,
    translates,
    write_files,
    write_json,
)
from t2t_jax.tools.bridges.families.huggingface import (
    ACTIVATIONS,
    POSITIONS,
    SIZES,
    weight_rules,
)
from t2t_jax.tools.bridges.formats import ExportFormat, check_choices, repetition_fields
from t2t_jax.tools.bridges.tensor_files import write_safetensors
from t2t_jax.tools.bridges.vocabularies.written import huggingface_files
from t2t_jax.tools.bridges.weights import sines_first

# Values of `config.model` that their classes compute; of other fields, any.
_COMPUTED = {
    "kind": ("transformer",),
    "norm": ("post", "pre"),
    "norm_kind": ("layer",),
    "residual": (True,),
    "attention": ("fused", "dense", "chunked"),
    "positions": ("sinusoid", "learned"),
    "feed_forward": tuple(dict.fromkeys(ACTIVATIONS.values())),
}
_CLASSES = {
    "post": ("marian", "MarianMTModel"),
    "pre": ("pegasus", "PegasusForConditionalGeneration"),
}
EPSILON = 1e-5  # of PyTorch's LayerNorm
LONGEST = 512  # tokens of a translation, as OPUS-MT has it
USUAL = 20  # tokens of a usual translation
_HINT = "; --to=ctranslate2 and --to=safetensors hold more kinds of models"


def write(translator: Translator, folder: Path, options: dict[str, Any]) -> dict:
    """Writes config.json, generation_config.json, weights, tokenizer and README.md."""
    vocabulary = translator.vocabulary
    check(translator.config.model)
    files = huggingface_files(vocabulary, translator.config)
    generation = generation_fields(translator)
    text = readme(translator, generation, options.get("scores"))
    write_files(folder, files | {"README.md": text.encode()})
    save(translator, folder)
    # Users write the language's token themselves, so lines of text lack it here.
    return {"checks": ["greedy"]} if vocabulary.source.encode([""])[0] else {}


def save(translator: Translator, folder: Path) -> None:
    """Writes what `from_pretrained` of the model reads: its configs and weights."""
    model = translator.config.model
    check(model)
    write_json(folder / "config.json", config_fields(translator))
    write_json(folder / "generation_config.json", generation_fields(translator))
    tensors = tensors_of(model, translator.parameters, positions(translator))
    write_safetensors(folder / "model.safetensors", tensors, {"format": "pt"})


def check(config: ModelConfig) -> None:
    """Raises UserError for a model that neither class computes exactly."""
    system = "Hugging Face's MarianMT and Pegasus"
    check_choices(config, _COMPUTED, system, _HINT)
    for side in ("encoder", "decoder"):
        sizes = config.side(side)
        for name, width in (
            ("head_width", sizes.width_of_head),
            ("value_width", sizes.width_of_value),
        ):
            if width * sizes.heads != config.width:
                raise UserError(
                    f"config.model.{name}={width} with {sizes.heads} heads; Hugging "
                    f"Face's heads divide the width of {config.width}{_HINT}"
                )
    if config.norm == "pre" and config.tied != "all":
        raise UserError(
            f"config.model.tied={config.tied!r} with config.model.norm='pre': Pegasus, "
            f"Hugging Face's pre-norm class, has one embedding matrix{_HINT}"
        )


def positions(translator: Translator) -> int:
    """The number of positions of the exported model."""
    config = translator.config
    if config.model.positions == "learned":
        return config.model.max_positions
    return longest_output(config.decode.max_source, config.decode)


def tensors_of(
    config: ModelConfig, parameters: Parameters, length: int
) -> dict[str, np.ndarray]:
    """The tensors of model.safetensors with tables of `length` positions."""
    parameters = sines_first(config, parameters)
    config, parameters = weights.with_biases(
        config, parameters, "attention_bias", "output_bias"
    )
    tensors = weights.write(weight_rules(config), parameters)
    options = dict(config.options)
    offset = options.get("position_offset", 0)
    # Stored, as Pegasus does: both classes then add it as it is, whatever it holds.
    spacing = options.get("sinusoid_spacing", "paper")
    table = sinusoids(length + offset, config.width, "half", spacing)
    for name in POSITIONS.values():
        tensors[name] = tensors.get(name, table)[offset:]
    return tensors


def config_fields(translator: Translator) -> dict[str, Any]:
    """The content of config.json."""
    model, vocabulary = translator.config.model, translator.vocabulary
    kind, name = _CLASSES[model.norm]
    activations = {value: name for name, value in ACTIVATIONS.items()}
    fields = {
        "architectures": [name],
        "model_type": kind,
        "is_encoder_decoder": True,
        "d_model": model.width,
        "activation_function": activations[model.feed_forward],
        "scale_embedding": model.embedding_scale,
        "max_position_embeddings": positions(translator),
        "tie_word_embeddings": model.tied != "none",
        "vocab_size": len(vocabulary.source),
        "dropout": model.dropout,
        "attention_dropout": model.attention_dropout,
        "activation_dropout": model.activation_dropout,
        "dtype": "float32",
        **_special_tokens(translator),
    }
    for side in ("encoder", "decoder"):
        for field, size_name in SIZES.items():
            fields[f"{side}_{size_name}"] = getattr(model.side(side), field)
        fields[f"{side}_layerdrop"] = 0.0
    if kind == "marian":
        fields["share_encoder_decoder_embeddings"] = model.tied == "all"
        fields["decoder_vocab_size"] = len(vocabulary)
    return fields


def generation_fields(translator: Translator) -> dict[str, Any]:
    """The content of generation_config.json: our search, as far as theirs has it."""
    decode, vocabulary = translator.config.decode, translator.vocabulary
    never = never_generated(vocabulary)
    fields = {
        **_special_tokens(translator),
        "bad_words_ids": [[token] for token in never] or None,
        "num_beams": decode.beam,
        "length_penalty": length_penalty(decode),
        "early_stopping": decode.stop == "first",
        "max_length": longest_translation(translator),
    }
    fields |= repetition_fields(decode)
    if target_prefix := vocabulary.encode([""])[0]:  # the token of the target language
        fields["forced_bos_token_id"] = target_prefix[0]
    return fields


def length_penalty(decode: DecodeConfig) -> float:
    """The exponent of their penalty, length^exponent, that is closest to ours.

    For `gnmt`, the one whose logarithm has the same slope at `USUAL` tokens: the ratio
    of the penalties of two hypotheses, which decides between them, is about the same.
    """
    slopes = {"gnmt": USUAL / (5 + USUAL), "length": 1.0, "none": 0.0}
    return round(decode.alpha * slopes[decode.penalty], 4)


def longest_translation(translator: Translator) -> int:
    """Their limit, one for all lines; ours grows with the length of the input."""
    config = translator.config
    longest = longest_output(config.data.max_length, config.decode)
    return min(max(longest, LONGEST), positions(translator))


def _special_tokens(translator: Translator) -> dict[str, Any]:
    vocabulary = translator.vocabulary
    return {
        "pad_token_id": vocabulary.pad,
        "bos_token_id": vocabulary.bos,
        "eos_token_id": vocabulary.eos,
        "decoder_start_token_id": vocabulary.bos,
        # Their default forces an end where ours stops without one.
        "forced_eos_token_id": None,
    }


_USE = """\
```python
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("FOLDER")
model = AutoModelForSeq2SeqLM.from_pretrained("FOLDER")
inputs = tokenizer(["A line of text."], padding=True, return_tensors="pt")
outputs = model.generate(**inputs)
print(tokenizer.batch_decode(outputs, skip_special_tokens=True))
```
"""


def readme(
    translator: Translator,
    generation: Mapping[str, Any],
    scores: Mapping[str, Any] | None = None,
) -> str:
    """Returns the text of README.md; `generation` is that of generation_config.json."""
    heading, languages, pipeline = direction(translator), "", "text2text-generation"
    if translates(translator):
        heading, pipeline = f"{heading} translation", "translation"
        data = translator.config.data
        # JSON strings are YAML strings; without quotes, YAML reads `no` as false.
        tags = (identify(code).tag for code in (data.source, data.target))
        codes = "".join(f"- {json.dumps(tag)}\n" for tag in tags)
        languages = f"language:\n{codes}"
    front_matter = f"""\
---
{languages}library_name: transformers
pipeline_tag: {pipeline}
tags:
- {pipeline}
- t2t_jax
---

"""
    return card(
        translator,
        heading,
        _USE,
        _differences(translator, generation),
        scores,
        front_matter,
    )


def _differences(translator: Translator, generation: Mapping[str, Any]) -> list[str]:
    config = translator.config
    differences = [
        f"An output has at most {generation['max_length']} tokens (`max_length` in "
        "generation_config.json). In t2t_jax, the limit is the length of the input "
        f"plus {config.decode.extra_length}."
    ]
    if (epsilon := config.model.norm_epsilon) != EPSILON:
        differences.append(
            f"LayerNorm adds {EPSILON} to the variance, PyTorch's default, for which "
            f"config.json has no field; the model was trained with {epsilon}. In the "
            "models measured, logits of about 15 change by at most 1e-4."
        )
    if config.decode.penalty == "gnmt" and config.decode.beam > 1:
        differences.append(
            "Beam search divides a log-probability by length^"
            f"{generation['length_penalty']}, which is close to t2t_jax's ((5 + "
            f"length) / 6)^{config.decode.alpha}, up to a factor. Some outputs differ."
        )
    if config.decode.repetition_penalty != 1 and config.decode.beam > 1:
        differences.append(
            "In beam search, `repetition_penalty` changes log-probabilities; in "
            "t2t_jax, logits. Some outputs differ."
        )
    if not translates(translator):
        differences.append(
            "It writes the target of `config.task` below, with the marks of its source "
            "and target. t2t_jax adds and removes them, and checks what was written."
        )
    vocabulary = translator.vocabulary
    if source_prefix := vocabulary.source.encode([""])[0]:
        token = vocabulary.source.piece(source_prefix[0])
        differences.append(
            f"Every line has to begin with `{token}`, the target language."
        )
    if not vocabulary.joint:
        differences.append(
            "`MarianTokenizer` takes `>>xx<<` at the start of a line for a language "
            "token, removes spaces around a translation, and reads U+2581 as a space."
        )
    return differences


EXPORT = ExportFormat("MarianMT or Pegasus of Hugging Face", write, "huggingface")
