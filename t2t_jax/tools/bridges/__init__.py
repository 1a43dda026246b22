"""Models of other systems: what comes in, what goes out, and the proof that it fits."""
