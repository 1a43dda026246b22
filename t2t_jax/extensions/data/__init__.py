"""Training text that changes, links between its words, and preparation in parts.

noise.py             examples that change from epoch to epoch: masks, spans
variation.py         text that differs from epoch to epoch, made from stored text
links.py             links between the words of a training text
tokenizers/          byte-pair codes of the words of Moses; sampled subwords
parts.py             preparation in parts
"""
