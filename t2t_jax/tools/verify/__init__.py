"""Checks on this machine what the documentation promises."""
