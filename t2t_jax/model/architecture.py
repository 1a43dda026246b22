"""The interface of a model: everything outside this folder knows only this.

Shape suffixes: b batch, n hypotheses, s source, t target, d width of outputs,
v vocabulary.
"""

from typing import Any

from flax import nnx
from jax import Array

from t2t_jax.config import ModelConfig
from t2t_jax.model.layers import DropoutRng, project
from t2t_jax.model.mask import Tokens
from t2t_jax.model.products import Weight

# Fields that only some models read: for the `unused` of the others.
TRANSFORMER_FIELDS = frozenset(
    {
        "heads",
        "encoder_heads",
        "decoder_heads",
        "head_width",
        "value_width",
        "hidden",
        "encoder_hidden",
        "decoder_hidden",
        "attention",
        "attention_bias",
        "attention_dropout",
        "activation_dropout",
        "feed_forward",
        "norm",
        "residual",
    }
)
ENCODER_FIELDS = frozenset({"encoder_layers", "encoder_heads", "encoder_hidden"})
DECODER_FIELDS = frozenset({"decoder_layers", "decoder_heads", "decoder_hidden"})
POSITION_FIELDS = frozenset({"positions", "max_positions"})
NORM_FIELDS = frozenset({"norm_kind", "norm_epsilon"})
# Unused fields that may have any value, so that those of a preset need not be taken
# back to try another model on its text.
ANY_VALUE = frozenset({"heads", "hidden", "max_positions", "tied"})


class Architecture(nnx.Module):
    """The base class of all models; a subclass is a line in `MODELS`.

    A model overrides `__init__` and `outputs`; if it generates, also `encode`,
    `initial_cache` and `step`. Types are declared here and not repeated in subclasses.

    Attributes:
      packs: sentences in one row do not affect each other. If False, it trains on
        bucketed batches only.
      predicts: what its outputs are about: "target" (the next token of the target),
        "source" (a token for each place of the source, where the target is stored as
        the source is) or "label" (one label for each sentence, at the places of the
        target).
      generates: it has `encode`, `initial_cache` and `step`, so it can translate.
      has_source: its outputs depend on the source. If False, the source may have no
        columns.
      longest: the tokens of the longest row, or None for no limit.
      cross_layers: the number of layers with attention to the source, which align
        words.
      unused: the fields of `ModelConfig` that it does not read. They have to be at
        their defaults, except for `ANY_VALUE`.
      embedding: an `Embedding`, unless the model overrides `output_layer`.
    """

    packs: bool = True
    predicts: str = "target"
    generates: bool = True
    has_source: bool = True
    longest: int | None = None
    cross_layers: int = 0
    unused: frozenset[str] = frozenset()

    def __init__(
        self,
        config: ModelConfig,
        vocab_size: int,
        rng: Array,
        source_vocab_size: int | None = None,
    ):
        """Creates initial weights; all of them `nnx.Param`s with named axes.

        Args:
          source_vocab_size: None if source and target share a vocabulary.
        """
        raise NotImplementedError

    def outputs(
        self, batch: dict[str, Array], rng: DropoutRng | None = None, trace: Any = None
    ) -> Array:
        """Returns the outputs for given targets (teacher forcing), [b, t, d].

        What does not predict the target's next token does not read the target's tokens.

        Args:
          batch: of `data/batching.py` and `teacher_forcing`; int32 arrays `source`,
            `source_segment`, `source_position` [b, s] and `target_input`,
            `target_segment`, `target_position` [b, t].
          rng: for dropout; None turns it off.
          trace: a `LayerTrace`, which collects weights and outputs of every layer.
        """
        raise NotImplementedError

    def output_layer(self) -> tuple[Weight, Array | None]:
        """Returns the matrix [v, d] and the bias [v] (or None) of the logits."""
        return self.embedding.output_layer()

    def encode(
        self, source_bs: Array, at: Tokens, rng: DropoutRng | None = None
    ) -> Any:
        """Returns what decoding needs of the source: a pytree, leaves [b, ...]."""
        raise NotImplementedError

    def initial_cache(self, memory: Any, beams: int, room: int) -> Any:
        """Returns the state before the first step: a pytree, leaves [b, ...].

        Its size may depend on the source, so `memory` is that of `encode`.

        It has the methods `moved(parent_bn)`, which moves hypotheses to other rows, and
        `grown(room)`, which makes room for more steps.
        """
        raise NotImplementedError

    def step(
        self, memory: Any, cache: Any, token_bn: Array, position: Array | int
    ) -> tuple[Array, Any]:
        """Runs one decoding step of n hypotheses for each of b sentences.

        Args:
          memory: of the sentences, from `encode`.
          cache: from `initial_cache` or the previous step.
          token_bn: the tokens before `position` (BOS at 0).
          position: int scalar, the same for all hypotheses.

        Returns:
          The outputs [b, n, d] that predict the tokens at `position`, and the new
          cache.
        """
        raise NotImplementedError


def logits(
    model: Architecture,
    batch: dict[str, Array],
    rng: DropoutRng | None = None,
    trace: Any = None,
) -> Array:
    """Returns teacher-forced logits, float32 [b, t, v]; arguments as for `outputs`."""
    return project(model.outputs(batch, rng, trace), *model.output_layer())


def step_logits(
    model: Architecture, memory: Any, cache: Any, token_bn: Array, position
) -> tuple[Array, Any]:
    """Returns the logits of the next token, float32 [b, n, v], and the new cache."""
    x_bnd, cache = model.step(memory, cache, token_bn, position)
    return project(x_bnd, *model.output_layer()), cache
