"""Tokenizers: text to token ids, and back.

vocabulary.py        the tokens of a model: encodes lines and decodes them
table.py             the interface of a tokenizer, and those that exist; labels
sentencepieces.py    SentencePiece models, ours and those of published models
words.py             much text word by word: each different one is encoded once
training.py          the tokenizer of a training text, loaded or trained
"""
