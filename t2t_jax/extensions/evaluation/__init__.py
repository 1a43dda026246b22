"""Scores of damaged test sets."""
