r"""The Transformer of "Attention Is All You Need" (Vaswani et al. 2017) in one file.

Read it from the first line to the last with the paper next to it: the functions are in
the order of its sections, whose numbers are in the margin. From two text files, one
sentence a line, to BLEU:

    python examples/transformer.py --workdir=DIR --source=en --target=de \
        --train=FOLDER/train --dev=FOLDER/dev --test=FOLDER/test

reads FOLDER/train.en, FOLDER/train.de and so on; --train=A,B names two files. Then

    python examples/transformer.py --workdir=DIR < SOURCE_TEXT

translates. By default the model is small, for minutes on a CPU. The paper's base model:

    --layers=6 --d_model=512 --d_ff=2048 --heads=8 --vocabulary=37000 \
        --batch_tokens=25000 --steps=100000 --warmup=4000 --save_every=1500

Where the paper is silent: weights begin as Glorot and Bengio (2010) draw them, the
epsilon of LayerNorm is 1e-6, and label smoothing includes the true token.

A model is a nested dict of arrays, and all functions of it are pure. The end of a name
is the axes of its array: b batch, s source, t target, d d_model, h heads, k width of a
head (the paper's d_k and d_v), f d_ff, v vocabulary, n hypotheses, i pairs of features.
"""

import argparse
import functools
import io
import itertools
import math
import os
import sys
import time
from collections import defaultdict, deque
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import sacrebleu
import sentencepiece

# The first ids of the vocabulary: what fills a row, what begins and ends a sentence,
# and a character that the training text lacks.
PAD, BOS, EOS, UNKNOWN = range(4)


# ------------------------------------------------------- 3.1 Encoder and decoder stacks
def no_dropout(x):
    return x


def logits(parameters, source_bs, target_bt, drop=no_dropout):
    """All of figure 1 but the last softmax: a score of each next token, [b, t, v].

    Args:
      target_bt: BOS and the tokens after it. From those up to t, output t predicts
        token t + 1.
      drop: dropout, in training (5.4).
    """
    return decode(parameters, target_bt, encode(parameters, source_bs, drop), drop)


class Memory(NamedTuple):
    """All that the decoder reads of the source."""

    kvs: list  # the keys and values of each of its layers
    mask_b1s: jax.Array


def encode(parameters, source_bs, drop=no_dropout):
    """The left half of figure 1."""
    mask_b1s = (source_bs != PAD)[:, None]
    x_bsd = drop(embed(parameters, source_bs))
    for layer in parameters["encoder"].values():
        # Self-attention: queries, keys and values come from the same place (3.2.3).
        kv = keys_values(layer["attention"], x_bsd)
        y_bsd = multi_head(layer["attention"], x_bsd, kv, mask_b1s)
        x_bsd = add_and_norm(layer["attention_sub"], x_bsd, drop(y_bsd))
        y_bsd = feed_forward(layer["ff"], x_bsd)
        x_bsd = add_and_norm(layer["ff_sub"], x_bsd, drop(y_bsd))
    # Computed here, once, and not at each step of a translation.
    layers = parameters["decoder"].values()
    return Memory([keys_values(layer["cross"], x_bsd) for layer in layers], mask_b1s)


def decode(parameters, target_bt, memory, drop=no_dropout):
    """The right half of figure 1, for all positions of a known target at once."""
    # "Prevent positions from attending to subsequent positions": row t of the triangle
    # is True up to column t. So one pass trains the prediction of every token.
    mask_1tt = jnp.tri(target_bt.shape[1], dtype=bool)[None]
    x_btd = drop(embed(parameters, target_bt))
    layers = parameters["decoder"].values()
    for layer, source_kv in zip(layers, memory.kvs, strict=True):
        kv = keys_values(layer["attention"], x_btd)
        x_btd = decoder_layer(layer, x_btd, kv, mask_1tt, source_kv, memory, drop)
    return output_layer(parameters, x_btd)


def decoder_layer(layer, x_btd, kv, mask_bts, source_kv, memory, drop):
    """Masked self-attention to `kv`, attention to the source, feed-forward."""
    y_btd = multi_head(layer["attention"], x_btd, kv, mask_bts)
    x_btd = add_and_norm(layer["attention_sub"], x_btd, drop(y_btd))
    # Queries come from the decoder, keys and values from the encoder (3.2.3).
    y_btd = multi_head(layer["cross"], x_btd, source_kv, memory.mask_b1s)
    x_btd = add_and_norm(layer["cross_sub"], x_btd, drop(y_btd))
    y_btd = feed_forward(layer["ff"], x_btd)
    return add_and_norm(layer["ff_sub"], x_btd, drop(y_btd))


