"""`python -m t2t_jax.translate`: the command of `commands/translate.py`."""

from t2t_jax.commands.launch import launch

if __name__ == "__main__":
    launch("translate")
