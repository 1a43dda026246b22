"""Metrics of text: BLEU, chrF, TER and perplexity, as pure functions.

Every score of text comes with a signature that says how it was computed; scores with
different signatures are not comparable.
"""