def add_and_norm(sub, x_btd, y_btd):
    """LayerNorm(x + Sublayer(x)): the residual connection around each sub-layer."""
    return layer_norm(sub["norm"], x_btd + y_btd)


def layer_norm(norm, x_btd, epsilon=1e-6):
    """Mean 0 and variance 1 for each vector, then scale and bias (Ba et al. 2016)."""
    x_btd = x_btd - x_btd.mean(axis=-1, keepdims=True)
    variance_bt1 = (x_btd**2).mean(axis=-1, keepdims=True)
    return norm["scale"] * x_btd / (variance_bt1 + epsilon) ** 0.5 + norm["bias"]


# ------------------------------------------------------------------------ 3.2 Attention
def attention(q_bthk, k_bshk, v_bshk, mask_bts):  # 3.2.1, equation 1
    """softmax(Q K^T / sqrt(d_k)) V in each head; `mask_bts` is True at visible keys."""
    # A product of d_k terms has variance d_k. Without the division the softmax would be
    # nearly one-hot, and its gradient nearly 0.
    scores_bhts = jnp.einsum("bthk,bshk->bhts", q_bthk, k_bshk)
    scores_bhts = scores_bhts / math.sqrt(q_bthk.shape[-1])
    # exp(-1e9) is 0. Minus infinity would give NaN in empty rows, which see nothing.
    weights_bhts = softmax(jnp.where(mask_bts[:, None], scores_bhts, -1e9))
    return jnp.einsum("bhts,bshk->bthk", weights_bhts, v_bshk)


def keys_values(weights, x_bsd):  # 3.2.2
    """K W^K and V W^V. The matrices of all heads are one array, [d, h, k]."""
    return [jnp.einsum("bsd,dhk->bshk", x_bsd, weights[w]) for w in ("key", "value")]


def multi_head(weights, x_btd, kv, mask_bts):  # 3.2.2
    """Concat(head_1, ..., head_h) W^O; the queries are made of `x_btd`."""
    q_bthk = jnp.einsum("btd,dhk->bthk", x_btd, weights["query"])
    # The sum over h and k is the product of the concatenated heads with W^O.
    heads_bthk = attention(q_bthk, *kv, mask_bts)
    return jnp.einsum("bthk,hkd->btd", heads_bthk, weights["out"])


# ---------------------------------------------- 3.3 Position-wise feed-forward networks
def feed_forward(ff, x_btd):  # equation 2
    """max(0, x W_1 + b_1) W_2 + b_2, the same at every position."""
    x_btf = jnp.maximum(0, x_btd @ ff["inner"] + ff["inner_bias"])
    return x_btf @ ff["outer"] + ff["outer_bias"]


# ----------------------------------------------------------- 3.4 Embeddings and softmax
def embed(parameters, tokens_bt, start=0):
    """Embeddings times sqrt(d_model), plus the positions `first`, `first` + 1, ..."""
    table_vd = parameters["embedding"]["tokens"]
    d_model = table_vd.shape[1]
    # Vectors begin with length 1, as the output layer wants them. Times sqrt(d_model),
    # their elements are as large as the sines that are added.
    x_btd = table_vd[tokens_bt] * math.sqrt(d_model)
    return x_btd + positional_encoding(start + jnp.arange(tokens_bt.shape[1]), d_model)


def output_layer(parameters, x_btd):
    """Scores of all tokens, [b, t, v]: the matrix of the embeddings a third time."""
    return x_btd @ parameters["embedding"]["tokens"].T


def log_softmax(x):
    x = x - x.max(axis=-1, keepdims=True)  # changes nothing, but exp cannot overflow
    return x - jnp.log(jnp.exp(x).sum(axis=-1, keepdims=True))


def softmax(x):
    return jnp.exp(log_softmax(x))


