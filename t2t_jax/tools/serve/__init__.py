"""Serves translations over HTTP: `python -m t2t_jax serve --workdir=DIR`."""
