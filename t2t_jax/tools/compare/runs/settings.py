"""Compares what two runs were asked to do: config, text and tokenizer."""

import hashlib

from t2t_jax import config as fields
from t2t_jax.tools.compare.runs.opened import OpenedRun, Section


def config_section(a: OpenedRun, b: OpenedRun) -> Section:
    """Lists the fields of the config that differ."""
    changed = fields.differences(a.config, b.config)
    facts = {name: [old, new] for name, (old, new, _) in changed.items()}
    lines = [f"{name}: {old!r} | {new!r}" for name, (old, new) in facts.items()]
    return Section(bool(facts), facts, lines or ["the same fields"])


def data_section(a: OpenedRun, b: OpenedRun) -> Section:
    """Compares the hashes of prepared text, dev text and tokenizers.

    The hash of the training text covers the text, the tokenizer and the options of
    cleaning, so another tokenizer alone changes it.
    """
    texts = [run.workdir.text() for run in (a, b)]
    tokenizers = [
        [hashlib.sha256(side.model).hexdigest() for side in run.vocabulary.sides]
        for run in (a, b)
    ]
    values = {
        "tokenizer": tokenizers,
        "prepared text": [text["prepared"] for text in texts],
        "dev text": [text["dev"] for text in texts],
        "pairs": [text["kept"] for text in texts],
        "models that the loss reads": [text.get("frozen", []) for text in texts],
    }
    facts = {
        name: {"values": pair, "same": pair[0] == pair[1]}
        for name, pair in values.items()
    }
    lines = [
        f"{name}: {'the same' if fact['same'] else _pair(fact['values'])}"
        for name, fact in facts.items()
        if any(fact["values"])
    ]
    return Section(not all(fact["same"] for fact in facts.values()), facts, lines)


def _pair(values: list) -> str:
    """Both values; hashes by their first digits."""
    return " | ".join(
        f"{value:,}"
        if isinstance(value, int)
        else ", ".join(h[:12] for h in ([value] if isinstance(value, str) else value))
        or "none"
        for value in values
    )
