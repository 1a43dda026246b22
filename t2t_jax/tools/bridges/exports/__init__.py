"""Formats that `export` writes."""
