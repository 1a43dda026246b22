"""Trains every variant for a few steps: dev loss, parameters, speed beside the default.

    python -m benchmarks.variants
    python -m benchmarks.variants --only=positions=alibi,norm=pre --steps=300
    python -m benchmarks.variants --ideas=my_idea --only=positions=mine

A variant is the config with one choice of one table changed (`--only` names them as
FIELD=NAME), or one of `OTHERS`. All read the same batches from the same seed. After
each has trained, its steps and the default's are timed in turns; the last column is the
ratio of the medians. One seed, so small differences of the dev loss mean nothing.
"""

import dataclasses
import itertools
import time
from collections.abc import Iterable
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from absl import flags

from benchmarks import measuring, run
from t2t_jax import config as fields
from t2t_jax.commands.flags import define_config_flag
from t2t_jax.config import Config, from_config_dict
from t2t_jax.data import prepare
from t2t_jax.data.corpus import open_corpora
from t2t_jax.data.feeding import feed
from t2t_jax.data.pairs import tokenize_in_memory
from t2t_jax.data.tokenizers.training import make_tokenizer
from t2t_jax.model.model import build
from t2t_jax.parallel.mesh import make_mesh, place_batch
from t2t_jax.sections import table_of
from t2t_jax.training.step import compile_steps
from t2t_jax.training.validation import cross_entropy_of

# Differences from the config that are not one choice of one table.
OTHERS = {
    "norm=pre": {"model": {"norm": "pre"}},
    "norm=post_final": {"model": {"norm": "post_final"}},
    "tied=target": {"model": {"tied": "target"}},
    "tied=none": {"model": {"tied": "none"}},
    "output_bias": {"model": {"output_bias": True}},
    "attention_bias": {"model": {"attention_bias": True}},
    "value_width=16": {"model": {"value_width": 16}},
    "3 encoder layers + 1": {"model": {"encoder_layers": 3, "decoder_layers": 1}},
    "attention_dropout=0.1": {"model": {"attention_dropout": 0.1}},
    "activation_dropout=0.1": {"model": {"activation_dropout": 0.1}},
}
# Optimizers whose updates have another size need another learning rate.
PEAKS = {"adafactor": 0.01, "lion": 3e-4, "sgd": 0.1}


def variants() -> dict[str, dict]:
    """The changes of each variant, by name."""
    cases: dict[str, dict] = {"default": {}}
    for section, default in fields.SECTIONS.items():
        for known in dataclasses.fields(default):
            for name in table_of(known):
                if name != known.default:
                    changes = {known.name: name}
                    if name in PEAKS:
                        changes["peak_learning_rate"] = PEAKS[name]
                    cases[f"{known.name}={name}"] = {section: changes}
    return cases | OTHERS


class Trainer:
    """A model of a config, trained on one device."""

    def __init__(self, config: Config, sizes: tuple[int, ...]):
        self.config, self.model = config, build(config.model, *sizes)
        mesh = make_mesh(devices=jax.devices()[:1])
        # A loss that reads another model reads this one before training: it costs as
        # much as a trained teacher, but its dev loss is not that of a trained one.
        frozen = (self.model,) if config.train.variant("loss").frozen else ()
        self.steps = compile_steps(self.model, config, mesh, 1, frozen)
        self.state = self.steps.init()
        # Copies: the step donates its state.
        copies = [jax.tree.map(jnp.copy, self.state.parameters) for _ in frozen]
        self.frozen = tuple(copies)

    def train(self, batches: Iterable[dict[str, np.ndarray]]) -> float:
        """Trains on some batches; returns real target tokens per second."""
        began, tokens = time.perf_counter(), 0
        for batch in batches:
            placed = place_batch(self.steps.mesh, batch)
            self.state, metrics = self.steps.train(self.state, placed, *self.frozen)
            tokens += np.count_nonzero(batch["target_segment"])
        jax.block_until_ready(metrics)
        return tokens / (time.perf_counter() - began)


def define_flags():
    define_config_flag()
    flags.DEFINE_integer("steps", 200, "Updates of each variant.", lower_bound=1)
    flags.DEFINE_integer("rounds", 5, "Rounds of 10 steps for the speed.")
    flags.DEFINE_list("only", [], "The variants to train; by default all.")


def main(_):
    given = flags.FLAGS
    measuring.warn_if_busy()
    known = variants()
    chosen = measuring.chosen(given.only, known, "only") or [*known]
    config = from_config_dict(given.config)
    data = dataclasses.replace(config.data, feeder="numpy")
    where = data.source, data.target, data.dir
    training = open_corpora(data.train, *where, weights=True)
    vocabulary = make_tokenizer(training, data)
    pairs = prepare.training_pairs(training, vocabulary, data)
    corpora = open_corpora(data.dev, *where)
    dev_lines = [pair for corpus in corpora for pair in corpus.pairs()]
    dev = tokenize_in_memory(dev_lines, vocabulary)
    stream = feed(pairs, data, config.train.seed)
    batches = [batch for _, batch in itertools.islice(stream, given.steps)]
    stream.close()
    default = Trainer(config, vocabulary.sizes)
    default.train(batches[:2])
    print("| variant | parameters | dev loss | tokens/s | of the default |")
    print("|---|---|---|---|---|", flush=True)
    for name in chosen:
        variant = config
        for section, changes in known[name].items():
            variant = fields.changed(variant, section, **changes)
        trainer = Trainer(variant, vocabulary.sizes)
        if variant.data.batching == "packed" and not trainer.model.packs:
            print(f"| {name} | {trainer.model.count():,} | does not pack | | |")
            continue
        trainer.train(batches)
        loss = cross_entropy_of(
            trainer.steps, trainer.state.best_parameters(), dev, trainer.config
        )["loss"]
        contenders = {"ours": trainer, "default": default}
        rates = measuring.alternate(
            {k: partial(t.train, batches[:10]) for k, t in contenders.items()},
            given.rounds,
        )
        print(
            f"| {name} | {trainer.model.count():,} | {loss:.3f} | {rates['ours']:,.0f} "
            f"| {rates['ours'] / rates['default']:.2f} |",
            flush=True,
        )


if __name__ == "__main__":
    run(main, define_flags, "tiny")
