"""Checks that this installation keeps the project's promises on this machine."""