# -------------------------------------------------------------- 3.5 Positional encoding
def positional_encoding(position_t, d_model):
    """PE(pos, 2i) = sin(pos / 10000^(2i / d_model)), PE(pos, 2i+1) = cos, [t, d]."""
    two_i = jnp.arange(0, d_model, 2)
    angle_ti = position_t[:, None] / 10000.0 ** (two_i / d_model)
    # Side by side and then flat: sine, cosine, sine, cosine, ...
    return jnp.stack([jnp.sin(angle_ti), jnp.cos(angle_ti)], -1).reshape(-1, d_model)


# ------------------------------------------------------ The parameters, before training
def initial_parameters(rng, vocabulary, layers, d_model, d_ff, heads):
    """A nested dict of float32 arrays."""
    rngs = (jax.random.fold_in(rng, i) for i in itertools.count())

    def weight(*shape, inputs=1):
        # The first axes are summed over. Variances stay alike from layer to layer.
        axes = range(inputs), range(inputs, len(shape))
        return jax.nn.initializers.glorot_uniform(*axes)(next(rngs), shape)

    def layer(*attentions):
        d_k = d_model // heads
        ff = {"inner": weight(d_model, d_ff), "outer": weight(d_ff, d_model)}
        ff |= {"inner_bias": jnp.zeros(d_ff), "outer_bias": jnp.zeros(d_model)}
        weights = {"ff": ff}
        for name in attentions:
            weights[name] = {
                w: weight(d_model, heads, d_k) for w in ("query", "key", "value")
            }
            weights[name]["out"] = weight(heads, d_k, d_model, inputs=2)
        for name in (*attentions, "ff"):
            norm = {"scale": jnp.ones(d_model), "bias": jnp.zeros(d_model)}
            weights[f"{name}_sub"] = {"norm": norm}
        return weights

    table_vd = jax.random.normal(next(rngs), (vocabulary, d_model)) * d_model**-0.5
    return {
        "embedding": {"tokens": table_vd},
        "encoder": {i: layer("attention") for i in range(layers)},
        "decoder": {i: layer("attention", "cross") for i in range(layers)},
    }


# ------------------------------------------------------- 5.1 Training data and batching
def read_pairs(files, endings):
    """The lines of both sides of `PREFIX`, or of two files `A,B`."""
    paths = files.split(",") if "," in files else [f"{files}.{e}" for e in endings]
    if len(paths) != 2:
        raise SystemExit(f"{files} is {len(paths)} files; name two, as in --train=A,B")
    sides = []
    for path in paths:
        try:
            text = Path(path).read_text(encoding="utf-8")
        except (OSError, UnicodeError) as e:
            raise SystemExit(f"{path} is not a text file in UTF-8: {e}") from None
        sides.append(text.removesuffix("\n").split("\n"))
    counts = " and ".join(f"{len(side)} lines" for side in sides)
    if len(sides[0]) != len(sides[1]):
        raise SystemExit(f"{' and '.join(paths)} must have equally many, not {counts}")
    return sides


def train_subwords(lines, vocabulary):
    """Byte-pair encoding (Sennrich et al. 2016): one vocabulary for both languages."""
    model, files = io.BytesIO(), {"sentence_iterator": iter(lines), "minloglevel": 2}
    options = {"model_type": "bpe", "vocab_size": vocabulary, "model_writer": model}
    options |= {"pad_id": PAD, "bos_id": BOS, "eos_id": EOS, "unk_id": UNKNOWN}
    # The text as it is, with all its characters, since BLEU compares them.
    options |= {"normalization_rule_name": "identity", "character_coverage": 1.0}
    try:
        sentencepiece.SentencePieceTrainer.train(**files, **options)
    except RuntimeError as e:
        raise SystemExit(f"choose another --vocabulary: {e}") from None
    return model.getvalue()


def padded(length):
    """Rounds up to 6, 8, 12, 16, 24, ...: XLA compiles a program for each shape."""
    power = 2 ** max(3, (length - 1).bit_length())
    return power * 3 // 4 if length <= power * 3 // 4 else power


def as_array(sentences, rows, length):
    """Sentences as an array [rows, length], filled with padding."""
    array = np.full((rows, length), PAD, np.int32)
    for row, sentence in zip(array, sentences, strict=False):
        row[: len(sentence)] = sentence
    return array


