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
