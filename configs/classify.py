"""A classifier of your own sentences: thousands of examples, minutes on a CPU.

    python -m t2t_jax.main --config=configs/classify.py --workdir=DIR \\
        --config.data.train=PREFIX --config.data.dev=PREFIX --config.data.test=PREFIX

PREFIX stands for PREFIX.tsv: a sentence, a tab and its label in each line.

`configs/classify.py:START` starts from the encoder and the tokens of the workdir START:
of a translator from the language of the sentences, or of a masked language model. With
`--config.train.freeze=embedding,encoder` only the output layer is trained.
"""

from configs import small
from t2t_jax import config as fields
from t2t_jax.workdir import Workdir


def get_config(start=""):
    config = small.get_config()
    config.task.kind = "classification"
    config.model.update(kind="classifier", layers=2)
    config.data.update(joint_vocabulary=False, vocab_size=4_000)
    config.train.update(
        steps=500,
        schedule="linear",
        warmup=50,
        peak_learning_rate=0.002,
        log_every=50,
        eval_every=100,
        save_every=50,
        dev_lines=1_000,
    )
    if start:
        theirs = fields.to_config_dict(Workdir(start).config())
        model = fields.from_config_dict(config).model
        for name in theirs.model:
            if name not in ("kind", "options") and model.reads(name):
                config.model[name] = theirs.model[name]
        config.train.update(init_from=start, init_parts="embedding,encoder")
    config.model.dropout = 0.3
    config.decode.average = 1  # the rate ends at 0, which averages by itself
    return config
