"""What a translator compiles: search, sampling, scoring and attention, for one shape.

Each takes one model or several, whose predictions are then averaged: at every step the
mean of their probabilities (an ensemble). `definitions` and `parameters` are tuples of
the same length. The first axes of arrays divide into the devices of `mesh`: each
computes a block of its own. Shape suffixes: b batch, s source, t target, n hypotheses,
v vocabulary.
"""

from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
from flax import nnx
from jax import Array
from jax.sharding import PartitionSpec

from t2t_jax.decoding.hypotheses import Hypotheses
from t2t_jax.decoding.rules import Rules
from t2t_jax.decoding.sampling import sample
from t2t_jax.decoding.search import beam_search
from t2t_jax.model.attention import Seen

_SPECIAL = ("bos", "eos", "pad")
_SEARCH = ("beam", "nbest", "alpha", "penalty", "stop", "max_length", *_SPECIAL)
_SAMPLE = ("samples", "temperature", "top_k", "top_p", "alpha", "penalty")


def _compiled(*static: str) -> Callable:
    """A decorator: `jax.jit`, where each device of `mesh` has a block of its own.

    The first argument is the same for all of them.
    """

    def decorate(function: Callable) -> Callable:
        def on_devices(parameters, *arrays, mesh, **options):
            alone = partial(function, **options)
            if mesh.size == 1:
                return alone(parameters, *arrays)
            whole, divided = PartitionSpec(), PartitionSpec(mesh.axis_names)
            # Whatever loops there are end on each device when its own block is done.
            return jax.shard_map(
                alone,
                mesh=mesh,
                in_specs=(whole, *[divided] * len(arrays)),
                out_specs=divided,
                check_vma=False,
            )(parameters, *arrays)

        on_devices.__name__ = function.__name__
        on_devices.__doc__ = function.__doc__
        return jax.jit(on_devices, static_argnames=("mesh", *static))

    return decorate


@_compiled("definitions", *_SEARCH)
def searched(
    parameters,
    source_bs: Array,
    segment_bs: Array,
    limit_b: Array,
    rules: Rules | None,
    *,
    definitions,
    beam: int,
    max_length: int,
    **options,
) -> Hypotheses:
    """Encodes, remembers and searches: `beam_search`."""
    step, cache = _decoder(
        definitions, parameters, source_bs, segment_bs, beam, max_length
    )
    options = dict(options, beam=beam, max_length=max_length, rules=rules)
    return beam_search(step, cache, limit_b, **options)


@_compiled("definitions", *_SAMPLE, "max_length", *_SPECIAL)
def sampled(
    parameters,
    source_bs: Array,
    segment_bs: Array,
    limit_b: Array,
    rules: Rules | None,
    seed_b: Array,
    hash_b2: Array,
    *,
    definitions,
    samples: int,
    max_length: int,
    **options,
) -> Hypotheses:
    """Encodes, remembers and samples: `sample`.

    The key of a hypothesis is made of the seed, a hash of its source and its number.
    """

    def keys(seed, hash_2):
        of_line = jax.random.key(seed)
        for part in hash_2:
            of_line = jax.random.fold_in(of_line, part)
        return jax.vmap(partial(jax.random.fold_in, of_line))(jnp.arange(samples))

    step, cache = _decoder(
        definitions, parameters, source_bs, segment_bs, samples, max_length
    )
    options = dict(options, max_length=max_length, rules=rules)
    return sample(step, cache, limit_b, jax.vmap(keys)(seed_b, hash_b2), **options)


@_compiled("definitions")
def forced(parameters, batch: dict[str, Array], *, definitions) -> Array:
    """float32 [b, t]: the log-probability of each token of `batch["target"]`."""
    models = map(nnx.merge, definitions, parameters)
    logits_btv = combined([model(batch) for model in models])
    chosen_bt1 = jnp.take_along_axis(logits_btv, batch["target"][..., None], axis=2)
    return chosen_bt1[..., 0] - jax.nn.logsumexp(logits_btv, axis=2)


@_compiled("definition")
def attended(parameters, batch: dict[str, Array], *, definition) -> Seen:
    """The weights of one model: arrays [b, layers, heads, queries, keys]."""
    seen = Seen([], [], [])
    nnx.merge(definition, parameters)(batch, seen=seen)
    return Seen(*(jnp.stack(layers, axis=1) for layers in seen))


def combined(logits: list[Array]) -> Array:
    """Logits of the mean of several distributions; one is left as it is."""
    if len(logits) == 1:
        return logits[0]
    log_probs = [jax.nn.log_softmax(x.astype(jnp.float32)) for x in logits]
    return jax.nn.logsumexp(jnp.stack(log_probs), axis=0) - jnp.log(len(logits))


def _decoder(definitions, parameters, source_bs, segment_bs, rows, max_length):
    """The step function of a search, and its empty cache."""
    models = [nnx.merge(*pair) for pair in zip(definitions, parameters, strict=True)]
    position_bs = jnp.broadcast_to(jnp.arange(source_bs.shape[1]), source_bs.shape)
    memories = [model.remember(source_bs, segment_bs, position_bs) for model in models]

    def step(caches, token_bn, position):
        results = [
            model.step(memory, cache, token_bn, position)
            for model, memory, cache in zip(models, memories, caches, strict=True)
        ]
        logits, caches = zip(*results, strict=True)
        return combined(list(logits)), list(caches)

    batch = source_bs.shape[0]
    return step, [model.empty_cache(batch, rows, max_length) for model in models]