def batches(pairs, batch_tokens, rng):
    """An epoch of (source_bs, target_bt), each array of about `batch_tokens` tokens.

    "Batched together by approximate sequence length": little of them is padding.
    """
    groups = defaultdict(list)
    for i in rng.permutation(len(pairs)):
        groups[padded(max(map(len, pairs[i])))].append(pairs[i])
    epoch = []
    for length, group in groups.items():
        rows = batch_tokens // length
        starts = range(0, len(group), rows)
        epoch += [(group[start : start + rows], rows, length) for start in starts]
    for i in rng.permutation(len(epoch)):
        members, rows, length = epoch[i]
        yield tuple(as_array(side, rows, length) for side in zip(*members, strict=True))


# ------------------------------------------------------------------------ 5.3 Optimizer
def learning_rate(step, d_model, warmup_steps):  # equation 3
    """Rises linearly in the warm-up, then falls as 1 / sqrt(step); step from 1."""
    return d_model**-0.5 * min(step**-0.5, step * warmup_steps**-1.5)


def adam(parameters, gradients, m, v, step, rate, beta1=0.9, beta2=0.98, epsilon=1e-9):
    """One step of Adam (Kingma and Ba 2015, algorithm 1); `step` is from 1."""
    # Moving averages of the gradients and of their squares.
    m = jax.tree.map(lambda m, g: beta1 * m + (1 - beta1) * g, m, gradients)
    v = jax.tree.map(lambda v, g: beta2 * v + (1 - beta2) * g**2, v, gradients)

    def updated(x, m, v):
        # The averages began at 0, so they are too small at first.
        m, v = m / (1 - beta1**step), v / (1 - beta2**step)
        return x - rate * m / (v**0.5 + epsilon)

    return jax.tree.map(updated, parameters, m, v), m, v


# ------------------------------------------------------------------- 5.4 Regularization
def dropout(rng, rate):
    """A function that zeroes a fraction `rate` of an array, anew at each call."""
    rngs = (jax.random.fold_in(rng, i) for i in itertools.count())

    def drop(x):
        mask = jax.random.bernoulli(next(rngs), 1 - rate, x.shape)
        return jnp.where(mask, x / (1 - rate), 0)  # x remains the expected value

    return drop if rate else no_dropout


def cross_entropy(logits_btv, target_bt, smoothing):
    """The sum over all tokens but padding, in nats, and their number.

    Label smoothing: 1 - epsilon_ls of the probability is to go to the true token, the
    rest evenly to all (Szegedy et al. 2015, section 7).
    """
    log_p_btv = log_softmax(logits_btv)
    true_bt = jnp.take_along_axis(log_p_btv, target_bt[..., None], axis=-1)[..., 0]
    loss_bt = -(1 - smoothing) * true_bt - smoothing * log_p_btv.mean(axis=-1)
    real_bt = target_bt != PAD
    return jnp.where(real_bt, loss_bt, 0).sum(), real_bt.sum()


def loss_sums(parameters, source_bs, target_bt, smoothing=0.0, drop=no_dropout):
    """`cross_entropy` of a batch: each token is predicted from the true ones before."""
    # "Outputs (shifted right)" in figure 1: BOS first, and the last token is no input.
    inputs_bt = jnp.pad(target_bt[:, :-1], ((0, 0), (1, 0)), constant_values=BOS)
    logits_btv = logits(parameters, source_bs, inputs_bt, drop)
    return cross_entropy(logits_btv, target_bt, smoothing)


@functools.partial(jax.jit, static_argnums=(7, 8), donate_argnums=(0, 1, 2))
def train_step(parameters, m, v, batch, step, rate, rng, smoothing, p_drop):
    """One update; returns the parameters, Adam's m and v, and the loss of a token."""

    def mean_loss(parameters):
        drop = dropout(jax.random.fold_in(rng, step), p_drop)
        total, tokens = loss_sums(parameters, *batch, smoothing, drop)
        return total / tokens

    loss, gradients = jax.value_and_grad(mean_loss)(parameters)
    return *adam(parameters, gradients, m, v, step, rate), loss


