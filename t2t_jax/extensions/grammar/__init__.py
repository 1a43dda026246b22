"""The built-in English-German corpora: a grammar that generates sentence pairs.

It trains a tiny Transformer in minutes without a download, and its test sets ask what
was learned. A sentence is drawn as a meaning (a `Clause`), and each language puts that
meaning into words, so the two sides always correspond.

Read the modules in this order:

    lexicon.toml  the words of both languages
    harder.toml   more words, and how the sentences of the harder text are drawn
    lexicon.py    their forms
    clauses.py    a clause, and the rules that put it into English and German
    dice.py       reproducible random choices
    choices.py    which words go together, and how often each construction is drawn
    phrases.py    draws noun phrases: persons, things, places
    sentences.py  draws clauses and joins them to sentences
    corpus.py     deals sentences out to train, dev and test splits; the baseline
"""
