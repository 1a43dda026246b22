"""Decoding: from a trained model and lines of text to translations."""
