"""The harder built-in text, to compare ideas: three minutes of training on one core.

    python -m t2t_jax.main --config=configs/hard.py --workdir=DIR

5,000 pairs whose words are as unevenly frequent as those of real text, so that a model
without dropout overfits, and one of fewer parameters is worse. About 60 BLEU after 650
steps; a perfect model would have nearly 100. Pre-norm, because in so few steps
post-norm ranks models by how soon they start to learn. docs/ladder.md says what a
difference on this text means.
"""

from configs import tiny


def get_config():
    config = tiny.get_config()
    config.model.update(layers=3, heads=8, norm="pre", dropout=0.1)
    config.data.update(
        train="grammar:hard-train",
        dev="grammar:hard-dev",
        test="grammar:hard-dev,grammar:hard-test",
        vocab_size=3_000,
        batch_tokens=1_024,
    )
    config.train.update(
        steps=650,
        warmup=150,
        schedule="linear",
        peak_learning_rate=0.005,
        log_every=26,
        eval_every=130,
        save_every=26,
        dev_lines=0,
    )
    return config
