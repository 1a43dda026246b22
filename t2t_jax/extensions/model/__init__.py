"""Models other than the paper's.

one_sided.py    models of one of the Transformer's stacks
parts.py        what several of the next ones are made of
lstm.py, conv.py, bytenet.py, neural_gpu.py   what came before the Transformer
"""
