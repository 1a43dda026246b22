"""Text to batches of token ids. Nothing at training time tokenizes.

Read the modules in this order:

    text_files.py     lines of text files, and hashes that show two files are in step
    corpus.py         sentence pairs from text files and the built-in grammar
    tfds.py           sentence pairs from TensorFlow Datasets
    tokenizers/       text to token ids: SentencePiece models, trained or loaded
    cleaning.py       the rules that drop pairs from training text
    hashing.py        hash tables of arrays of keys: the set of pairs seen so far
    pairs.py          tokenized pairs, and the examples of a batch of them
    prepare.py        clean, tokenize and store a training text as flat arrays
    drawing.py        which pairs an epoch draws from corpora with weights
    shapes.py         static batch shapes within a token budget
    filling.py        the layout of a batch, and its filling from the arrays
    batching.py       sentence lengths to a plan of every batch of an epoch
    feeding.py        batches for any number of epochs, and which sentences they held
"""
