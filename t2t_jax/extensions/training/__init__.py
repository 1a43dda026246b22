"""What a training loop of one's own, or an analysis of gradients, is made of; frozen layers."""
