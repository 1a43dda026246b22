"""The Transformer (section 3): layers -> positions -> attention -> transformer."""
