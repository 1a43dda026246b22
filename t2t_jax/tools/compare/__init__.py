"""Compares systems by their translations, and runs by their records."""
