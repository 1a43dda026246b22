"""Checks that another system computes the same: scripts that run it, comparisons."""
