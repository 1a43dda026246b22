"""Learns from users' corrections: trains an adapter, and serves it if it is better."""
