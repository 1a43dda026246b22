"""Runs the command `python -m t2t_jax.plan`, see `tools/plan/command.py`."""

from t2t_jax.commands.launch import launch

if __name__ == "__main__":
    launch("plan")
