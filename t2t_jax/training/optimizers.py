"""Optimizers (section 5.3): `OPTIMIZERS`.

An entry turns gradients into a direction. `optimizer` adds what all of them share: the
gradients are clipped before, weights decayed and the learning rate applied after. It
gets the parameters that are trained: see `split_frozen`.
"""

import dataclasses
from collections.abc import Callable
from typing import NamedTuple

import jax
import optax

from t2t_jax.config import Config
from t2t_jax.model.layers import Parameters
from t2t_jax.sections import at_address, field
from t2t_jax.training.schedules import schedule


class Optimizer(NamedTuple):
    """An optimizer.

    Attributes:
      direction: config -> gradients to updates, before the learning rate scales them
        and turns them downhill.
      Options: a dataclass of hyperparameters, `config.train.options`.
    """

    direction: Callable[[Config], optax.GradientTransformation]
    Options: type | None = None


def optimizer(config: Config) -> optax.GradientTransformation:
    """The optimizer that a config chooses, with its learning rate.

    Weight decay is decoupled from the gradient and scaled by the learning rate, as in
    AdamW (Loshchilov and Hutter 2019).
    """
    train = config.train
    parts = [
        train.variant("optimizer").direction(config),
        optax.scale_by_learning_rate(schedule(config)),
    ]
    # What is not used is not in the chain: the state of a run without it, as stored in
    # its checkpoints, has no place for it.
    if train.weight_decay:
        parts.insert(1, optax.add_decayed_weights(train.weight_decay, is_decayed))
    if train.clip_norm:
        parts.insert(0, optax.clip_by_global_norm(train.clip_norm))
    if train.layer_decay != 1:
        parts.append(scale_by_depth(train.layer_decay))
    return optax.chain(*parts)


def is_decayed(parameters: Parameters) -> Parameters:
    """True for weights, embeddings included; False for biases and norms.

    An embedding table is decayed, as it usually is the output projection, too. A bias
    is known by its name, because those of attention have two axes, [heads, head width].
    """
    return jax.tree.map_with_path(
        lambda path, x: x.ndim > 1 and not path[-1].key.endswith("bias"), parameters
    )


# ------------------------------------------------------------------------- the entries


def adam(config: Config) -> optax.GradientTransformation:
    """Adam (Kingma and Ba 2015); by default beta 0.9 and 0.98, epsilon 1e-9."""
    train = config.train
    return optax.scale_by_adam(train.adam_b1, train.adam_b2, train.adam_epsilon)


@dataclasses.dataclass(frozen=True)
class Adafactor:
    """Options of `adafactor`."""

    # The second moments decay as 1 - step^-adafactor_decay (section 7.2).
    adafactor_decay: float = field(0.8, low=0)
    # Matrices with two axes of at least this size store only the mean of their rows
    # and of their columns; others all second moments.
    adafactor_factored_from: int = field(128, low=1)
    # Steps are relative to the root mean square of an array (section 8), so the
    # learning rate is one, too.
    adafactor_relative: bool = field(True)


def adafactor(config: Config) -> optax.GradientTransformation:
    """Adafactor (Shazeer and Stern 2018), without momentum."""
    options = config.train.own_options(OPTIMIZERS["adafactor"])
    parts = [
        optax.scale_by_factored_rms(
            decay_rate=options.adafactor_decay,
            min_dim_size_to_factor=options.adafactor_factored_from,
        ),
        optax.clip_by_block_rms(1.0),  # section 6: d = 1
    ]
    if options.adafactor_relative:
        parts.append(optax.scale_by_param_block_rms())
    return optax.chain(*parts)


@dataclasses.dataclass(frozen=True)
class Lion:
    """Options of `lion`."""

    # The share of the old momentum in the update.
    lion_b1: float = field(0.9, low=0)
    # The decay of the momentum.
    lion_b2: float = field(0.99, low=0)


def lion(config: Config) -> optax.GradientTransformation:
    """Lion (Chen et al. 2023): the sign of a momentum.

    Steps are larger than Adam's at the same learning rate; the authors take a 3 to 10
    times smaller one, and weight decay larger by as much.
    """
    options = config.train.own_options(OPTIMIZERS["lion"])
    return optax.scale_by_lion(options.lion_b1, options.lion_b2)


@dataclasses.dataclass(frozen=True)
class Sgd:
    """Options of `sgd`."""

    # The decay of the running sum of gradients; 0: none.
    momentum: float = field(0.9, low=0, below=1)
    # Nesterov's accelerated gradient (Sutskever et al. 2013).
    nesterov: bool = field(False)


def sgd(config: Config) -> optax.GradientTransformation:
    """Stochastic gradient descent with momentum."""
    options = config.train.own_options(OPTIMIZERS["sgd"])
    if not options.momentum:
        return optax.identity()  # nothing to remember
    return optax.trace(options.momentum, options.nesterov)


OPTIMIZERS = {
    "adam": Optimizer(adam),
    "adafactor": Optimizer(adafactor, Adafactor),
    "lion": Optimizer(lion, Lion),
    "sgd": Optimizer(sgd, Sgd),
}


# ----------------------------------------------------------------- groups of parameters
# Parts and layers that are frozen, or have lower rates. Both go by the names of the
# parameters: a model is a dict of parts, such as `embedding` and `encoder`, and a stack
# of layers is a part whose keys are the layers' numbers.


def in_part(key: str, part: str) -> bool:
    """True if a top-level parameter belongs to a part: `encoder_norm` to `encoder`."""
    return key == part or key.startswith(f"{part}_")


def split_frozen(parameters: Parameters, names: str) -> tuple[Parameters, Parameters]:
    """Splits parameters into trained and frozen ones; `joined` undoes it."""
    if not names:
        return parameters, {}
    return at_address("extensions.training.freezing.split")(parameters, names)


def joined(trained: Parameters, frozen: Parameters) -> Parameters:
    """The parameters of the two halves that `split_frozen` returns."""
    shared = {key: frozen[key] | trained[key] for key in frozen if key in trained}
    return frozen | trained | shared


def depths(parameters: Parameters) -> Parameters:
    """Numbers each array by its distance from the output, in layers.

    1 is the last layer of a stack, N the first of N, and N + 1 for embeddings and
    position tables, below the deepest stack. Everything else, such as the output layer
    and the normalization after a stack, is 0. The stacks of an encoder-decoder are
    counted each from its own end.
    """
    sizes = {
        part: 1 + max(numbers)
        for part, inner in parameters.items()
        if isinstance(inner, dict)
        and (numbers := [key for key in inner if isinstance(key, int)])
        and not part.endswith("_positions")
    }
    bottom = 1 + max(sizes.values(), default=0)

    def depth(path, _):
        part, *inner = (step.key for step in path)
        if part in sizes:
            return sizes[part] - inner[0]
        return bottom if part == "embedding" or part.endswith("_positions") else 0

    return jax.tree.map_with_path(depth, parameters)


def scale_by_depth(decay: float) -> optax.GradientTransformation:
    """Multiplies each update by decay^depth (Howard and Ruder 2018; see `depths`)."""

    def scaled(updates, _):
        return jax.tree.map(lambda x, depth: x * decay**depth, updates, depths(updates))

    return optax.stateless(scaled)
