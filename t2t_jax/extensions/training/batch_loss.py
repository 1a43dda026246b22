"""The loss of given pairs as a pure function, to differentiate in any way.

Shape suffixes: b batch, s source, t target, d model width.
"""

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax import Array

from t2t_jax.config import Config
from t2t_jax.data.corpus import Pair
from t2t_jax.data.filling import Layout, fill
from t2t_jax.data.pairs import encode_pairs
from t2t_jax.data.shapes import Shape
from t2t_jax.data.tokenizers.vocabulary import Vocabulary
from t2t_jax.io.errors import UserError
from t2t_jax.model.layers import DropoutRng, Parameters
from t2t_jax.model.model import Model
from t2t_jax.model.transformer import teacher_forcing
from t2t_jax.training.step import check_arrays, means

# (parameters, batch, rng=None, embeddings=None) -> the loss, and metrics by name.
LossFunction = Callable[..., tuple[Array, dict[str, Array]]]


def batch_of(pairs: Sequence[Pair], vocabulary: Vocabulary) -> dict[str, np.ndarray]:
    """Returns a batch of given pairs, one in each row, as training reads them.

    Args:
      pairs: (source, target) lines of text.
      vocabulary: that of the model, such as `translator.vocabulary`.

    Returns:
      `source`, `source_segment`, `source_position` and the same of `target`, int32
      [pairs, longest]: token ids, each line's ending in EOS; 1 for tokens and 0 for
      padding; positions from 0.

    Raises:
      UserError: there is no pair, or `pairs` are not pairs of texts.
    """
    pairs = checked_pairs(pairs)
    source, target = encode_pairs(pairs, vocabulary)
    longest = (int(side.lengths.max()) for side in (source, target))
    row_p, zero_p = np.arange(len(pairs), dtype=np.int32), np.zeros(len(pairs), int)
    shape = Shape(len(pairs), *longest)
    layout = Layout(shape, row_p, row_p, zero_p, zero_p, np.ones(len(pairs), int))
    return fill(layout, source, target)


def checked_pairs(pairs: Sequence[Pair]) -> list[Pair]:
    """Returns a list of pairs of texts; raises UserError if it is none."""
    pairs = [tuple(p) if isinstance(p, tuple | list) else p for p in pairs]
    if not pairs or any(
        not isinstance(p, tuple) or [*map(type, p)] != [str, str] for p in pairs
    ):
        raise UserError(
            f"pairs={pairs!r:.100}; want a list of (source, target) texts, such as "
            "[('The dog sleeps.', 'Der Hund schläft.')]"
        )
    return pairs


def loss_function(config: Config, model: Model, vocabulary: Vocabulary) -> LossFunction:
    """Returns the loss that a config trains with, as a pure function.

    `jax.jit`, `jax.grad` and the others apply to it.

    Args:
      config: frozen, such as `translator.config`.

    Returns:
      (parameters, batch, rng=None, embeddings=None) -> (loss, metrics). The loss is
      the mean over a batch of `feed` or `batch_of`, as a training step computes it;
      metrics are means, such as `nll`. `rng` is a `jax.random` key for dropout, None
      turns it off. `embeddings`, if given, are read in place of those of the tokens
      (see `embeddings_of`), to differentiate by them: those of each side, and the
      output layer, are separate even if the model has one table for all.

    Raises:
      UserError: the loss compares with other models, or the batch lacks what it needs.
    """
    objective = config.train.variant("loss")
    if objective.frozen:
        raise UserError(
            f"config.train.loss={config.train.loss!r} reads other models, which only "
            "`train` does; choose another loss"
        )

    def loss(parameters: Parameters, batch, rng=None, embeddings=None):
        check_arrays(objective, batch, config)
        module = nnx.merge(model.definition, parameters)
        if embeddings is not None:
            read_embeddings(module, **embeddings)
        rows = jnp.arange(len(batch["target"]))
        rngs = None if rng is None else DropoutRng(rng, rows)
        batch = {name: jnp.asarray(x) for name, x in batch.items()} | {"row": rows}
        total, sums = objective.sums_of(module, [], batch, rngs, config, vocabulary.bos)
        return total / jnp.maximum(objective.count(batch), 1), means(sums)

    return loss


def embeddings_of(
    parameters: Parameters, batch: dict[str, Any], vocabulary: Vocabulary
) -> dict[str, Array]:
    """Looks up the embeddings that a model reads of a batch.

    Returns:
      `source` [b, s, d] and `target` [b, t, d], float32, as the tables have them:
      before scaling, positions and dropout. Those of the target are shifted right, so
      that the first one is BOS's.
    """
    return table_rows(parameters, teacher_forcing(batch, vocabulary.bos))


def table_rows(parameters: Parameters, batch: dict[str, Any]) -> dict[str, Array]:
    """`embeddings_of` a batch that has `target_input`."""
    tables = parameters["embedding"]
    source_vd = tables.get("source_tokens", tables["tokens"])
    tokens = (source_vd, "source"), (tables["tokens"], "target_input")
    source, target = (jnp.asarray(x_vd)[batch[name]] for x_vd, name in tokens)
    return {"source": source, "target": target}


def read_embeddings(module: nnx.Module, source: Array, target: Array) -> None:
    """Lets a module read these embeddings, [b, s, d] and [b, t, d], for its tokens."""
    embedding = module.embedding

    def reader(x_btd: Array):
        b, t, d = x_btd.shape
        places_bt = jnp.arange(b * t).reshape(b, t)  # a table with a row for each

        def read(tokens_bt, at, position, rng, limit=t):
            rows = x_btd.reshape(b * t, d)
            return embedding._embed(rows, places_bt, at, position, rng, limit)

        return read

    module.embedding = SimpleNamespace(
        source=reader(source),
        target=reader(target),
        output_layer=embedding.output_layer,
    )
