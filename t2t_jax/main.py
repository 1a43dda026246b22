"""`python -m t2t_jax.main`: the command of `commands/main.py`."""

from t2t_jax.commands.launch import launch

if __name__ == "__main__":
    launch("main")
