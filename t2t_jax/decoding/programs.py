"""What a translator compiles: search, sampling, scoring and attention, for one shape.

Each takes one model or several, whose predictions are then averaged: at every step the
mean of their probabilities (an ensemble). `definitions` and `parameters` are tuples of
the same length. The first axes of arrays divide into the devices of `mesh`: each
computes a block of its own. Shape suffixes: b batch, s source, t target, n hypotheses,
v vocabulary.

A search goes from position to position (`decoding/refilling.py`): one program begins
it, another goes on for as many positions as it is told. Caches have room for no more
than is near, so there is one such program for every size of them.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import nnx
from jax import Array
from jax.sharding import PartitionSpec

from t2t_jax.decoding import sampling, search
from t2t_jax.decoding.hypotheses import Hypotheses, Step
from t2t_jax.decoding.rules import Rules
from t2t_jax.model.attention import Seen

_SPECIAL = ("bos", "eos", "pad")
_SCORES = ("alpha", "penalty")


class State(NamedTuple):
    """A search of models on its way.

    Attributes:
      memories: what each model remembers of the sources.
      search: of `search.py` or `sampling.py`; its cache is a list with each model's.
    """

    memories: list[Any]
    search: search.State | sampling.State


class Advanced(NamedTuple):
    """What has become of a search.

    Attributes:
      state: the search, for the next positions.
      stopped_b: bool, the sentences of which all is known.
      found: their hypotheses; those of the others mean nothing.
    """

    state: State
    stopped_b: Array
    found: Hypotheses


def _compiled(*static: str, common: int = 1, donated: tuple[int, ...] = ()) -> Callable:
    """A decorator: `jax.jit`, where each device of `mesh` has a block of its own.

    Args:
      common: how many of the first arguments are the same for all of them.
      donated: the arguments whose memory the result may take.
    """

    def decorate(function: Callable) -> Callable:
        def on_devices(*arrays, mesh, **options):
            alone = partial(function, **options)
            if mesh.size == 1:
                return alone(*arrays)
            whole, divided = PartitionSpec(), PartitionSpec(mesh.axis_names)
            # Whatever loops there are end on each device when its own block is done.
            return jax.shard_map(
                alone,
                mesh=mesh,
                in_specs=(*[whole] * common, *[divided] * (len(arrays) - common)),
                out_specs=divided,
                check_vma=False,
            )(*arrays)

        on_devices.__name__ = function.__name__
        on_devices.__doc__ = function.__doc__
        return jax.jit(
            on_devices, static_argnames=("mesh", *static), donate_argnums=donated
        )

    return decorate


@_compiled("definitions", "room", "max_length", "beam", "nbest", "bos", "pad")
def search_begun(
    parameters,
    source_bs: Array,
    segment_bs: Array,
    limit_b: Array,
    rules: Rules | None,
    *,
    definitions,
    room: int,
    beam: int,
    **options,
) -> State:
    """Encodes and remembers; `search.start`, with caches for `room` positions."""
    memories, cache = _begun(definitions, parameters, source_bs, segment_bs, beam, room)
    return State(memories, search.start(cache, limit_b, rules, beam=beam, **options))


@_compiled("definitions", *_SCORES, "stop", *_SPECIAL, common=3, donated=(3,))
def search_advanced(
    parameters,
    position: Array,
    until: Array,
    state: State,
    there_b: Array,
    rules: Rules | None,
    *,
    definitions,
    **options,
) -> Advanced:
    """`search.advance`, and what it has come to."""
    step = _step(definitions, parameters, state.memories)
    after = search.advance(
        step, state.search, position, until, rules, there_b, **options
    )
    scores = {name: options[name] for name in (*_SCORES, "eos")}
    found = search.result(after, rules, **scores)
    return Advanced(State(state.memories, after), after.stopped_b, found)


@_compiled("definitions", "room", "max_length", "samples", "bos", "pad", common=2)
def sample_begun(
    parameters,
    seed: Array,
    source_bs: Array,
    segment_bs: Array,
    limit_b: Array,
    rules: Rules | None,
    hash_b2: Array,
    *,
    definitions,
    room: int,
    samples: int,
    **options,
) -> State:
    """Encodes and remembers; `sampling.start`, with caches for `room` positions.

    The key of a hypothesis is made of the seed, a hash of its source and its number.
    """

    def keys(hash_2):
        of_line = jax.random.key(seed)
        for part in hash_2:
            of_line = jax.random.fold_in(of_line, part)
        return jax.vmap(partial(jax.random.fold_in, of_line))(jnp.arange(samples))

    memories, cache = _begun(
        definitions, parameters, source_bs, segment_bs, samples, room
    )
    key_bn = jax.vmap(keys)(hash_b2)
    return State(memories, sampling.start(cache, limit_b, key_bn, rules, **options))


@_compiled(
    *("definitions", "temperature", "top_k", "top_p", *_SCORES, *_SPECIAL),
    common=3,
    donated=(3,),
)
def sample_advanced(
    parameters,
    position: Array,
    until: Array,
    state: State,
    there_b: Array,
    rules: Rules | None,
    *,
    definitions,
    **options,
) -> Advanced:
    """`sampling.advance`, and what it has come to."""
    step = _step(definitions, parameters, state.memories)
    after = sampling.advance(
        step, state.search, position, until, rules, there_b, **options
    )
    found = sampling.result(after, pad=options["pad"])
    return Advanced(State(state.memories, after), after.stopped_b, found)


@_compiled("room", common=0)
def grown(state: State, *, room: int) -> State:
    """The same search with caches for `room` positions, at least as many as before."""
    cache = [model.grown(room) for model in state.search.cache]
    return State(state.memories, state.search._replace(cache=cache))


@_compiled(common=0, donated=(0,))
def refilled(state: State, other: State, from_b: Array) -> State:
    """`state` with rows of another at the same position.

    Args:
      from_b: int32, the row of `other` (on each device, of its own) that takes the
        place of this one; -1 where this one stays.
    """

    def filled(mine: Array, others: Array) -> Array:
        taken_b = (from_b >= 0).reshape(-1, *[1] * (mine.ndim - 1))
        return jnp.where(taken_b, others[jnp.maximum(from_b, 0)], mine)

    return jax.tree.map(filled, state, other)


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


def _begun(definitions, parameters, source_bs, segment_bs, rows: int, room: int):
    """What each model remembers of the sources, and its empty cache."""
    models = [nnx.merge(*pair) for pair in zip(definitions, parameters, strict=True)]
    position_bs = jnp.broadcast_to(jnp.arange(source_bs.shape[1]), source_bs.shape)
    memories = [model.remember(source_bs, segment_bs, position_bs) for model in models]
    batch = source_bs.shape[0]
    return memories, [model.empty_cache(batch, rows, room) for model in models]


def _step(definitions, parameters, memories) -> Step:
    """The step function of a search."""
    models = [nnx.merge(*pair) for pair in zip(definitions, parameters, strict=True)]

    def step(caches, token_bn, position):
        results = [
            model.step(memory, cache, token_bn, position)
            for model, memory, cache in zip(models, memories, caches, strict=True)
        ]
        logits, caches = zip(*results, strict=True)
        return combined(list(logits)), list(caches)

    return step
