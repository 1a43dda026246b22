"""Takes over the embeddings of another vocabulary: `train.remap_vocabulary`.

A token that both vocabularies have keeps its embedding, its row of the output layer
and its output bias. Any other starts from the mean of the tokens into which the old
vocabulary splits its text. Shape suffixes: v new tokens, o old tokens, d features.
"""

import functools
from collections.abc import Hashable

import numpy as np
from flax.traverse_util import flatten_dict, unflatten_dict

from t2t_jax.data.tokenizers.vocabulary import Vocabulary
from t2t_jax.io.messages import say
from t2t_jax.model.layers import Parameters
from t2t_jax.model.model import Model
from t2t_jax.run.initialization import holds_labels, holds_source_tokens

# Tokens that have the same meaning whatever they are called.
_ROLES = ("unknown", "pad", "bos", "eos")


def remap(
    parameters: Parameters, model: Model, old: Vocabulary, new: Vocabulary
) -> Parameters:
    """Returns the parameters of a model of another vocabulary; prints what was kept.

    Args:
      parameters: float32 NumPy arrays of a model of the vocabulary `old`, or some parts
        of them.
    """
    axes = flatten_dict(model.axes)

    @functools.cache
    def origins(source_side: bool) -> list[list[int]]:
        if source_side and not new.joint:
            return _origins(old.source, new.source, "the source")
        return _origins(old, new, "the vocabulary" if new.joint else "the target")

    arrays = flatten_dict(parameters)
    for path, x in arrays.items():
        names = axes[path]
        if "vocab" in names and not holds_labels(path, names, model):
            axis = names.index("vocab")
            rows = origins(holds_source_tokens(path, model))
            means = _means(np.moveaxis(x, axis, 0), rows)
            arrays[path] = np.moveaxis(means, 0, axis)
    return unflatten_dict(arrays)


def _origins(old: Vocabulary, new: Vocabulary, name: str) -> list[list[int]]:
    """Returns the old tokens that each new one starts from; an empty list: all of them.

    Prints how many tokens are kept.
    """
    # Of tokens with the same text, the first.
    ids = {_key(old, i): i for i in reversed(range(len(old)))}
    kept_ids = {i: ids[key] for i in range(len(new)) if (key := _key(new, i)) in ids}
    for role in _ROLES:
        role_ids = getattr(new, role), getattr(old, role)
        if min(role_ids) >= 0:  # -1: it has none
            kept_ids[role_ids[0]] = role_ids[1]
    new_ids = [i for i in range(len(new)) if i not in kept_ids]
    rows = old.encode([_text(new, i) for i in new_ids])
    begin = len(old.encode([""])[0])  # tokens before every line, such as its language
    split = {
        i: [token for token in row[begin:] if token != old.unknown]
        for i, row in zip(new_ids, rows, strict=True)
    }
    means = sum(map(bool, split.values()))
    say(
        f"{name}: {len(kept_ids):,} of {len(new):,} tokens keep their embeddings, "
        f"{means:,} start from the mean of the old tokens of their text, "
        f"{len(new_ids) - means:,} from the mean of all"
    )
    return [[kept_ids[i]] if i in kept_ids else split[i] for i in range(len(new))]


def _key(vocabulary: Vocabulary, token: int) -> Hashable:
    """Returns what two tokens have in common that are the same: text, or their name."""
    return vocabulary.spelling(token) or ("name", vocabulary.piece(token))


def _text(vocabulary: Vocabulary, token: int) -> str:
    """Returns the text of a token as a line; empty for a part of a character."""
    spelling = vocabulary.spelling(token)
    return spelling.strip() if isinstance(spelling, str) else ""


def _means(table_od: np.ndarray, origins: list[list[int]]) -> np.ndarray:
    """Returns the mean of some rows for each new one; of all for an empty list."""
    mean_d = table_od.mean(axis=0)
    means = [table_od[ids].mean(axis=0) if ids else mean_d for ids in origins]
    return np.stack(means).astype(table_od.dtype)
