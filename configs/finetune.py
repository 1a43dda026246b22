"""Fine-tuning: starts from a workdir, trained here or imported, on your own text.

    python -m t2t_jax.main --config=finetune:START --workdir=TUNED \\
        --config.data.train=PREFIX --config.data.dev=PREFIX --config.data.test=PREFIX

START is the workdir; its model, tokenizer, languages, search (`decode`) and longest
sentence are taken over, from the checkpoints that translate. `chosen` takes others from
the size of the text and of the model. The run prints each with its reason; a flag
overrides it.
"""

import functools
import itertools
import math
import shlex
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ml_collections import FieldReference

from t2t_jax import config as fields
from t2t_jax.config import DataConfig
from t2t_jax.data.corpus import open_corpora, with_folder
from t2t_jax.io.errors import UserError
from t2t_jax.io.locations import join_names
from t2t_jax.workdir import Workdir


class Recipe(NamedTuple):
    """The choices for texts of fewer than `below` pairs (docs/results/bridges.md)."""

    below: float
    passes: int  # over the text
    least: int  # steps, whatever the passes


RECIPES = (
    Recipe(1_000, 20, 60),
    Recipe(10_000, 10, 200),
    Recipe(100_000, 5, 600),
    Recipe(math.inf, 2, 2_000),
)
RATE = 1e-3  # the peak learning rate up to width 128; wider: as 1 / width
ADAPTER = 10  # times the rate for an adapter, which starts from nothing
MOST = 200_000  # pairs that are counted
# What the choices follow, whether a flag or a file sets it.
FOLLOWED = [
    *(("train", "adapter"), ("train", "dev_lines")),
    *(("data", "dev"), ("data", "batch_tokens")),
    *(("data", name) for name in ("train", "dir", "source", "target", "columns")),
]


class Operation(NamedTuple):
    """What a `FieldReference` computes, whenever it is read, from other references."""

    fn: Callable
    args: Sequence[FieldReference]


