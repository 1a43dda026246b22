"""Compiled programs of a translator: search, scoring and attention, for one shape.

A program takes one model or several (an ensemble), whose probabilities are averaged at
every step. `definitions` and `parameters` are tuples of the same length. The first axis
of an array is divided among the devices of `mesh`, and each device computes its own
block. Shape suffixes: b batch, s source, t target, n hypotheses, v vocabulary.

A search advances a few positions at a time (`decoding/batch_decoding.py`): one
program begins it, another advances it to a given position. Caches only have room for
the positions reached so far, so `advance_search` is compiled once for each cache size.
"""

import contextlib
import functools
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax import Array
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jax.stages import Lowered

from t2t_jax.model.architecture import logits, step_logits
from t2t_jax.model.attention import LayerTrace
from t2t_jax.model.decoder_cache import Cache
from t2t_jax.model.layers import DropoutRng
from t2t_jax.model.mask import Tokens
from t2t_jax.parallel.machine import tree_bytes
from t2t_jax.parallel.mesh import accepted_options, targeting
from t2t_jax.search.algorithm import Algorithm, Hypotheses, Step
from t2t_jax.search.rules import Rules


class Block(NamedTuple):
    """The input of a search: sentences of one shape, one block for each device."""

    source_bs: Array  # int32
    segment_bs: Array  # int32
    limit_b: Array  # int32, the longest outputs, in tokens with the end
    rules: Rules | None  # constraints on the outputs, or None
    hash_b2: Array  # uint32, a hash of the source; seeds the rng of the sentence
    seed_b: Array  # uint32; seeds it, too


class SearchState(NamedTuple):
    """A search in progress, with the encoded sources."""

    memories: list[Any]  # each model's `encode` of the sources
    search: Any  # the state of the algorithm; its cache is a list of each model's cache


class Advanced(NamedTuple):
    """The result of advancing a search."""

    state: SearchState
    stopped_b: Array  # bool, the sentences whose result is final
    result: Hypotheses  # their hypotheses; undefined for the others


class Search(NamedTuple):
    """A search algorithm over some models, compiled for a mesh."""

    parameters: tuple[Any, ...]
    definitions: tuple[Any, ...]
    mesh: Mesh
    algorithm: Algorithm

    def begin(self, block: Block, room: int, max_length: int) -> SearchState:
        """`begin_search`; `block` is on the devices."""
        return begin_search(
            self.parameters,
            block,
            definitions=self.definitions,
            algorithm=self.algorithm,
            room=room,
            max_length=max_length,
            mesh=self.mesh,
        )

    def advance(
        self,
        state: SearchState,
        position: int,
        until: int,
        present_b: np.ndarray,
        rules: Rules | None,
    ) -> Advanced:
        """`advance_search`; donates `state`, which must not be used again."""
        return advance_search(
            self.parameters,
            np.int32(position),
            np.int32(until),
            state,
            present_b,
            rules,
            definitions=self.definitions,
            algorithm=self.algorithm,
            mesh=self.mesh,
        )

    def memory(self, rows: int, bucket: int, max_length: int) -> tuple[float, float]:
        """Least bytes on a device of a search that reaches `max_length`.

        Computes nothing: the shapes of the arrays follow from those of the models.

        Args:
          rows, bucket: the shape of a device's block.

        Returns:
          (a, b): n hypotheses of each sentence take a * n + b * n^2 bytes.
        """
        _, state = self._shapes(rows, bucket, max_length, max_length)
        state, devices = state.search, self.mesh.size
        stored = tree_bytes(state)
        # Each hypothesis attends to the keys of all hypotheses of its sentence, layer
        # by layer, with float32 scores (`model/decoder_cache.py`).
        heads = [c.kvs[0][0].shape[1] for c in state.cache if isinstance(c, Cache)]
        scores = 4 * rows * max(heads, default=0) * max_length
        return stored / devices / self.algorithm.rows, scores

    def lowered(self, rows: int, bucket: int, room: int, max_length: int) -> Lowered:
        """`advance_search` for blocks of a shape, on devices that may not be here.

        Args:
          rows, bucket, room, max_length: as for `begin` and `memory`.
        """
        divided = NamedSharding(self.mesh, PartitionSpec(self.mesh.axis_names))
        replicated = NamedSharding(self.mesh, PartitionSpec())

        def placed(tree, sharding):
            return jax.tree.map(
                lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=sharding),
                tree,
            )

        block, state = self._shapes(rows, bucket, room, max_length)
        number = jax.ShapeDtypeStruct((), jnp.int32, sharding=replicated)
        present = jax.ShapeDtypeStruct(block.limit_b.shape, jnp.bool, sharding=divided)
        return advance_search.jitted().lower(
            placed(self.parameters, replicated),
            *(number, number, placed(state, divided), present, None),
            definitions=self.definitions,
            algorithm=self.algorithm,
            mesh=self.mesh,
        )

    def _shapes(
        self, rows: int, bucket: int, room: int, max_length: int
    ) -> tuple[Block, SearchState]:
        """Shapes and types of a block for each device, and of the search it starts."""
        lines = self.mesh.size * rows
        side = jax.ShapeDtypeStruct((lines, bucket), jnp.int32)
        limit = jax.ShapeDtypeStruct((lines,), jnp.int32)
        hashes = jax.ShapeDtypeStruct((lines, 2), jnp.uint32)
        seeds = jax.ShapeDtypeStruct((lines,), jnp.uint32)
        begin = partial(
            begin_search.__wrapped__,  # a program with XLA's options is not traced
            definitions=self.definitions,
            algorithm=self.algorithm,
            room=room,
            max_length=max_length,
            mesh=self.mesh,
        )
        block = Block(side, side, limit, None, hashes, seeds)
        return block, jax.eval_shape(begin, self.parameters, block)


