"""Token ids to outputs: the Transformer (section 3).

Read the modules in this order:

    transformer.py    the encoder-decoder Transformer, from the whole to its parts
    attention.py      attention by its formula, with several heads, and variants
    mask.py           which tokens attend to which
    feed_forward.py   feed-forward layers
    embedding.py      embeddings of both sides, and the output layer
    positions.py      position schemes
    layers.py         weights, dropout, normalization: parts of every layer
    decoder_cache.py  state between decoding steps
    kernels.py        fused attention that libraries ship
    architecture.py   the base class of all models: what other folders know of one
    model.py          MODELS, the table of models (others: `extensions/model/`); `build`
"""
