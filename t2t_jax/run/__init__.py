"""The complete experiment: from a config, text and training to scores on test sets."""
