"""Tokenizers of published models, and sampled subwords.

bpe.py               byte-pair codes of the words of Moses
subword_sampling.py  other tokens of the same words in every epoch
"""
