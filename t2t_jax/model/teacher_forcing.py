"""Teacher forcing: the decoder's input is the target, not its own output."""

from typing import Any


def teacher_forcing(batch: dict[str, Any], bos: int) -> dict[str, Any]:
    """Adds `target_input`: targets shifted right by one, after BOS (figure 1).

    Args:
      batch: NumPy or JAX arrays, with `target` and `target_position` [b, t]. Every
        sentence of a packed row gets its own BOS, at its position 0.
    """
    target_bt, position_bt = batch["target"], batch["target_position"]
    xp = target_bt.__array_namespace__()  # numpy or jax.numpy
    # The first token of a sentence is now its predecessor's last one, or the row's.
    # It is at position 0, so BOS replaces it.
    shifted_bt = xp.roll(target_bt, 1, axis=1)
    input_bt = xp.where(position_bt == 0, bos, shifted_bt).astype(target_bt.dtype)
    return batch | {"target_input": input_bt}