@functools.cache
def _search_options() -> dict[str, str] | None:
    """Options of XLA with which a row's bits depend less on the number of rows.

    On a CPU XLA gives operations with many elements to a library, which rounds them
    otherwise than its own code; here it gets products alone (docs/notes/cpu-speed.md).
    """
    kind = "LIBRARY_FUSION_TYPE_INDIVIDUAL_DOT"
    if jax.default_backend() != "cpu":
        return None
    # Another XLA may not have this library, or option.
    options = {"xla_cpu_experimental_ynn_fusion_type": kind}
    return accepted_options(options, jax.devices()[0])


# Called with a program, its arrays and its fields, in place of `jax.jit`.
_runner: ContextVar[Callable | None] = ContextVar("runner", default=None)


@contextlib.contextmanager
def run_by(runner: Callable[[Callable, tuple, dict[str, Any]], Any]) -> Iterator[None]:
    """Lets a function run the programs that are called in the block."""
    token = _runner.set(runner)
    try:
        yield
    finally:
        _runner.reset(token)


def program(
    *static: str,
    common: int = 1,
    donated: tuple[int, ...] = (),
    options: Callable[[], dict | None] = lambda: None,
) -> Callable:
    """Returns a decorator: jits a function that each device of `mesh` runs on a block.

    Args:
      static: names of static keyword arguments, besides `mesh`.
      common: the number of leading arguments that are replicated on all devices; the
        others are divided among them.
      donated: positions of arguments whose memory the result may reuse.
      options: returns XLA's options; called when the program is.
    """

    def decorate(function: Callable) -> Callable:
        def on_devices(*arrays, mesh, **options):
            on_one = partial(function, **options)
            with targeting(mesh):  # kernels are chosen for these devices
                if mesh.size == 1:
                    return on_one(*arrays)
                replicated = PartitionSpec()
                divided = PartitionSpec(mesh.axis_names)  # axis 0, by all mesh axes
                specs = [replicated] * common + [divided] * (len(arrays) - common)
                # In a `shard_map`, and not partitioned by XLA: so a while loop ends on
                # each device when its own block is done.
                return jax.shard_map(
                    on_one,
                    mesh=mesh,
                    in_specs=tuple(specs),
                    out_specs=divided,
                    check_vma=False,
                )(*arrays)

        on_devices.__name__ = function.__name__  # names the program in profiles
        on_devices.__doc__ = function.__doc__

        @functools.cache
        def jitted() -> Callable:
            return jax.jit(
                on_devices,
                static_argnames=("mesh", *static),
                donate_argnums=donated,
                compiler_options=options(),
            )

        @functools.wraps(on_devices)
        def call(*arrays, **fields):
            if run := _runner.get():
                return run(call, arrays, fields)
            return jitted()(*arrays, **fields)

        call.jitted = jitted  # to lower it
        return call

    return decorate


