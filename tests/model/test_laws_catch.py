"""Every law of laws.py fails for a variant that breaks it: the laws can be trusted.

A wrong variant is an entry of a table, as a user adds one.
"""

import dataclasses
import itertools
from functools import partial

import jax
import jax.numpy as jnp
import pytest

from t2t_jax.io import ideas
from t2t_jax.model.attention import (
    ATTENTION,
    AttentionFunction,
    attention_weights,
    dense,
)
from t2t_jax.model.feed_forward import FEED_FORWARD, FeedForward
from t2t_jax.model.layers import NORMS, LayerNorm, constant
from t2t_jax.model.mask import Tokens
from t2t_jax.model.model import MODELS
from t2t_jax.model.one_sided import Classifier, EncoderOnly, pool
from t2t_jax.model.positions import POSITIONS, ALiBi, Position, sinusoids
from t2t_jax.model.transformer import Transformer
from t2t_jax.parallel import mesh as meshes
from tests.model import cases, laws
from tests.model.cases import config_of
from tests.model.subject import Excused, Subject

pytestmark = pytest.mark.usefixtures("eight_devices", "quick_compiler")


class LooksAhead(Position):
    """Adds half the embedding of the next token."""

    def embed(self, x_btd, at, limit):
        return x_btd + jnp.roll(x_btd, -1, axis=1) / 2


class PlaceInRow(Position):
    """Counts from the beginning of a row, and not of a sentence."""

    def embed(self, x_btd, at, limit):
        return x_btd + sinusoids(*x_btd.shape[1:])


class IndexInCache(ALiBi):
    """Takes the distance of indices, which in a cache are not positions."""

    def scores(self, q_bthk, mask):
        t, s = mask.query.segment.shape[1], mask.key.segment.shape[1]
        place = [jnp.arange(n)[None] for n in (t, s)]
        query, key = mask.query._replace(position=place[0]), Tokens(None, place[1])
        mask = dataclasses.replace(mask, query=query, key=key)
        return super().scores(q_bthk, mask)


class SteeperALiBi(ALiBi):
    def scores(self, q_bthk, mask):
        return 2 * super().scores(q_bthk, mask)


class NormOfTheRow(LayerNorm):
    """Subtracts the mean of all tokens, those of padding too."""

    def __call__(self, x_btd):
        return super().__call__(x_btd) - 0.1 * x_btd.mean(1, keepdims=True)


class NeverReads(Transformer):
    """Encodes zeros instead of the source."""

    def encode(self, source_bs, at, *rest):
        return super().encode(0 * source_bs, at, *rest)


class ReadsForward(EncoderOnly):
    """Adds up the tokens before a place, and not those after it."""

    unused = frozenset()

    def outputs(self, batch, rng=None, trace=None):
        at, position = Tokens.of(batch, "source"), self.encoder_positions[0]
        return self.embedding.source(batch["source"], at, position, None).cumsum(1)


class PoolsTheRow(Classifier):
    """Pools all tokens of a row."""

    unused = frozenset()

    def outputs(self, batch, rng=None, trace=None):
        row = {name: jnp.ones_like(x) for name, x in batch.items() if "segment" in name}
        source, target = (Tokens.of(batch | row, side) for side in ("source", "target"))
        at = Tokens.of(batch, "source")
        x_bsd = self.encoder_outputs(batch["source"], at, rng, trace)
        return self.head(pool(x_bsd, source, target, "mean"), rng)


class UnusedWeight(FeedForward):
    def __init__(self, config, rng):
        super().__init__(jax.nn.relu, config, rng)
        self.unused = constant(1.0, {"width": config.width})


class RoundedWeight(UnusedWeight):
    """Has a parameter that is not float32."""

    def __init__(self, config, rng):
        super().__init__(config, rng)
        self.unused.set_value(self.unused[...].astype(jnp.bfloat16))


class DropsByPlace(FeedForward):
    """Draws its dropout for the place of a row in the part that is computed."""

    def __call__(self, x_btd, rng=None):
        y_btd = super().__call__(x_btd, rng)
        if rng is None:
            return y_btd
        return y_btd * jax.random.bernoulli(rng.key, 0.8, y_btd.shape)


def activation(function):
    return lambda config, rng: FeedForward(function, config, rng)


@jax.custom_vjp
def gradient_of_the_identity(x):
    return jax.nn.silu(x)


gradient_of_the_identity.defvjp(lambda x: (jax.nn.silu(x), None), lambda _, g: (g,))
traces = itertools.count()


def counts_traces(x):
    return jax.nn.relu(x) * (1 + next(traces) / 100)


def cancels(x):
    """Adds and subtracts 300, rounded as the type of `x`."""
    bits = jnp.finfo(x.dtype)
    return jax.lax.reduce_precision(jax.nn.relu(x) + 300, bits.nexp, bits.nmant) - 300


def softmax_of_a_device(x_btf):
    """Sums over the hidden units that the device has."""
    if jax.sharding.get_abstract_mesh().empty:
        return jax.nn.softmax(x_btf)
    spec = meshes.spec(("batch", "length", "hidden"))
    return jax.shard_map(
        jax.nn.softmax, in_specs=spec, out_specs=spec, check_vma=False
    )(x_btf)


def nan_in_the_gradient(x):
    """Chooses between 0 and a root: the root of what is not chosen has no slope."""
    return jnp.where(x > 0, jnp.sqrt(x), 0)


