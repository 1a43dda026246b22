"""Files about an exported model: its card, README.md; tokenizers; JSON for programs."""

import json
from collections.abc import Container, Mapping, Sequence
from pathlib import Path
from typing import Any

from t2t_jax import __version__
from t2t_jax.config import TaskConfig, unusual
from t2t_jax.data.tokenizers.vocabulary import show_sizes
from t2t_jax.decoding.translator import Translator
from t2t_jax.io.tables import markdown_cell, markdown_table
from t2t_jax.metrics.plain import meaningless
from t2t_jax.tasks.table import known_measures
from t2t_jax.tools.bridges.vocabularies.written import own_files

# Scores of `scores/SET.json` that the card shows: their names, and the keys of their
# signatures.
_SHOWN = {
    "bleu": ("BLEU", "signature"),
    "chrf": ("chrF", "chrf_signature"),
    "ter": ("TER", "ter_signature"),
    "bleu_paper": ("BLEU as in the paper", "bleu_paper_signature"),
}
# Fields that name files of the machine that trained the model.
_PATHS = ("data.dir", "data.tokenizer", "data.source_tokenizer", "train.init_from")

_CARD = """\
{front_matter}# {heading}

{model}

## Use

{use}

## Scores

{scores}
{differences}
## Provenance

```json
{provenance}
```

## Configuration

The fields that differ from the paper's base model:

```json
{config}
```
"""

_DIFFERENCES = "## Differences from the model in t2t_jax"


def card(
    translator: Translator,
    heading: str,
    use: str,
    differences: Sequence[str] = (),
    scores: Mapping[str, Mapping[str, Any]] | None = None,
    front_matter: str = "",
) -> str:
    """Returns the text of README.md: what the model is, how good, and its origin.

    Args:
      use: the format's own section: what its files are, and how a program uses them.
      differences: sentences about what the format computes otherwise than t2t_jax.
      scores: the content of the workdir's `scores/SET.json`, by file name.
      front_matter: YAML for Hugging Face's hub, with its lines `---`.
    """
    provenance = translator.provenance()
    config = unusual(translator.config)
    listed = "".join(f"- {difference}\n" for difference in differences)
    return _CARD.format(
        front_matter=front_matter,
        heading=heading,
        model=_model(translator),
        use=use.strip(),
        scores=_scores(scores or {}, provenance, translator.config.data.target),
        differences=f"\n{_DIFFERENCES}\n\n{listed}" if listed else "",
        provenance=json.dumps(provenance, indent=2),
        config=json.dumps(
            {name: x for name, x in config.items() if name not in _PATHS}, indent=2
        ),
    )


def _model(translator: Translator) -> str:
    """The kind of the model, its sizes and checkpoints, in a few sentences."""
    config = translator.config.model
    named = f"A model of the kind {config.kind!r}"
    sizes = ""
    if config.kind == "transformer":
        named = 'A Transformer ("Attention Is All You Need")'
        layers = []
        for name in ("encoder", "decoder"):
            side = config.side(name)
            layers.append(
                f"{side.layers} {name} layers of {side.heads} heads and "
                f"{side.hidden:,} hidden units"
            )
        sizes = f" {' and '.join(layers)}."
    steps = [f"{step:,}" for step in translator.steps]
    checkpoint = f"The parameters are those of step {steps[0]}." if steps else ""
    if len(steps) > 1:
        checkpoint = (
            "The parameters are the average of the checkpoints of steps "
            f"{', '.join(steps)}."
        )
    return (
        f"{named} with {translator.model.count():,} parameters, trained with t2t_jax "
        f"{__version__}. Width {config.width:,}; "
        f"{show_sizes(translator.vocabulary.sizes)} tokens.{sizes}\n\n{checkpoint}"
    ).strip()


def _scores(
    scores: Mapping[str, Mapping[str, Any]], provenance: Mapping[str, Any], target: str
) -> str:
    """A table of the scores of these parameters, each with its search and signature."""
    columns = _SHOWN | {name: (name, "") for name in known_measures()}
    meaningless_scores = meaningless(target)
    rows = []
    for name, stored in sorted(scores.items()):
        # Scores of old versions do not say of which parameters they are.
        if [stored.get("parameters_sha256")] != provenance["parameters_sha256"]:
            continue
        for key, (label, signature) in columns.items():
            if key in stored and key not in meaningless_scores:
                signed = markdown_cell(stored.get(signature) or "")
                rows.append(
                    (
                        _set_of(name, scores),
                        label,
                        f"{stored[key]:.2f}",
                        _search(stored["decode"]),
                        f"`{signed}`" if signed else "",
                    )
                )
    if not rows:
        return "No test set has been scored with these parameters."
    heads = ("Set", "Score", "Value", "Search", "Signature")
    table = markdown_table(heads, rows, left=(0, 1, 3, 4))
    return "\n".join([*table, "", "The scored outputs are by t2t_jax."])


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


def write_own(
    translator: Translator,
    file: Path,
    about: dict[str, Any],
    kind: str,
    use: str,
    options: Mapping[str, Any],
) -> None:
    """Writes what formats of our own have besides a model: `about`, and a card."""
    write_json(file, about)
    files = own_files(translator.vocabulary)
    heading = f"{direction(translator)}: {kind}"
    text = card(translator, heading, use, scores=options.get("scores"))
    write_files(file.parent, files | {"README.md": text.encode()})


def write_files(folder: Path, files: Mapping[str, bytes]) -> None:
    """Writes files by their names."""
    for name, content in files.items():
        (folder / name).write_bytes(content)


def write_json(file: Path, content: dict[str, Any]) -> None:
    """Writes a JSON object for people and programs."""
    text = json.dumps(content, indent=2, ensure_ascii=False) + "\n"
    file.write_text(text, encoding="utf-8")


def origin(translator: Translator) -> dict[str, Any]:
    """The provenance of an exported model."""
    return {
        "t2t_jax": __version__,
        "vocabulary_sha256": translator.vocabulary.sha256,
        "provenance": translator.provenance(),
    }


def direction(translator: Translator) -> str:
    """The languages for a heading, such as `en to de`; of other tasks, the name."""
    data = translator.config.data
    if not translates(translator):
        return translator.config.task.kind
    return f"{data.source} to {data.target}"


def translates(translator: Translator) -> bool:
    """True if its task is translation from one language into another."""
    return translator.config.task.kind == TaskConfig().kind
