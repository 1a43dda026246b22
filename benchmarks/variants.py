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
from functools import partial

from absl import flags

from benchmarks import measuring, run
from benchmarks.trainer import Trainer
from t2t_jax import config as fields
from t2t_jax.commands.flags import define_config_flag
from t2t_jax.config import from_config_dict
from t2t_jax.data.corpus import open_corpora
from t2t_jax.data.feeding import feed
from t2t_jax.data.pairs import tokenize_in_memory
from t2t_jax.io.messages import say
from t2t_jax.sections import table_of
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
        for config_field in dataclasses.fields(default):
            for name in table_of(config_field):
                if name != config_field.default:
                    changes = {config_field.name: name}
                    if name in PEAKS:
                        changes["peak_learning_rate"] = PEAKS[name]
                    cases[f"{config_field.name}={name}"] = {section: changes}
    return cases | OTHERS


def define_flags():
    define_config_flag()
    measuring.define_flags(rounds=5)
    flags.DEFINE_integer("steps", 200, "Updates of each variant.", lower_bound=1)
    flags.DEFINE_list("only", [], "The variants to train; by default all.")


def main(_):
    args = flags.FLAGS
    measuring.begin(args)
    cases = variants()
    names = measuring.chosen(args.only, cases, "only") or [*cases]
    config = from_config_dict(args.config)
    data = dataclasses.replace(config.data, feeder="numpy")
    vocabulary, pairs = measuring.training_text(data)
    corpora = open_corpora(data.dev, data.source, data.target, data.dir)
    dev_lines = [pair for corpus in corpora for pair in corpus.pairs()]
    dev = tokenize_in_memory(dev_lines, vocabulary)
    stream = feed(pairs, data, config.train.seed)
    batches = [batch for _, batch in itertools.islice(stream, args.steps)]
    stream.close()
    default = Trainer(config, *vocabulary.sizes)
    default.rate(batches[:2])
    rows = []
    for name in names:
        variant = config
        for section, changes in cases[name].items():
            variant = fields.changed(variant, section, **changes)
        trainer = Trainer(variant, *vocabulary.sizes)
        if variant.data.batching == "packed" and not trainer.model.packs:
            say(f"{name}: the model does not pack, so it is left out")
            continue
        trainer.rate(batches)
        loss = cross_entropy_of(
            trainer.steps, trainer.state.best_parameters(), dev, trainer.config
        )["loss"]
        contenders = {"ours": trainer, "default": default}
        rates = measuring.alternate(
            {
                name: partial(contender.rate, batches[:10], sides=("target",))
                for name, contender in contenders.items()
            },
            args.rounds,
        )
        row = {"variant": name, "parameters": trainer.model.count(), "dev loss": loss}
        row["tokens/s"] = rates["ours"]
        row["of the default"] = rates["ours"] / rates["default"]
        say(", ".join(f"{column} {value}" for column, value in row.items()))
        rows.append(row)
    measuring.publish(rows, args.output)


if __name__ == "__main__":
    run(main, define_flags, "tiny")
