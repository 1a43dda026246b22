"""Frozen layers; what one's own training loop or analysis of gradients is made of."""