def train(flags, pairs, dev_pairs):
    """Trains; returns the average of the last checkpoints (6.1)."""
    rng, order = jax.random.key(flags.seed), np.random.default_rng(flags.seed)
    parameters = initial_parameters(
        rng, flags.vocabulary, flags.layers, flags.d_model, flags.d_ff, flags.heads
    )
    m, v = (jax.tree.map(jnp.zeros_like, parameters) for _ in range(2))
    count = sum(x.size for x in jax.tree.leaves(parameters))
    print(f"{len(pairs):,} pairs, {count:,} parameters", flush=True)
    epochs = (batches(pairs, flags.batch_tokens, order) for _ in itertools.count())
    dev = [*batches(dev_pairs, flags.batch_tokens, np.random.default_rng(0))]
    dev_sums, losses, start = jax.jit(loss_sums), [], time.time()
    checkpoints = deque(maxlen=flags.average)  # it forgets the oldest
    stream = itertools.islice(itertools.chain.from_iterable(epochs), flags.steps)
    for step, batch in enumerate(stream, start=1):
        rate = learning_rate(step, flags.d_model, flags.warmup)
        parameters, m, v, loss = train_step(
            *(parameters, m, v, batch, step, rate, rng, flags.smoothing, flags.dropout)
        )
        losses.append(loss)
        if step % flags.save_every == 0 or step == flags.steps:
            checkpoints.append(jax.device_get(parameters))
            total, tokens = np.sum([dev_sums(parameters, *b) for b in dev], axis=0)
            figures = (
                f"step {step}  loss {np.mean(losses):.3f}  learning rate {rate:.1e}"
            )
            figures += f"  dev perplexity {math.exp(total / tokens):.2f}"
            print(f"{figures}  {time.time() - start:.0f} s", flush=True)
            losses.clear()
    return jax.tree.map(lambda *arrays: np.mean(arrays, axis=0), *checkpoints)


# ---------------------------------------------------------------------- 6.1 Beam search
def decode_step(parameters, token_b, position, cache, memory):
    """The last row of `decode`, [b, v], from the last token and a cache of the rest."""
    # The cache has the keys and values [b, t, h, k] of each layer's self-attention.
    x_b1d = embed(parameters, token_b[:, None], position)
    seen_11t = (jnp.arange(cache[0][0].shape[1]) <= position)[None, None]
    layers = zip(parameters["decoder"].values(), cache, memory.kvs, strict=True)
    cache = []
    for layer, kv, source_kv in layers:
        new = zip(kv, keys_values(layer["attention"], x_b1d), strict=True)
        kv = [old.at[:, position].set(x[:, 0]) for old, x in new]
        x_b1d = decoder_layer(layer, x_b1d, kv, seen_11t, source_kv, memory, no_dropout)
        cache.append(kv)
    return output_layer(parameters, x_b1d)[:, 0], cache


def length_penalty(length, alpha):
    """lp of Wu et al. 2016, equation 14: a hypothesis is worth log P(target) / lp.

    Each token lowers the probability, so without lp short hypotheses would win.
    """
    return ((5 + length) / 6) ** alpha


