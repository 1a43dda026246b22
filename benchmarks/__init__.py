"""Measurements, each `python -m benchmarks.NAME`: medians, and a ratio."""
