"""Runs the command `python -m t2t_jax.import`, see `tools/bridges/import_command.py`."""  # noqa: N999

from t2t_jax.commands.launch import launch

if __name__ == "__main__":
    launch("import")
