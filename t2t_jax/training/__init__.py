"""Training: loss, optimizer, update step, checkpoints, metrics, and the loop over all.

`loop.run` is the entry point; it works on token arrays and knows nothing of text.
"""
