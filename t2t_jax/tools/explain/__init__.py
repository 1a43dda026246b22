"""Explanations of translations: why the model said this, and the search chose it."""

MOST = 48  # alternatives of a sentence that are followed
