"""Scores test sets, and records where each score comes from.

`scores.py` answers and scores one set; `provenance.py` describes what the score depends
on and which published numbers it is comparable with.
"""
