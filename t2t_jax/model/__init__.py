"""The Transformer (section 3), in order: layers, positions, kernels, attention and
transformer."""
