"""Runs `python -m t2t_jax COMMAND`; without a command, lists all commands."""

from t2t_jax.commands.launch import main

if __name__ == "__main__":
    main()
