"""Explanations of translations: why the model said this, and the search chose it."""
