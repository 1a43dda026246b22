"""`python -m t2t_jax.evaluate`: the command of `commands/evaluate.py`."""

from t2t_jax.commands.launch import launch

if __name__ == "__main__":
    launch("evaluate")
