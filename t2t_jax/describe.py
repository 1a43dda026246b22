"""Runs the command `python -m t2t_jax.describe`, see `tools/plan/describe_command.py`."""

from t2t_jax.commands.launch import launch

if __name__ == "__main__":
    launch("describe")
