"""Builds a model: its definition, and the shapes and axes of its parameters.

A model is a pair: a definition (the module without arrays) and parameters (a plain dict
of arrays). Inside `jax.jit`, `nnx.merge(definition, parameters)` restores the module at
no cost.
"""

import dataclasses
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from flax import nnx
from jax import Array

from t2t_jax.config import Config, ModelConfig
from t2t_jax.io.errors import UserError
from t2t_jax.model import products
from t2t_jax.model.architecture import ANY_VALUE, Architecture
from t2t_jax.model.layers import Parameters, compute_dtype
from t2t_jax.model.transformer import Transformer
from t2t_jax.sections import Table, known_options

# An architecture is a subclass of `Architecture`, and a line here: the class itself, or
# its address.
MODELS = Table(
    {
        "transformer": Transformer,
        "encoder_only": "extensions.model.one_sided.EncoderOnly",
        "decoder_only": "extensions.model.one_sided.DecoderOnly",
        "classifier": "extensions.model.one_sided.Classifier",
        "lstm": "extensions.model.lstm.LSTM",
        "conv": "extensions.model.conv.ConvS2S",
        "bytenet": "extensions.model.bytenet.ByteNet",
        "neural_gpu": "extensions.model.neural_gpu.NeuralGPU",
    }
)


class Model(NamedTuple):
    """A model without parameter values."""

    definition: nnx.GraphDef  # for `nnx.merge(definition, parameters)`
    # Random key -> parameters, a plain nested dict of float32 arrays.
    init: Callable[[Array], Parameters]
    shapes: Parameters  # the parameters as `jax.ShapeDtypeStruct`s
    # The logical axis names of each parameter, in a dict of the same structure.
    axes: Parameters
    # The axes of each that products sum over; () for what is no factor of `product`.
    summed: Parameters
    # packs, predicts, generates, has_source, longest, cross_layers: of its
    # `Architecture`.
    packs: bool
    predicts: str
    generates: bool
    has_source: bool
    longest: int | None
    cross_layers: int

    def count(self) -> int:
        """Returns the number of parameters."""
        return sum(x.size for x in jax.tree.leaves(self.shapes))

    def for_search(self, parameters: Parameters, config: ModelConfig, platform: str):
        """Returns parameters as searches multiply by them on `cpu`, `gpu` or `tpu`."""
        if platform == "cpu":
            if config.products == "float32":
                return products.transposed(parameters, self.summed)
        elif (dtype := compute_dtype(config)) != "float32":
            return products.converted(parameters, self.summed, dtype)
        return parameters


def build(
    config: ModelConfig, vocab_size: int, source_vocab_size: int | None = None
) -> Model:
    """Builds the model of a config, without allocating arrays.

    Args:
      vocab_size: of the target.
      source_vocab_size: None if both sides share a vocabulary.

    Raises:
      UserError: a field names no variant, or fields contradict each other.
    """
    kind = config.variant("kind")
    _check_unused(config)
    return from_constructor(
        lambda rng: products.with_products(
            kind(config, vocab_size, rng, source_vocab_size), config
        )
    )


def _check_unused(config: ModelConfig) -> None:
    """Refuses a choice or an option without effect; raises UserError."""

    def refuse(name: str, value, default):
        raise UserError(
            f"config.model.{name}={value!r} has no effect with config.model.kind="
            f"{config.kind!r}; set it to {default!r}, or choose another kind"
        )

    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        may_differ = config.reads(field.name) or field.name in ANY_VALUE
        if value != field.default and not may_differ:
            refuse(field.name, value, field.default)
    # An option belongs to certain choices, such as "positions='rotary'".
    choices_read = {
        f"{f.name}={getattr(config, f.name)!r}"
        for f in config.choosers()
        if config.reads(f.name)
    }
    owners = known_options(config)
    for name, value in config.options.items():
        field, choices = owners[name]
        if choices_read.isdisjoint(choices):
            refuse(f"options.{name}", value, field.default)


def check_batching(model: Model, config: Config) -> None:
    """Raises UserError if a batch has rows that the model cannot read."""
    if config.data.batching == "packed" and not model.packs:
        raise UserError(
            f"config.model.kind={config.model.kind!r} cannot tell the sentences of a "
            "packed row apart; choose config.data.batching='bucketed'"
        )


def from_constructor(make: Callable[[Array], Architecture]) -> Model:
    """Builds the model of a function that creates the module from a random key."""

    def init(rng):
        return nnx.to_pure_dict(nnx.split(make(rng))[1])

    # Traces the constructor: all shapes and axis names, and no arrays.
    abstract = nnx.eval_shape(make, jax.random.key(0))
    definition, state = nnx.split(abstract)

    def metadata(name: str) -> Parameters:
        values = jax.tree.map(
            lambda variable: variable.get_metadata(name, ()),
            state,
            is_leaf=lambda x: isinstance(x, nnx.Variable),
        )
        return nnx.to_pure_dict(values)

    return Model(
        definition,
        init,
        nnx.to_pure_dict(state),
        metadata("axes"),
        metadata("summed"),
        packs=abstract.packs,
        predicts=abstract.predicts,
        generates=abstract.generates,
        has_source=abstract.has_source,
        longest=abstract.longest,
        cross_layers=abstract.cross_layers,
    )


def describe_dtype(config: ModelConfig) -> str:
    """Returns `compute_dtype` as text, with the reason if it may surprise."""
    dtype, device = compute_dtype(config).name, jax.devices()[0].device_kind
    if config.products == "bfloat16":
        effect = ", products in bfloat16"
        if dtype != "float32":
            effect = " (config.model.products='bfloat16' has no effect)"
        config = dataclasses.replace(config, products="float32")
        return describe_dtype(config) + effect
    native = compute_dtype(dataclasses.replace(config, dtype="auto")) == jnp.bfloat16
    if native or config.dtype == "float32":
        return dtype
    if dtype == "bfloat16":
        return f"bfloat16 (emulated: this {device} has no native bfloat16)"
    return f"float32 (this {device} has no native bfloat16)"
