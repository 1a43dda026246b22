"""Measurements, each `python -m benchmarks.NAME`: medians, and a ratio."""

from t2t_jax.parallel import huge_pages

huge_pages.start_again("benchmarks")
