"""README.md of an exported model: what it is, how good, and where it came from."""

import dataclasses
import json
from collections.abc import Container, Mapping, Sequence
from typing import Any

from t2t_jax import __version__
from t2t_jax.config import Config
from t2t_jax.data.tokenizers.vocabulary import show_sizes
from t2t_jax.decoding.translator import Translator
from t2t_jax.tasks.table import known_measures
from t2t_jax.tools.bridges.exported_files import direction, translates

EPSILON = 1e-5  # of PyTorch's LayerNorm
# Scores of `scores/SET.json` that the card shows: their names, and the keys of their
# signatures.
_SHOWN = {
    "bleu": ("BLEU", "signature"),
    "chrf": ("chrF", "chrf_signature"),
    "ter": ("TER", "ter_signature"),
    "bleu_paper": ("BLEU as in the paper", "bleu_paper_signature"),
}
# Fields that name files of the machine that trained the model.
_PLACES = (*("data.dir", "data.tokenizer", "data.source_tokenizer", "train.init_from"),)

_CARD = """\
---
{languages}library_name: transformers
pipeline_tag: {pipeline}
tags:
- {pipeline}
- t2t_jax
---

# {heading}

A Transformer ("Attention Is All You Need") with {parameters:,} parameters, trained with
t2t_jax {version}. Width {width}; {vocabulary} pieces;
{layers}.

{checkpoint}

## Use

```python
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("FOLDER")
model = AutoModelForSeq2SeqLM.from_pretrained("FOLDER")
inputs = tokenizer(["A line of text."], padding=True, return_tensors="pt")
outputs = model.generate(**inputs)
print(tokenizer.batch_decode(outputs, skip_special_tokens=True))
```

## Scores

{scores}

## Differences from the model in t2t_jax

{differences}

## Provenance

```json
{provenance}
```

## Configuration

```json
{config}
```
"""


def model_card(
    translator: Translator,
    generation: Mapping[str, Any],
    scores: Mapping[str, Mapping[str, Any]],
) -> str:
    """Returns the text of README.md.

    Args:
      generation: the content of generation_config.json.
      scores: the content of the workdir's `scores/SET.json`, by file name.
    """
    config = translator.config
    model = config.model
    sides = [model.side(side) for side in ("encoder", "decoder")]
    provenance = translator.provenance()
    return _CARD.format(
        **_kind(translator),
        parameters=translator.model.count(),
        version=__version__,
        layers=" and ".join(
            f"{side.layers} {name} layers of {side.heads} heads and {side.hidden:,} "
            "hidden units"
            for name, side in zip(("encoder", "decoder"), sides, strict=True)
        ),
        width=model.width,
        vocabulary=show_sizes(translator.vocabulary.sizes),
        checkpoint=_checkpoint(translator.steps),
        scores=_scores(scores, provenance),
        differences=_differences(translator, generation),
        provenance=json.dumps(provenance, indent=2),
        config=json.dumps(_changed(config), indent=2),
    )


def _kind(translator: Translator) -> dict[str, str]:
    """What the model does: for people, and for Hugging Face's search."""
    name = direction(translator)
    if not translates(translator):
        return {"languages": "", "pipeline": "text2text-generation", "heading": name}
    data = translator.config.data
    # JSON strings are YAML strings; without quotes, YAML reads `no` as false.
    languages = "".join(f"- {json.dumps(s)}\n" for s in (data.source, data.target))
    return {
        "languages": f"language:\n{languages}",
        "pipeline": "translation",
        "heading": f"{name} translation",
    }


def _checkpoint(steps: Sequence[int]) -> str:
    if len(steps) > 1:
        shown = ", ".join(f"{step:,}" for step in steps)
        return f"The parameters are the average of the checkpoints of steps {shown}."
    return f"The parameters are those of step {steps[0]:,}." if steps else ""


def _scores(
    scores: Mapping[str, Mapping[str, Any]], provenance: Mapping[str, Any]
) -> str:
    """A table of the scores of these parameters, each with its search and signature."""
    shown = _SHOWN | {name: (name, "") for name in known_measures()}
    rows = [
        f"| {_set_of(name, scores)} | {label} | {found[key]:.2f} "
        f"| {_search(found['decode'])} | {_signature(found.get(signature))} |"
        for name, found in sorted(scores.items())
        # Scores of old versions do not say of which parameters they are.
        if [found.get("parameters_sha256")] == provenance["parameters_sha256"]
        for key, (label, signature) in shown.items()
        if key in found
    ]
    if not rows:
        return "No test set has been scored with these parameters."
    return "\n".join(
        [
            "| Set | Score | Value | Search | Signature |",
            "|---|---|---:|---|---|",
            *rows,
            "",
            "The scored outputs are by t2t_jax.",
        ]
    )


def _signature(text: str | None) -> str:
    """A cell of the table, where a bar would begin the next one."""
    return "`{}`".format(text.replace("|", r"\|")) if text else ""


def _set_of(name: str, names: Container[str]) -> str:
    """The set of a file of scores; earlier files are numbered: SET.1, SET.2."""
    name_of_set, _, number = name.rpartition(".")
    return name_of_set if number.isdigit() and name_of_set in names else name


def _search(decode: Mapping[str, Any]) -> str:
    groups = f" in {decode['groups']} groups" if "groups" in decode else ""
    return (
        f"beam {decode['beam']}{groups}, length penalty {decode['penalty']!r} with "
        f"alpha {decode['alpha']}"
    )


def _differences(translator: Translator, generation: Mapping[str, Any]) -> str:
    config = translator.config
    found = [
        f"An output has at most {generation['max_length']} tokens (`max_length` in "
        "generation_config.json). In t2t_jax, the limit is the length of the input "
        f"plus {config.decode.extra_length}."
    ]
    if (epsilon := config.model.norm_epsilon) != EPSILON:
        found.append(
            f"LayerNorm adds {EPSILON} to the variance, PyTorch's default, for which "
            f"config.json has no field; the model was trained with {epsilon}. In the "
            "models measured, logits of about 15 change by at most 1e-4."
        )
    if config.decode.penalty == "gnmt" and config.decode.beam > 1:
        found.append(
            "Beam search divides a log-probability by length^"
            f"{generation['length_penalty']}, which is close to t2t_jax's ((5 + "
            f"length) / 6)^{config.decode.alpha}, up to a factor. Some outputs differ."
        )
    if not translates(translator):
        found.append(
            "It writes the target of `config.task` below, with the marks of its source "
            "and target. t2t_jax adds and removes them, and checks what was written."
        )
    vocabulary = translator.vocabulary
    if first := vocabulary.source.encode([""])[0]:
        token = vocabulary.source.piece(first[0])
        found.append(f"Every line has to begin with `{token}`, the target language.")
    if not vocabulary.joint:
        found.append(
            "`MarianTokenizer` takes `>>xx<<` at the start of a line for a language "
            "token, removes spaces around a translation, and reads U+2581 as a space."
        )
    return "\n".join(f"- {difference}" for difference in found)


def _changed(config: Config) -> dict[str, Any]:
    """The fields that differ from the paper's base model; no places of files."""
    paper = dataclasses.asdict(Config())
    return {
        f"{section}.{name}": value
        for section, fields in dataclasses.asdict(config).items()
        for name, value in fields.items()
        if value != paper[section][name] and f"{section}.{name}" not in _PLACES
    }
