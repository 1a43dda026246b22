"""Runs the command `python -m t2t_jax.tools.experiment`, see `tools/experiment/command.py`."""

from t2t_jax.commands.launch import launch

if __name__ == "__main__":
    launch("experiment")