@program("definitions", "algorithm", "room", "max_length", options=_search_options)
def begin_search(
    parameters,
    block: Block,
    *,
    definitions,
    algorithm: Algorithm,
    room: int,
    max_length: int,
) -> SearchState:
    """Encodes the sources and starts a search, with caches for `room` positions.

    A sentence's rng depends on its seed and its own tokens, not on its batch.
    """
    source_bs = block.source_bs
    models = [nnx.merge(*pair) for pair in zip(definitions, parameters, strict=True)]
    position_bs = jnp.broadcast_to(jnp.arange(source_bs.shape[1]), source_bs.shape)
    tokens = Tokens(block.segment_bs, position_bs)
    memories = [model.encode(source_bs, tokens) for model in models]
    cache = [
        model.initial_cache(memory, algorithm.rows, room)
        for model, memory in zip(models, memories, strict=True)
    ]

    def sentence_rng(seed, hash_2):
        rng = jax.random.key(seed)
        for part in hash_2:
            rng = jax.random.fold_in(rng, part)
        return rng

    rng_b = jax.vmap(sentence_rng)(block.seed_b, block.hash_b2)
    state = algorithm.start(
        cache, block.limit_b, block.rules, rng_b, max_length=max_length
    )
    return SearchState(memories, state)


@program("definitions", "algorithm", common=3, donated=(3,), options=_search_options)
def advance_search(
    parameters,
    position: Array,
    until: Array,
    state: SearchState,
    present_b: Array,
    rules: Rules | None,
    *,
    definitions,
    algorithm: Algorithm,
) -> Advanced:
    """Advances a search from `position` to `until`; arguments as for `Algorithm`."""
    step = ensemble_step(definitions, parameters, state.memories)
    advanced = algorithm.advance(step, state.search, position, until, rules, present_b)
    result = algorithm.result(advanced, rules)
    return Advanced(SearchState(state.memories, advanced), advanced.stopped_b, result)


@program("room", common=0)
def grow_caches(state: SearchState, *, room: int) -> SearchState:
    """Returns the search with caches for `room` positions."""
    cache = [model.grown(room) for model in state.search.cache]
    return SearchState(state.memories, state.search._replace(cache=cache))


@program(common=0, donated=(0,))
def merge_rows(state: SearchState, other: SearchState, from_b: Array) -> SearchState:
    """Moves rows of another search at the same position into this one.

    Args:
      from_b: int32, the row of `other` (on each device, of its own block) that replaces
        this row; -1 keeps this row.
    """

    def merge(own_leaf: Array, other_leaf: Array) -> Array:
        taken_b = (from_b >= 0).reshape(-1, *[1] * (own_leaf.ndim - 1))
        # -1 becomes any valid index; `where` drops what it selects.
        return jnp.where(taken_b, other_leaf[jnp.maximum(from_b, 0)], own_leaf)

    return jax.tree.map(merge, state, other)


@program("definitions")
def target_log_probs(parameters, batch: dict[str, Array], *, definitions) -> Array:
    """Returns the log-probabilities of `batch["target"]`, float32 [b, t]."""
    logits_btv = forced_logits(definitions, parameters, batch)
    return _log_probs_of(batch["target"], logits_btv)


def _log_probs_of(target_bt: Array, logits_btv: Array) -> Array:
    """Returns the log-probabilities of tokens under logits, float32 [b, t]."""
    logit_bt1 = jnp.take_along_axis(logits_btv, target_bt[..., None], axis=2)
    return logit_bt1[..., 0] - jax.nn.logsumexp(logits_btv, axis=2)


