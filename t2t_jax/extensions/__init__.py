"""What is built on the core, in rooms of the same names and in the same order.

The core imports nothing of it: its tables have addresses (`sections.Table`), and what a
config or a flag asks for is imported when it is asked for. A module here imports the
core, its own room and earlier rooms; no tool.
"""
