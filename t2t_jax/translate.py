"""Runs the command `python -m t2t_jax.translate`, see `commands/translate.py`."""

from t2t_jax.commands.launch import launch

if __name__ == "__main__":
    launch("translate")
