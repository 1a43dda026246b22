"""Parameters of a model of one vocabulary as the start of a model of another.

A piece that both vocabularies have keeps its embedding, its row of the output layer and
its output bias. Any other starts from the mean of the pieces into which the old
vocabulary splits its text. Shape suffixes: v new pieces, o old pieces, d features.
"""

import functools
from collections.abc import Hashable

import jax
import numpy as np

from t2t_jax.data.tokenizers.vocabulary import Vocabulary
from t2t_jax.io.messages import say
from t2t_jax.model.layers import Parameters
from t2t_jax.model.model import Model
from t2t_jax.run.partial_initialization import flat

# The parts of a sentence, which have the same meaning whatever their pieces are called.
_ROLES = ("unknown", "pad", "bos", "eos")


def remap(
    parameters: Parameters, model: Model, old: Vocabulary, new: Vocabulary
) -> Parameters:
    """Returns the parameters of a model of another vocabulary; prints what was kept.

    Args:
      parameters: float32 NumPy arrays of a model of the vocabulary `old`, or some parts
        of them.
      model: of the vocabulary `new`, and otherwise the same.
    """
    axes = flat(model.axes)

    @functools.cache
    def origins(of_source: bool) -> list[list[int]]:
        if of_source and not new.joint:
            return _origins(old.source, new.source, "the source")
        return _origins(old, new, "the vocabulary" if new.joint else "the target")

    def remapped(path: tuple, x: np.ndarray) -> np.ndarray:
        names = axes[keys := tuple(step.key for step in path)]
        if "vocab" not in names or _of_labels(keys, names, model):
            return x
        axis = names.index("vocab")
        means = _means(np.moveaxis(x, axis, 0), origins(_of_source(keys, model)))
        return np.moveaxis(means, 0, axis)

    return jax.tree.map_with_path(remapped, parameters)


def takes_labels(parameters: Parameters, model: Model) -> bool:
    """True if some parameters of a classifier belong to its labels."""
    axes = flat(model.axes)
    return any(_of_labels(keys, axes[keys], model) for keys in flat(parameters))


def _of_labels(keys: tuple, axes: tuple[str, ...], model: Model) -> bool:
    """True for a table of labels, which is taken over only if these are the same."""
    if model.predicts != "label" or "vocab" not in axes:
        return False
    return not _of_source(keys, model)


def _of_source(keys: tuple, model: Model) -> bool:
    """True for a table of the source's pieces, by its place among the parameters."""
    # With two sides it has a name of its own; with one, `tokens` is what is read.
    alone = model.predicts != "target" and keys == ("embedding", "tokens")
    return alone or keys[-1].startswith("source")


def _origins(old: Vocabulary, new: Vocabulary, name: str) -> list[list[int]]:
    """Returns the old pieces that each new one starts from; an empty list: all of them.

    Prints how many pieces are kept.
    """
    # Of pieces with the same text, the first.
    ids = {_key(old, i): i for i in reversed(range(len(old)))}
    kept = {i: ids[key] for i in range(len(new)) if (key := _key(new, i)) in ids}
    for role in _ROLES:
        both = getattr(new, role), getattr(old, role)
        if min(both) >= 0:  # -1: it has none
            kept[both[0]] = both[1]
    others = [i for i in range(len(new)) if i not in kept]
    rows = old.encode([_text(new, i) for i in others])
    begin = len(old.encode([""])[0])  # tokens before every line, such as its language
    split = {
        i: [token for token in row[begin:] if token != old.unknown]
        for i, row in zip(others, rows, strict=True)
    }
    means = sum(map(bool, split.values()))
    say(
        f"{name}: {len(kept):,} of {len(new):,} pieces keep their embeddings, "
        f"{means:,} start from the mean of the old pieces of their text, "
        f"{len(others) - means:,} from the mean of all"
    )
    return [[kept[i]] if i in kept else split[i] for i in range(len(new))]


def _key(vocabulary: Vocabulary, token: int) -> Hashable:
    """Returns what two pieces have in common that are the same: text, or their name."""
    return vocabulary.spelling(token) or ("name", vocabulary.piece(token))


def _text(vocabulary: Vocabulary, token: int) -> str:
    """Returns the text of a piece as a line; empty for a part of a character."""
    spelling = vocabulary.spelling(token)
    return spelling.strip() if isinstance(spelling, str) else ""


def _means(table_od: np.ndarray, origins: list[list[int]]) -> np.ndarray:
    """Returns the mean of some rows for each new one; of all for an empty list."""
    mean_d = table_od.mean(axis=0)
    means = [table_od[ids].mean(axis=0) if ids else mean_d for ids in origins]
    return np.stack(means).astype(table_od.dtype)
