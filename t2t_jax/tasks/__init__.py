"""Tasks: how text becomes examples, and how answers are scored."""