@program("definitions")
def target_entropies(parameters, batch: dict[str, Array], *, definitions) -> Array:
    """Returns the entropy of each place's distribution, in nats, float32 [b, t]."""
    logits_btv = forced_logits(definitions, parameters, batch)
    log_probs_btv = jax.nn.log_softmax(logits_btv.astype(jnp.float32))
    return -jnp.sum(jnp.exp(log_probs_btv) * log_probs_btv, axis=2)


@program("definitions", common=3)
def dropout_log_probs(
    parameters, seed: Array, number: Array, batch: dict[str, Array], *, definitions
) -> Array:
    """Returns `target_log_probs` with dropout.

    The dropout of a row depends on its tokens, the seed and the number of the pass.
    """
    key = jax.random.fold_in(jax.random.key(seed), number)
    row_b = row_hashes(batch)
    models = map(nnx.merge, definitions, parameters)
    logits_btv = ensemble_logits(
        [
            logits(model, batch, DropoutRng(jax.random.fold_in(key, i), row_b))
            for i, model in enumerate(models)
        ]
    )
    return _log_probs_of(batch["target"], logits_btv)


def row_hashes(batch: dict[str, Array]) -> Array:
    """Returns a hash of the tokens of each row of both sides, uint32 [b].

    It does not depend on the padding: a polynomial in an odd number, modulo 2^32.
    """

    def polynomial(side: str, base: int) -> Array:
        token_bt = batch[side].astype(jnp.uint32) + 1
        real_bt = (batch[f"{side}_segment"] > 0).astype(jnp.uint32)
        power_t = jnp.cumprod(jnp.full(token_bt.shape[1], np.uint32(base)))
        return jnp.sum(token_bt * real_bt * power_t, axis=1, dtype=jnp.uint32)

    # Two large odd numbers, of Knuth's and of MurmurHash's multiplicative hashing.
    return polynomial("source", 2_654_435_761) ^ polynomial("target", 0x85EBCA6B)


@program("definitions")
def label_log_probs(parameters, batch: dict[str, Array], *, definitions) -> Array:
    """Returns the log-probabilities of all labels of each row, float32 [b, labels]."""
    return jax.nn.log_softmax(forced_logits(definitions, parameters, batch)[:, 0])


@program("definitions")
def attention_trace(parameters, batch: dict[str, Array], *, definitions) -> LayerTrace:
    """Returns the attention weights of one model: [b, layers, heads, queries, keys].

    A model without attention within the source or the target has 0 layers of it.
    """
    trace = LayerTrace([], [], [])
    (model,) = map(nnx.merge, definitions, parameters)
    model.outputs(batch, trace=trace)
    weights = trace.encoder, trace.decoder, trace.cross
    b, t = batch["target"].shape
    s = batch["source"].shape[1]
    empty_layers = (jnp.zeros((b, 0, 1, *sides)) for sides in ((s, s), (t, t), (t, s)))
    return LayerTrace(
        *(
            jnp.stack(layers, axis=1) if layers else none
            for layers, none in zip(weights, empty_layers, strict=True)
        )
    )


def ensemble_logits(model_logits: list[Array]) -> Array:
    """Returns logits of the mean of several distributions; one is left unchanged."""
    if len(model_logits) == 1:
        return model_logits[0]
    # The logarithm of the mean probability, without leaving the log domain.
    log_probs = [jax.nn.log_softmax(x.astype(jnp.float32)) for x in model_logits]
    return jax.nn.logsumexp(jnp.stack(log_probs), axis=0) - jnp.log(len(model_logits))


def forced_logits(definitions, parameters, batch: dict[str, Array]) -> Array:
    """Returns the logits of all models together, given the targets, [b, t, v]."""
    models = map(nnx.merge, definitions, parameters)
    return ensemble_logits([logits(model, batch) for model in models])


def ensemble_step(definitions, parameters, memories) -> Step:
    """Returns the `Step` of all models together."""
    models = [nnx.merge(*pair) for pair in zip(definitions, parameters, strict=True)]

    def step(caches, token_bn, position):
        results = [
            step_logits(model, memory, cache, token_bn, position)
            for model, memory, cache in zip(models, memories, caches, strict=True)
        ]
        model_logits, caches = zip(*results, strict=True)
        return ensemble_logits(list(model_logits)), list(caches)

    return step