@functools.partial(jax.jit, static_argnames=("beam", "longest"))
def beam_search(parameters, source_bs, limit_b, beam, alpha, longest):
    """The best translations that a beam finds, [b, 1 + longest]: BOS, tokens, EOS.

    Each has at most `limit_b` tokens, EOS included.
    """
    b, n = len(source_bs), beam
    sentence_b, sentence_b1 = jnp.arange(b), jnp.arange(b)[:, None]
    # Every hypothesis is a row of the decoder; those of a sentence are neighbours.
    memory = encode(parameters, source_bs)
    memory = jax.tree.map(lambda x: jnp.repeat(x, n, axis=0), memory)

    def extend(state):
        """Extends all hypotheses by a token, to `length` tokens."""
        length, cache, tokens_bnt, log_prob_bn, best_bt, best_b, _ = state
        last_b = tokens_bnt[:, :, length - 1].reshape(-1)
        logits_bv, cache = decode_step(parameters, last_b, length - 1, cache, memory)
        log_p_bnv = log_softmax(logits_bv).reshape(b, n, -1)
        log_p_bnv = log_p_bnv.at[:, :, jnp.array([PAD, BOS])].set(-jnp.inf)
        # Of all extensions of a sentence's hypotheses, the n most probable survive.
        total_bnv, v = log_prob_bn[:, :, None] + log_p_bnv, log_p_bnv.shape[2]
        log_prob_bn, place_bn = jax.lax.top_k(total_bnv.reshape(b, -1), n)
        parent_bn, token_bn = place_bn // v, place_bn % v
        row_b = (sentence_b1 * n + parent_bn).reshape(-1)
        cache = jax.tree.map(lambda x: x[row_b], cache)
        tokens_bnt = tokens_bnt[sentence_b1, parent_bn].at[:, :, length].set(token_bn)
        # Those that end leave the beam, and the best of them is remembered.
        ended_bn = (token_bn == EOS) & (length <= limit_b)[:, None]
        lp = length_penalty(length, alpha)
        score_bn = jnp.where(ended_bn, log_prob_bn / lp, -jnp.inf)
        first_b, score_b = score_bn.argmax(axis=1), score_bn.max(axis=1)
        log_prob_bn = jnp.where(token_bn == EOS, -jnp.inf, log_prob_bn)
        # If none has ended at the limit, the most probable one has to do.
        cut_b = (length == limit_b) & (jnp.maximum(best_b, score_b) == -jnp.inf)
        new_b = (score_b > best_b) | cut_b
        best_bt = jnp.where(new_b[:, None], tokens_bnt[sentence_b, first_b], best_bt)
        best_b = jnp.maximum(best_b, score_b)
        # "Terminate early when possible": when no hypothesis can win any more, since
        # its probability only falls, and lp is largest at the limit.
        bound_b = log_prob_bn.max(axis=1) / length_penalty(limit_b, alpha)
        stop = ((bound_b <= best_b) | (length >= limit_b)).all()
        return length + 1, cache, tokens_bnt, log_prob_bn, best_bt, best_b, stop

    key = parameters["decoder"][0]["attention"]["key"]
    empty = jnp.zeros((b * n, longest, *key.shape[1:]), key.dtype)
    cache = [[empty, empty] for _ in parameters["decoder"]]
    tokens_bnt = jnp.full((b, n, 1 + longest), PAD).at[:, :, 0].set(BOS)
    # Only one hypothesis at first: equal ones would have equal extensions.
    log_prob_bn = jnp.full((b, n), -jnp.inf, key.dtype).at[:, 0].set(0)
    best_b = jnp.full(b, -jnp.inf, key.dtype)
    state = 1, cache, tokens_bnt, log_prob_bn, tokens_bnt[:, 0], best_b, False
    return jax.lax.while_loop(lambda state: ~state[-1], extend, state)[4]


def translate(parameters, subwords, lines, beam, alpha, extra=50, rows=64):
    """A translation for each line, at most `extra` tokens longer than the line."""
    sentences = [[*ids, EOS] for ids in subwords.encode([*lines])]
    translations = [""] * len(lines)
    by_length = sorted(range(len(lines)), key=lambda i: len(sentences[i]))
    for start in range(0, len(lines), rows):
        batch = by_length[start : start + rows]
        length = padded(len(sentences[batch[-1]]))
        source_bs = as_array([sentences[i] for i in batch], rows, length)
        limit_b = (source_bs != PAD).sum(axis=1) + extra
        limit_b[len(batch) :] = 1  # rows without a sentence
        longest = length + extra
        best_bt = beam_search(parameters, source_bs, limit_b, beam, alpha, longest)
        for i, tokens in zip(batch, np.asarray(best_bt).tolist(), strict=False):
            ids = itertools.takewhile(lambda x: x not in (EOS, PAD), tokens[1:])
            translations[i] = subwords.decode([*ids])
    return translations


# -------------------------------------------------------- Files, the command line, BLEU
def write(path, content):
    """Writes a file that is complete or absent, even if the program is killed."""
    part = path.with_name(f"{path.name}.part")
    part.write_bytes(content)
    os.replace(part, path)


def save(path, parameters):
    """Writes the parameters, each array under its path in the nested dict."""
    leaves = jax.tree_util.tree_leaves_with_path(parameters)
    content = io.BytesIO()
    np.savez(content, **{"/".join(str(k.key) for k in keys): x for keys, x in leaves})
    write(path, content.getvalue())


def load(path):
    """Reads what `save` wrote."""
    parameters = {}
    with np.load(path) as arrays:
        for name, x in arrays.items():
            *folders, leaf = [int(w) if w.isdigit() else w for w in name.split("/")]
            level = parameters
            for folder in folders:
                level = level.setdefault(folder, {})
            level[leaf] = jnp.asarray(x)
    return parameters


