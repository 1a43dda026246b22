"""The terminal and the disk: messages, errors, locks, files that are complete."""
