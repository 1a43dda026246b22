"""Fine-tuning: starts from a workdir, trained here or imported, on your own text.

    python -m t2t_jax.main --config=configs/finetune.py:START --workdir=DIR \\
        --config.data.train=PREFIX --config.data.dev=PREFIX --config.data.test=PREFIX

START is the workdir; its model, tokenizer, languages, search (`decode`) and longest
sentence are taken over, and dropout is 0.1. The learning rate is a tenth of the usual
and falls to 0, because the weights are good already: ten minutes on two cores for a
small model. Set `train.steps` to passes over your text: a tenth of them are warmup, and
each quarter ends with an evaluation.
"""

from t2t_jax import config as fields
from t2t_jax.workdir import Workdir


def get_config(start=""):
    if not start:
        raise ValueError("name the workdir to start from: --config=finetune:START")
    theirs = fields.to_config_dict(Workdir(start).config())
    config = fields.defaults()
    config.model = theirs.model
    config.model.dropout = 0.1
    config.decode = theirs.decode
    for name in ("source", "target", "joint_vocabulary"):
        config.data[name] = theirs.data[name]
    for name in ("vocab_size", "source_vocab_size", "symbols", "max_length"):
        config.data[name] = theirs.data[name]
    config.data.update(batch_tokens=2_048, row_length=64)
    config.train.update(init_from=start, steps=1_000)
    steps = config.train.get_oneway_ref("steps")  # follows --config.train.steps
    config.train.update(
        schedule="linear",
        warmup=(steps + 9) // 10,
        peak_learning_rate=2e-4,
        log_every=50,
        eval_every=(steps + 3) // 4,
        save_every=250,
        dev_lines=300,
    )
    config.decode.average = 1
    return config
