"""Scripts that run other systems, each in a process of its own.

A job names a `model`, a folder or a file. The tasks of most scripts:

  logits: float32 [target, vocabulary] of each of `sources` and `targets` (the decoder's
    inputs).
  greedy: the `tokens` that follow each source, at most as many as `limits` says.
  beam: the same with `beam` and `alpha`, and `texts` and `scores`.
"""
