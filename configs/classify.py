"""A classifier of your own sentences: thousands of examples, minutes on a CPU.

    python -m t2t_jax.main --config=configs/classify.py --workdir=DIR \\
        --config.data.train=PREFIX --config.data.dev=PREFIX --config.data.test=PREFIX

PREFIX stands for PREFIX.tsv: a sentence, a tab and its label in each line.
"""

from configs import small


def get_config():
    config = small.get_config()
    config.task.kind = "classification"
    config.model.update(kind="classifier", layers=2, dropout=0.3)
    config.data.update(joint_vocabulary=False, vocab_size=4_000)
    config.train.update(
        steps=400,
        schedule="linear",
        warmup=50,
        peak_learning_rate=0.002,
        eval_every=50,
        save_every=25,
        log_every=50,
        dev_lines=1_000,
    )
    return config
