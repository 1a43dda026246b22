"""An entry of a table is what it is: another one may have had its name before.

As in a notebook, where a cell is edited and run again.
"""

import dataclasses
from functools import partial
from importlib import import_module

import jax
import numpy as np
import optax
import pytest

from t2t_jax.config import SECTIONS, Config, TaskConfig, from_config_dict
from t2t_jax.decoding.choosing import MinimumBayesRisk, Probability
from t2t_jax.decoding.translator import Translator
from t2t_jax.model.attention import AttentionFunction, attention_weights, dense
from t2t_jax.model.feed_forward import FeedForward
from t2t_jax.model.layers import RMSNorm
from t2t_jax.model.model import build
from t2t_jax.model.positions import Position
from t2t_jax.model.transformer import Transformer
from t2t_jax.tasks.table import task_of
from t2t_jax.tasks.task import Task
from t2t_jax.training.losses import LOSSES, Loss, real_tokens
from t2t_jax.training.optimizers import OPTIMIZERS
from t2t_jax.training.schedules import SCHEDULES
from t2t_jax.training.step import Adapter
from tests.decoding.small_translator import CONFIG, translator, vocabulary
from tests.training.small_model import config_of, trained

PAIR = "the cat", "ein Hund"
traced = []  # by the entries of models, when a program is compiled
translators = {}  # translators, by the table and the name of an entry


# ------------------------------------------------------------ what depends on an entry


def by_model(address, name):
    """All that compiled programs compute with a model."""
    (field,) = (
        f.name
        for f in dataclasses.fields(CONFIG.model)
        if f.metadata["table"] == address
    )
    config = from_config_dict(
        dataclasses.asdict(CONFIG)
        | {"model": dataclasses.asdict(CONFIG.model) | {field: name}}
    )
    built = build(config.model, 290)
    parameters = built.init(jax.random.key(1))
    translator = Translator(config, vocabulary(), built, parameters, [7])
    scored = translator.score([PAIR])[0].log_prob
    if field != "attention":  # one table is enough for the other programs
        return [scored]
    return [
        scored,
        translator.translate(PAIR)[0].score,
        translator.attention(*PAIR).cross,
    ]


def by_search(address, name):
    decode = {
        "search.algorithm.PENALTIES": {"penalty": name},
        "decoding.choosing.CHOICES": {"choose": name},
        "metrics.text_measures.UTILITIES": {
            "choose": "mbr",
            "options": {"utility": name, "candidates": "beam"},
        },
    }
    searcher = translators.get((address, name), translator()).with_options(
        **decode[address]
    )
    translators[address, name] = (
        searcher  # has what it has made of an entry of this name
    )
    return searcher.translate(PAIR)[0].score


def by_training(address, name):
    fields = {"LOSSES": "loss", "OPTIMIZERS": "optimizer", "SCHEDULES": "schedule"}
    fields["ADAPTERS"] = "adapter"
    config = config_of(
        **{"optimizer": "sgd"} | {fields[address.rpartition(".")[2]]: name}
    )
    return trained(config)[0].parameters


def by_task(address, name):
    return task_of(Config(task=TaskConfig(kind=name))).number


# ------------------------------------------------------------------------- the entries


def subclass(kind, method, factor):
    """A class whose method returns so many times what that of `kind` does."""

    def scaled(self, *arguments, **options):
        traced.append(factor)
        return factor * getattr(kind, method)(self, *arguments, **options)

    return type("Scaled", (kind,), {method: scaled})


def positions(factor):
    def scores(self, q_bthk, mask):
        traced.append(factor)
        return factor * mask.distance()[:, None].astype("float32")

    return type("Slope", (Position,), {"scores": scores})


def attention(factor):
    def attend(*arguments):
        traced.append(factor)
        return factor * dense(*arguments)

    return AttentionFunction(attend, lambda *a: factor * attention_weights(*a))


def feed_forward(factor):
    def activation(x):
        traced.append(factor)
        return factor * jax.nn.relu(x)

    return partial(FeedForward, activation)


def optimizer(factor):
    return OPTIMIZERS["sgd"]._replace(direction=lambda config: optax.scale(factor))


def schedule(factor):
    return SCHEDULES["paper"]._replace(rate=lambda config: lambda count: factor)


def utility(factor):
    return lambda texts, references, language: np.full(
        (len(texts), len(references)), factor
    )


def choice(factor):
    def translate(self, *arguments):
        hypothesis = Probability.translate(self, *arguments)[0].best
        return [dataclasses.replace(hypothesis, score=factor * hypothesis.score)]

    return type("Scaled", (Probability,), {"translate": translate})


def loss(factor):
    sums = LOSSES["cross_entropy"].sums
    return Loss(real_tokens, lambda *a: (factor * sums(*a)[0], sums(*a)[1]))


def adapter(factor):
    def applied(base, trained, config):
        return jax.tree.map(lambda x, y: x + factor * y, base, trained)

    return Adapter(lambda model, config: model, applied, applied)


# Address of a table -> (factor -> an entry, (field, name) -> what depends on it).
TABLES = {
    "tasks.table.TASKS": (lambda n: type("Made", (Task,), {"number": n}), by_task),
    "model.model.MODELS": (partial(subclass, Transformer, "outputs"), by_model),
    "model.positions.POSITIONS": (positions, by_model),
    "model.layers.NORMS": (partial(subclass, RMSNorm, "__call__"), by_model),
    "model.attention.ATTENTION": (attention, by_model),
    "model.feed_forward.FEED_FORWARD": (feed_forward, by_model),
    "training.schedules.SCHEDULES": (schedule, by_training),
    "training.optimizers.OPTIMIZERS": (optimizer, by_training),
    "training.losses.LOSSES": (loss, by_training),
    "training.step.ADAPTERS": (adapter, by_training),
    "search.algorithm.PENALTIES": (lambda n: lambda x, alpha: n * x**0, by_search),
    "decoding.choosing.CHOICES": (choice, by_search),
    "metrics.text_measures.UTILITIES": (utility, by_search),
}


def test_every_table_that_a_field_chooses_from_is_tried():
    fields = [f for s in SECTIONS.values() for f in dataclasses.fields(s)]
    fields += dataclasses.fields(MinimumBayesRisk.Options)
    assert {f.metadata["table"] for f in fields} == {"", *TABLES}


@pytest.mark.parametrize("address", TABLES)
def test_a_replaced_entry_is_a_new_one(address, monkeypatch):
    entry, results = TABLES[address]
    module, _, name = address.rpartition(".")
    table = getattr(import_module(f"t2t_jax.{module}"), name)
    names, outcomes = ("one", "one", "two", "one"), []
    for factor, name in zip((2.0, 2.0, 3.0, 3.0), names, strict=True):
        if len(outcomes) != 1:  # the second time it is the same entry
            monkeypatch.setitem(table, name, entry(factor))
        traced.clear()
        outcomes.append(jax.device_get(results(address, name)))
        if len(outcomes) == 2:  # and its programs are those that are compiled already
            assert not traced
    assert_same = partial(jax.tree.map, np.testing.assert_array_equal)
    assert_same(outcomes[1], outcomes[0])
    assert_same(outcomes[3], outcomes[2])
    with pytest.raises(AssertionError):
        assert_same(outcomes[2], outcomes[0])
