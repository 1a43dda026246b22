"""A trained model to translations: search, translator."""
