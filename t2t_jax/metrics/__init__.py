"""Metrics of text: pure functions, each score with a signature."""
