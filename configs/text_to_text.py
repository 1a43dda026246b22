"""A tiny model of five tasks: translates both ways, parses, classifies and copies.

    python -m t2t_jax.main --config=configs/text_to_text.py --workdir=DIR
    echo "The dog barks." | python -m t2t_jax translate --workdir=DIR --task=en-de

A tag before each source names the task: `t2t_jax/extensions/tasks/text_to_text.py`. The
text is the built-in grammar's, in minutes on a CPU; trees are of its German sentences.
"""

from configs import tiny

SUBTASKS = {
    "en-de": "grammar:",
    "de-en": "grammar:",
    "parsing": "grammar:trees/",
    "classification": "grammar:",
    "copy": "grammar:",
}
# How often an epoch reads each: easy tasks need fewer examples.
WEIGHTS = {"classification": 0.2, "copy": 0.2}


def get_config():
    config = tiny.get_config()
    config.task.kind = "text_to_text"

    def places(split):
        return [f"{name}:{start}{split}" for name, start in SUBTASKS.items()]

    weighted = zip(places("train"), SUBTASKS, strict=True)
    config.data.update(
        train=",".join(f"{place}@{WEIGHTS.get(name, 1)}" for place, name in weighted),
        dev=",".join(places("dev")),
        test=",".join([*places("test"), *places("unseen")]),
    )
    config.data.row_length = 128  # trees are long
    config.train.update(steps=1_500, dev_lines=30)  # one model has the work of five
    config.decode.extra_length = 64
    return config
