"""Runs the command `python -m t2t_jax.export`, see `tools/bridges/export_command.py`."""

from t2t_jax.commands.launch import launch

if __name__ == "__main__":
    launch("export")
