"""Text to batches: corpus -> vocab -> prepare -> batching -> feeding."""
