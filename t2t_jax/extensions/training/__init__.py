"""What a training loop of one's own is made of; frozen layers; adapters."""