def get_config(start=""):
    if not start:
        raise ValueError("name the workdir to start from: --config=finetune:START")
    theirs = fields.to_config_dict(Workdir(start).config())
    config = fields.defaults()
    config.model = theirs.model
    config.decode = theirs.decode
    for name in ("source", "target", "joint_vocabulary"):
        config.data[name] = theirs.data[name]
    for name in ("vocab_size", "source_vocab_size", "symbols", "max_length"):
        config.data[name] = theirs.data[name]
    config.data.update(batch_tokens=2_048, row_length=64)
    config.train.update(init_from=start, schedule="linear", log_every=50)
    config.train.init_checkpoint = theirs.decode.checkpoint
    config.train.dev_lines = 300
    config.decode.average = 1
    followed = [config[section].get_oneway_ref(name) for section, name in FOLLOWED]
    for name, (value, _) in choices(config).items():

        def choose(_, *values, name=name):
            return chosen(start, *values)[name][0]

        section, field = name.split(".")
        config[section][field] = FieldReference(value, op=Operation(choose, followed))
    steps = config.train.get_oneway_ref("steps")  # follows --config.train.steps
    config.train.warmup = (steps + 9) // 10
    quarter = Operation(lambda _, steps: max(1, steps // 4), [steps])
    config.train.eval_every = FieldReference(1, op=quarter)
    config.train.save_every = FieldReference(1, op=quarter)
    return config


def choices(config) -> dict[str, tuple[Any, str]]:
    """The chosen fields of a config: their values and the reasons."""
    values = [config[section][name] for section, name in FOLLOWED]
    return chosen(config.train.init_from, *values)


@functools.cache
def chosen(
    start: str, adapter: str, dev_lines: int, dev: str, batch_tokens: int, *text: str
) -> dict[str, tuple[Any, str]]:
    model, vocabulary = Workdir(start).config().model, len(Workdir(start).vocabulary())
    pairs, tokens = size(start, *text)
    recipe = next(r for r in RECIPES if (pairs or 1_000) < r.below)
    counted = f"{pairs:,} pairs" if pairs < MOST else f"the first {pairs:,} pairs"
    # Rows are packed to about 95%.
    epoch = max(1, math.ceil(tokens / (0.95 * batch_tokens)))
    steps = recipe.passes * epoch
    steps_why = f"{recipe.passes} passes over {counted}, about {epoch:,} batches each"
    if steps < recipe.least:
        steps, steps_why = recipe.least, f"{counted}: fewer hardly move the weights"
    if not pairs:
        steps, steps_why = 1_000, "the text is not here yet"
    base_rate = RATE * (1 if adapter == "none" else ADAPTER)
    rate = float(f"{base_rate * min(1, 128 / model.width):.2g}")
    rare = 0 < 10 * tokens < vocabulary
    compared = f"about {tokens:,.0f} tokens of text, {vocabulary:,} in the vocabulary: "
    frozen_why = "few embeddings would learn" if rare else "what is frozen learns less"
    if adapter != "none":
        rare, compared, frozen_why = False, "", "all but the adapter stays as it is"
    best = ("best", "the dev set chooses: more steps do no harm")
    last = ("average", "no dev set chooses: the last one")
    return {
        "train.steps": (-(-steps // 4) * 4, steps_why),
        "train.peak_learning_rate": (
            rate,
            f"{base_rate:g} * min(1, 128 / width {model.width}); lower learns and "
            "forgets less",
        ),
        "train.freeze": ("embedding" * rare, compared + frozen_why),
        "model.dropout": (0.1, "the paper's; 0.3 learned less from 300 pairs"),
        "decode.checkpoint": best if dev and dev_lines else last,
    }


@functools.cache
def size(
    start: str, train: str, folder: str, source: str, target: str, columns: str
) -> tuple[int, float]:
    """The training text's pairs, `MOST` at most, and about its tokens a side.

    (0, 0) if it cannot be read, which the run reports.
    """
    try:
        data = DataConfig(columns=columns)
        corpora = open_corpora(train, source, target, folder, True, data)
        read = [[*itertools.islice(c.pairs(), MOST)] for c in corpora]
    except UserError:
        read = []
    if not (pairs := [pair for of_corpus in read for pair in of_corpus]):
        return 0, 0.0
    count = round(sum(c.weight * len(p) for c, p in zip(corpora, read, strict=True)))
    sample = [*zip(*pairs[:: max(1, len(pairs) // 500)], strict=True)]
    vocabulary = Workdir(start).vocabulary()
    sides = zip((vocabulary.source, vocabulary), sample, strict=True)
    tokens = max(sum(map(len, v.encode([*x], end=True))) for v, x in sides)
    return min(count, MOST), min(count, MOST) * tokens / len(sample[0])


def reasons(config) -> Iterator[str]:
    """Yields a line for each chosen field, printed before the run."""
    yield "chosen by the sizes of text and model; --config.FIELD=VALUE overrides:"
    for name, (value, why) in choices(config).items():
        section, field = name.split(".")
        if (given := config[section][field]) != value:
            why = f"as given; {value!r} would be chosen: {why}"
        yield f"  {name:25} {given!r:12} {why}"


def next_commands(config, workdir: str | Path) -> Iterator[str]:
    """Yields the commands that compare and deploy, printed after the run."""
    start = config.train.init_from
    both = config.data, Workdir(start).config().data
    sets = [with_folder(data.test or data.dev, data.dir) for data in both]
    tests = join_names(dict.fromkeys([*sets[0], *sets[1]]))
    yield "what it has learned and forgotten, and how to deploy it:"
    if not sets[1]:
        yield "  (add a test set of the old domain to --test: START names none)"
    name = shlex.quote(str(workdir))
    command = "  python -m t2t_jax"
    yield f"{command} compare {shlex.quote(start)} {name} --test={shlex.quote(tests)}"
    output = shlex.quote(f"{workdir}-ct2")
    yield f"{command} export --workdir={name} --to=ctranslate2 --output={output}"
    beam = config.decode.beam
    yield f"{command} serve --workdir={name} --engine=auto --beams={beam}"
