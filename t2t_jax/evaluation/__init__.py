"""Translations to numbers: bleu, scores."""
