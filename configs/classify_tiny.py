"""A tiny classifier of the built-in sentences, in a minute on a CPU.

    python -m t2t_jax.main --config=configs/classify_tiny.py --workdir=DIR

It needs no download. Sentences have lost their last mark, and the label says which it
was: is "When is Paul waiting for us" a question or a statement?
"""

from configs import tiny


def get_config():
    config = tiny.get_config()
    config.task.kind = "classification"
    config.model.update(kind="classifier", layers=2, width=64, hidden=128, dropout=0.1)
    config.data.update(joint_vocabulary=False, vocab_size=1_000)
    config.train.update(
        steps=200, warmup=50, peak_learning_rate=0.003, eval_every=100, dev_lines=500
    )
    return config
