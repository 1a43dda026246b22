"""Examines training text: damaged, misaligned and repeated pairs, and overlaps."""
