"""A small made-up text of each task of TASKS, and the smallest run that learns it.

Whoever adds a task adds an entry to EXAMPLES, over which `test_laws.py` runs.
"""

import dataclasses
import random
from collections.abc import Callable

from t2t_jax import load_config
from t2t_jax.config import Config, from_config_dict
from t2t_jax.data.corpus import Corpus, Pair
from t2t_jax.extensions.grammar.trees import bracketed
from t2t_jax.extensions.tasks.parsing import repair
from t2t_jax.metrics import classification, likelihoods
from t2t_jax.tasks.table import task_of
from t2t_jax.tasks.task import Task
from tests import small_run

SIZES = {"train": 60, "dev": 6, "test": 8}
WORDS = {"cat": "Katze", "dog": "Hund", "bird": "Vogel", "fish": "Fisch"}
VERBS = {"sees": "sieht", "eats": "frisst", "hears": "hoert"}
FIELDS = {
    "model": {"layers": 1, "width": 16, "heads": 2, "hidden": 16, "dropout": 0.0},
    "data": small_run.FIELDS["data"]
    | {"vocab_size": 320, "max_length": 48, "batch_tokens": 512},
    "train": small_run.FIELDS["train"]
    | {"steps": 4, "warmup": 2, "log_every": 2, "eval_every": 4, "save_every": 2},
    "decode": {"beam": 2, "average": 1, "extra_length": 4},
}


@dataclasses.dataclass(frozen=True)
class Example:
    """A task with text, a model, and answers to the text that leave nothing to wish.

    Attributes:
      fields: sections of the config, besides FIELDS.
      perfect: (task, pair) -> the answer that gets the best score.
      poor: an answer to a pair that gets a worse one.
    """

    fields: dict[str, dict]
    perfect: Callable[[Task, Pair], str]
    poor: Callable[[Task, Pair], str]

    def config(self, kind: str, folder, **sections) -> Config:
        """The config of the smallest run on the text in a folder."""
        fields = {name: dict(values) for name, values in FIELDS.items()}
        sections_of_task = {"task": {"kind": kind}, "data": {"dir": str(folder)}}
        for changes in (self.fields, sections_of_task, sections):
            for section, values in changes.items():
                fields.setdefault(section, {}).update(values)
        tiny = small_run.ROOT / "configs/tiny.py"
        return from_config_dict(load_config(tiny, **fields))

    def task(self, kind: str, folder) -> Task:
        return task_of(self.config(kind, folder))


def example_of(kind: str) -> Example:
    """The example of an entry of TASKS, or of one that --ideas adds."""
    return EXAMPLES.get(kind, PLAIN)


def opened(task: Task, name: str = "test") -> Corpus:
    """A set of the text that `write` wrote."""
    place = getattr(task.config.data, name).split(",")[0]
    return task.open(place, task.config.data.dir)


def write(folder) -> None:
    """Writes the text of all tasks: the same sentences in each form."""
    draw = random.Random(7)
    for name, size in SIZES.items():
        files = {ending: [] for ending in ("en", "de", "tsv", "trees")}
        for _ in range(size):
            (a, ein), (b, zwei) = draw.choices([*WORDS.items()], k=2)
            verb, tut = draw.choice([*VERBS.items()])
            files["en"].append(f"the {a} {verb} a {b}")
            files["de"].append(f"das Tier {ein} {tut} hier {zwei}")
            files["tsv"].append(f"the {a} {verb} a {b}\t{'same' if a == b else 'two'}")
            files["trees"].append(
                f"(S (NP (DT the) (NN {a})) (VP (VB {verb}) (NP (DT a) (NN {b}))))"
            )
        for ending, lines in files.items():
            text = "".join(f"{line}\n" for line in lines)
            (folder / f"{name}.{ending}").write_text(text, encoding="utf-8")


def _lines_of(ending: str) -> dict[str, str]:
    return {name: f"{name}.{ending}" for name in SIZES}


def _label(task: Task, pair: Pair, right: bool = True) -> str:
    opposite = {"same": "two", "two": "same"}
    predicted = pair[1] if right else opposite[pair[1]]
    return classification.answer_line(
        predicted, {label: float(label == predicted) for label in sorted(opposite)}
    )


def _tree(task: Task, pair: Pair, right: bool = True) -> str:
    words = pair[0].split()
    return bracketed(repair(pair[1] if right else "", words))


# A task of two aligned files, whose answer is the target: also for those of --ideas.
PLAIN = Example(
    {},
    perfect=lambda task, pair: pair[1],
    poor=lambda task, pair: pair[1].split()[0],
)
EXAMPLES = {
    "translation": PLAIN,
    "classification": Example(
        {"model": {"kind": "classifier"}, "data": {"joint_vocabulary": False}},
        perfect=_label,
        poor=lambda task, pair: _label(task, pair, right=False),
    ),
    "language_model": Example(
        {"model": {"kind": "decoder_only"}, "data": _lines_of("en")},
        perfect=lambda task, pair: likelihoods.answer(0.0, 9),
        poor=lambda task, pair: likelihoods.answer(-8.5, 9),
    ),
    "masked_language_model": Example(
        {"model": {"kind": "encoder_only"}, "data": _lines_of("en")},
        perfect=lambda task, pair: "2\t2\t0.0\t[]",
        poor=lambda task, pair: "1\t2\t-3.0\t[]",
    ),
    "parsing": Example(
        {},
        perfect=_tree,
        poor=lambda task, pair: _tree(task, pair, right=False),
    ),
    "text_to_text": dataclasses.replace(
        PLAIN,
        fields={
            "data": {
                name: f"en-de:{name},copy:{name}.en,parsing:{name}" for name in SIZES
            }
        },
    ),
}