FLAGS = {  # name: (default, what it is)
    "vocabulary": (4000, "subwords of both languages (5.1)"),
    "layers": (2, "N (3.1)"),
    "d_model": (128, "width of the model (3.1)"),
    "d_ff": (512, "width inside the feed-forward networks (3.3)"),
    "heads": (4, "h (3.2.2)"),
    "batch_tokens": (2048, "tokens of each side in a batch (5.1)"),
    "max_length": (96, "pairs with more tokens in a sentence are left out"),
    "steps": (2000, "updates (5.2)"),
    "warmup": (600, "warmup_steps (5.3)"),
    "dropout": (0.1, "P_drop (5.4)"),
    "smoothing": (0.1, "epsilon_ls (5.4)"),
    "save_every": (100, "steps between checkpoints"),
    "average": (5, "checkpoints of which the average is taken (6.1)"),
    "beam": (4, "hypotheses of a sentence (6.1)"),
    "alpha": (0.6, "of the length penalty (6.1)"),
    "seed": (1, "of everything random"),
}


def flags_of(arguments):
    """The command line, checked."""
    layout = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=layout)
    parser.add_argument("--workdir", type=Path, required=True, help="a new folder")
    for name in ("train", "dev", "test"):
        parser.add_argument(f"--{name}", metavar="PREFIX|A,B", help="sentence pairs")
    parser.add_argument("--source", default="en", help="ending of PREFIX.SOURCE")
    parser.add_argument("--target", default="de", help="ending of PREFIX.TARGET")
    for name, (default, text) in FLAGS.items():
        options = {"type": type(default), "default": default}
        parser.add_argument(f"--{name}", **options, help=f"{text}; default {default}")
    flags = parser.parse_args(arguments)
    for name, (default, _) in FLAGS.items():
        value = getattr(flags, name)
        if isinstance(default, int) and value < 1:
            parser.error(f"--{name}={value} must be at least 1")
        if name in ("dropout", "smoothing") and not 0 <= value < 1:
            parser.error(f"--{name}={value} must be at least 0 and below 1")
    if not 0 <= flags.alpha < math.inf:
        parser.error(f"--alpha={flags.alpha} must be at least 0: see `beam_search`")
    if flags.d_model % 2 or flags.d_model % flags.heads:
        parser.error("--d_model must be even, and a multiple of --heads")
    if flags.batch_tokens < padded(flags.max_length):
        parser.error(f"--batch_tokens must be at least {padded(flags.max_length)}")
    if flags.train and not (flags.dev and flags.test):
        parser.error("--train also needs --dev and --test")
    return flags


def main(arguments=None):
    flags = flags_of(arguments)
    model, subwords_model = flags.workdir / "model.npz", flags.workdir / "bpe.model"
    if not flags.train:
        if not model.exists():
            raise SystemExit(f"there is no {model}; train it with --train")
        subwords = sentencepiece.SentencePieceProcessor(model_file=str(subwords_model))
        lines = sys.stdin.read().removesuffix("\n").split("\n")
        output = translate(load(model), subwords, lines, flags.beam, flags.alpha)
        print(*output, sep="\n")
        return
    parts, endings = (flags.train, flags.dev, flags.test), (flags.source, flags.target)
    text, dev, (sources, references) = (read_pairs(part, endings) for part in parts)
    content = train_subwords(itertools.chain(*text), flags.vocabulary)
    subwords = sentencepiece.SentencePieceProcessor(model_proto=content)
    pairs = []
    for sides in (text, dev):
        ids = [[[*line, EOS] for line in subwords.encode(side)] for side in sides]
        encoded = zip(*ids, strict=True)
        pairs.append([p for p in encoded if max(map(len, p)) <= flags.max_length])
        if not pairs[-1]:
            raise SystemExit("all pairs have more tokens than --max_length")
    try:
        flags.workdir.mkdir(parents=True)  # nothing is overwritten
    except OSError as e:
        raise SystemExit(f"--workdir must be a new folder: {e}") from None
    write(subwords_model, content)
    parameters = train(flags, *pairs)
    save(model, parameters)
    output = translate(parameters, subwords, sources, flags.beam, flags.alpha)
    write(flags.workdir / "test.translated", "".join(f"{x}\n" for x in output).encode())
    bleu = sacrebleu.BLEU()
    print(bleu.corpus_score(output, [references]), bleu.get_signature(), sep="\n")


if __name__ == "__main__":
    main()
