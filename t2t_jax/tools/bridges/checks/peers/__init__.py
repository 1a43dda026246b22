"""Scripts that run other systems, each in a process of its own."""