def without_order(q_bthk, kv, mask, *rest):
    return dense(q_bthk, kv, dataclasses.replace(mask, causal=False), *rest)


def without_segments(q_bthk, kv, mask, *rest):
    query, key = (
        at._replace(segment=jnp.ones_like(at.segment)) for at in (mask.query, mask.key)
    )
    return dense(q_bthk, kv, dataclasses.replace(mask, query=query, key=key), *rest)


def doubled(*arguments):
    return 2 * dense(*arguments)


def weights_of_all(q_bthk, kv, mask, position):
    return attention_weights(
        q_bthk, kv, dataclasses.replace(mask, causal=False), position
    )


def halved_weights(*arguments):
    return attention_weights(*arguments) / 2


WRONG = [
    (laws.future_is_unseen, POSITIONS, LooksAhead),
    (laws.future_is_unseen, ATTENTION, AttentionFunction(without_order)),
    (laws.source_is_seen, MODELS, NeverReads),
    (laws.both_directions_are_seen, MODELS, ReadsForward),
    (laws.packed_is_alone, POSITIONS, PlaceInRow),
    (laws.packed_is_alone, MODELS, PoolsTheRow),
    (laws.packed_is_alone, ATTENTION, AttentionFunction(without_segments)),
    (laws.padding_is_inert, NORMS, NormOfTheRow),
    (laws.cached_is_forced, POSITIONS, IndexInCache),
    (laws.gradient_is_slope, FEED_FORWARD, activation(gradient_of_the_identity)),
    (laws.gradient_is_slope, FEED_FORWARD, activation(nan_in_the_gradient)),
    (laws.every_weight_is_used, FEED_FORWARD, UnusedWeight),
    (laws.rematerialized_is_stored, FEED_FORWARD, activation(counts_traces)),
    (laws.rows_drop_out_alike, FEED_FORWARD, partial(DropsByPlace, jax.nn.relu)),
    (laws.bfloat16_is_near, FEED_FORWARD, activation(cancels)),
    (laws.sharded_is_one_device, FEED_FORWARD, activation(softmax_of_a_device)),
    (laws.model_is_its_twin, POSITIONS, SteeperALiBi),
    (laws.weights_add_up, ATTENTION, AttentionFunction(dense, halved_weights)),
    (laws.weights_add_up, ATTENTION, AttentionFunction(dense, weights_of_all)),
    (
        laws.weights_add_up,
        ATTENTION,
        AttentionFunction(dense, weights_of_all, normalized=False),
    ),
    (
        laws.weights_are_of_attention,
        ATTENTION,
        AttentionFunction(doubled, attention_weights),
    ),
    (laws.restored_is_saved, FEED_FORWARD, RoundedWeight),
]
FIELDS = {
    id(POSITIONS): ("positions", "alibi"),
    id(ATTENTION): ("attention", "dense"),
    id(FEED_FORWARD): ("feed_forward", "relu"),
    id(NORMS): ("norm_kind", "layer"),
    id(MODELS): ("kind", "transformer"),
}


@pytest.mark.parametrize(
    ("law", "table", "wrong"), WRONG, ids=[law.__name__ for law, *_ in WRONG]
)
def test_a_law_catches(law, table, wrong, monkeypatch):
    # In place of an entry, so that the twin knows its name.
    field, name = FIELDS[id(table)]
    monkeypatch.setitem(table, name, wrong)
    subject = Subject(config_of(decoder_layers=1, **{field: name}))
    assert not law(subject) <= laws.LAWS[law]


def test_every_law_has_a_variant_that_breaks_it():
    assert {law for law, *_ in WRONG} == {*laws.LAWS}


SIGMOID = """
import jax
from t2t_jax.model.attention import *
from t2t_jax.model import attention


def weights(q_bthk, kv, mask, position):
    return jax.nn.sigmoid(attention.scores(q_bthk, kv, mask, position))


def sigmoid(q_bthk, kv, mask, position, drop):
    weights_bhts = drop(weights(q_bthk, kv, mask, position))
    weights_bhts = weights_bhts.astype(q_bthk.dtype)
    return attention.weighted_values(weights_bhts, kv, mask, position)


entry = attention.AttentionFunction(sigmoid, weights, normalized=False)
attention.ATTENTION["sigmoid"] = entry
"""


def test_an_idea_obeys_what_it_does_not_decline(monkeypatch, tmp_path):
    """Sigmoid attention, whose weights do not sum to 1; the twin does not know it."""
    monkeypatch.setitem(ATTENTION, "sigmoid", None)  # removed afterwards
    monkeypatch.setattr(ideas, "imported", {})
    file = tmp_path / "sigmoid_attention_of_a_test.py"
    file.write_text(SIGMOID)
    ideas.load(str(file))
    assert cases.own({"attention": "sigmoid"})
    assert laws.laws_of({"attention": "sigmoid"}) == [*laws.LAWS]
    one = Subject(config_of(attention="sigmoid"))
    for law in (laws.weights_add_up, laws.weights_are_of_attention):
        assert law(one) <= laws.LAWS[law]
    with pytest.raises(Excused, match="does not know attention=sigmoid"):
        laws.model_is_its_twin(one)
    summing = ATTENTION["sigmoid"]._replace(normalized=True)
    monkeypatch.setitem(ATTENTION, "sigmoid", summing)
    assert laws.weights_add_up(one) > 0.1
