"""Vocabularies of other systems, read as ours and written for them."""
