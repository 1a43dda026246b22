"""All that this package asks of JAX under names that JAX does not promise to keep."""


def has_tpu() -> bool:
    """True if a TPU is attached, or if that is unknown; does not start JAX."""
    try:
        # JAX's own check of the PCI devices.
        from jax._src.hardware_utils import num_available_tpu_chips_and_device_id

        return num_available_tpu_chips_and_device_id()[0] > 0
    except Exception:
        return True


def coordination_client():
    """The client with which processes exchange values; None in a single process."""
    from jax._src import distributed

    return distributed.global_state.client


def attention_of_sentences(q_bthk, k_bshk, v_bshk, causal, capability, **sentences):
    """cuDNN's attention over parts of rows (Hopper), which JAX 0.10 to 0.12 have.

    Args:
      causal: a query attends to no key after its own place in the sentence.
      capability: of the GPU to compile for, which need not be attached.
      sentences: `q_seqlen`, `kv_seqlen` [b, m], `q_offsets`, `kv_offsets` [b, m + 1].
    """
    from jax._src.cudnn import fused_attention_stablehlo as cudnn

    # JAX would ask the first GPU of this machine.
    asked, cudnn.check_compute_capability = (
        cudnn.check_compute_capability,
        lambda wanted: capability >= float(wanted),
    )
    try:
        return cudnn.dot_product_attention(
            q_bthk,
            k_bshk,
            v_bshk,
            scale=q_bthk.shape[-1] ** -0.5,
            mask_type=cudnn.MaskType["PADDING_CAUSAL" if causal else "PADDING"],
            **sentences,
        )
    finally:
        cudnn.check_compute_capability = asked
