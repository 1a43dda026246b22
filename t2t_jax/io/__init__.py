"""The terminal and the disk: messages, errors, progress, files that are complete."""
