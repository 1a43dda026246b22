"""Text to batches of token ids. Nothing at training time tokenizes.

Read the modules in this order:

    corpus.py             sentence pairs from text files and the built-in grammar
    tfds.py               sentence pairs from TensorFlow Datasets
    cleaning.py           the rules that drop pairs from training text
    tokenizer.py          subwords: SentencePiece models, trained or loaded
    subword_sampling.py   other pieces of the same words in every epoch
    text_tokenizer.py     the tokenizer of a training text, loaded or trained
    pairs.py              tokenized pairs, and the examples of a batch of them
    prepare.py            clean, tokenize and store a training text as flat arrays
    prepared_cache.py     the cache on disk that keeps tokenizers and arrays
    kept_text.py          the text of stored pairs, read again
    variation.py          text that differs from epoch to epoch, made from it
    drawing.py            which pairs an epoch draws from corpora with weights
    batching.py           sentence lengths to a plan of every batch of an epoch
    plan.py               the plan itself, and the layout of a batch
    shapes.py             static batch shapes within a token budget
    packing.py            one way to batch: several pairs share a row
    buckets.py            the other way: one pair a row, a few lengths
    sorting.py            fast stable sorting, for the planner
    filling.py            a layout and the arrays to a batch
    feeding.py            batches for any number of epochs, filled ahead of time
    batch_lookup.py       which sentences any batch of a run held
    tensorflow_import.py  TensorFlow without its messages and accelerators
"""
