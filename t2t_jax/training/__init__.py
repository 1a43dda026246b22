"""Logits to a trained model: loss, optimizer, step, checkpoint, metrics, loop."""
