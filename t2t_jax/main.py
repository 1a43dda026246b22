"""Runs the main job: `python -m t2t_jax.main --config=configs/big.py`.

Another name of `python -m t2t_jax train`.
"""

from t2t_jax.commands.launch import launch

if __name__ == "__main__":
    launch("main")
