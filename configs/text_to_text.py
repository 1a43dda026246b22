"""A tiny model of several tasks: translates both ways and copies, minutes on a CPU.

    python -m t2t_jax.main --config=configs/text_to_text.py --workdir=DIR
    echo "The dog barks." | python -m t2t_jax.translate --workdir=DIR --task=en-de

A tag before each source names the task (`t2t_jax/tasks/text_to_text.py`). The text is
the built-in grammar's.
"""

from configs import tiny


def get_config():
    config = tiny.get_config()
    config.task.kind = "text_to_text"
    config.data.update(
        train="en-de:grammar:train,de-en:grammar:train,copy:grammar:train@0.2",
        dev="en-de:grammar:dev,de-en:grammar:dev,copy:grammar:dev",
        test="en-de:grammar:test,de-en:grammar:test,copy:grammar:test",
    )
    # Three times the text of one direction, so a longer run than configs/tiny.py.
    config.train.update(steps=1_000, dev_lines=50)
    return config
