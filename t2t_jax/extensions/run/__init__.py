"""Synthetic text from a trained model, and reruns of recorded steps."""
