"""Costs of a training step: FLOPs, bytes, the chip's peak, and whether it fits.

`memory_check.py` compiles the largest batch before training starts.
"""
