"""The Transformer (section 3): layers, positions, kernels, attention, transformer."""
