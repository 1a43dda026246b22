"""Attention: by the sentences of packed rows, without an array of the mask (cuDNN).

An idea that no GPU has run, for Hopper and newer: `benchmarks/ideas/sentences.py` adds
it as `config.model.attention=sentences`. cuDNN takes a mask as a dense bias and skips
no block of keys. It also takes where each sentence of a row begins and how long it is;
JAX 0.10 to 0.12 have that call, but no public name for it. Elsewhere it is `fused`.

Shape suffixes: b batch, t queries, s keys, h heads, k head width, m sentences of a row.
"""

import dataclasses

import jax.numpy as jnp
from jax import Array

from t2t_jax.model import kernels
from t2t_jax.model.attention import KV, attention_weights, fused
from t2t_jax.model.mask import Mask
from t2t_jax.parallel import mesh as meshes
from t2t_jax.sections import field


@dataclasses.dataclass(frozen=True)
class Options:
    """`sentences`: the most in a row; values of further ones are NaN. 0: any number."""

    sentences: int = field(0, low=0)


def attend(q_bthk: Array, kv: KV, mask: Mask, position, drop, options: Options):
    """`fused`, by the sentences of a row where a GPU can."""
    kernel = kernels.kernel_for(q_bthk, kv, mask, position, drop)
    hopper = meshes.cuda_capability(meshes.target_device()) >= 9
    if kernel is not kernels.cudnn or not hopper or position.overrides("scores"):
        return fused(q_bthk, kv, mask, position, drop)
    most = options.sentences or min(q_bthk.shape[1], kv.k_bshk.shape[1])
    return by_sentence(q_bthk, kv, mask, most)


def by_sentence(q_bthk: Array, kv: KV, mask: Mask, most: int) -> Array:
    """NVIDIA's fused attention over the sentences of rows.

    Args:
      most: sentences of a row; those beyond get NaN. Padding gets 0.
    """
    (q_length, q_offset), (k_length, k_offset) = (
        sentences(tokens.segment, most) for tokens in (mask.query, mask.key)
    )
    query_sentence_bt11, key_sentence_bs11 = (
        tokens.segment[..., None, None] for tokens in (mask.query, mask.key)
    )
    # Gradients of tokens that are of no sentence are memory that nothing has written.
    k_bshk, v_bshk = (jnp.where(key_sentence_bs11 > 0, x, 0) for x in kv)
    y_bthk = library_call(
        jnp.where(query_sentence_bt11 > 0, q_bthk, 0),
        k_bshk,
        v_bshk,
        q_seqlen=q_length,
        kv_seqlen=k_length,
        q_offsets=q_offset,
        kv_offsets=k_offset,
        causal=mask.causal,
    )
    unfilled = jnp.where(query_sentence_bt11 > most, jnp.nan, 0.0).astype(y_bthk.dtype)
    known_bt11 = (query_sentence_bt11 > 0) & (query_sentence_bt11 <= most)
    return jnp.where(known_bt11, y_bthk, unfilled)


def sentences(segment_bt: Array, most: int) -> tuple[Array, Array]:
    """Lengths and offsets of the sentences of packed rows, as cuDNN takes them.

    Args:
      segment_bt: as of `Tokens`: a sentence's tokens are consecutive, and sentences are
        numbered from 1 in the order of their tokens; 0 is padding.
      most: the largest number of sentences of a row.

    Returns:
      int32 [b, m] and [b, m + 1], -1 after the last sentence of a row.
    """
    is_of_bmt = segment_bt[:, None, :] == jnp.arange(1, most + 1)[:, None]
    length_bm = is_of_bmt.sum(-1, dtype=jnp.int32)
    offset_bm = jnp.argmax(is_of_bmt, -1).astype(jnp.int32)
    length_bm, offset_bm = (
        jnp.where(length_bm > 0, x_bm, -1) for x_bm in (length_bm, offset_bm)
    )
    return length_bm, jnp.pad(offset_bm, ((0, 0), (0, 1)), constant_values=-1)


def library_call(q_bthk, k_bshk, v_bshk, causal: bool, **sentence_arrays) -> Array:
    """cuDNN's attention over parts of rows.

    Args:
      causal: a query attends to no key after its own place in the sentence.
      sentence_arrays: `q_seqlen`, `kv_seqlen` [b, m]; `q_offsets`, `kv_offsets`
        [b, m + 1].
    """
    from jax._src.cudnn import fused_attention_stablehlo as cudnn

    # JAX would ask the first GPU of this machine, also when it compiles for another.
    capability = meshes.cuda_capability(meshes.target_device())
    original_check, cudnn.check_compute_capability = (
        cudnn.check_compute_capability,
        lambda required: capability >= float(required),
    )
    try:
        return cudnn.dot_product_attention(
            q_bthk,
            k_bshk,
            v_bshk,
            scale=q_bthk.shape[-1] ** -0.5,
            mask_type=cudnn.MaskType["PADDING_CAUSAL" if causal else "PADDING"],
            **sentence_arrays,
        )
    finally:
        cudnn.check_compute_capability = original_check


def weights(q_bthk: Array, kv: KV, mask: Mask, position, options: Options) -> Array:
    """The weights that the kernel does not keep, float32 [b, h, t, s]."""
    return attention_weights(q_bthk, kv, mask, position)
