"""A model of the paper's base size that translates as a smaller trained one does.

Random weights never end a sentence, or all at once. Here each feature, head and hidden
unit is repeated, and the layers that are added add 0. So sentences are as long as those
of the trained model, and base's products take as long as those of a trained base.
"""

import dataclasses
import math
from pathlib import Path

import jax
import numpy as np

from t2t_jax.decoding.translator import Translator
from t2t_jax.io.errors import UserError
from t2t_jax.model.model import build
from t2t_jax.training.checkpoint import Checkpoints
from t2t_jax.workdir import Workdir

WIDTH, HIDDEN, LAYERS = 512, 2048, 6
ADDS = "out", "outer", "outer_bias"  # the parameters that end a sub-layer
AGREE = 0.9  # required share of equal lines: sums of repeated numbers round differently


def enlarged(translator: Translator) -> Translator:
    """The model with `WIDTH`, `HIDDEN` and `LAYERS`; its heads keep their width.

    Raises:
      UserError: the model is not a smaller one whose sizes divide these.
    """
    small = translator.config.model
    head = small.head_width or small.width // small.heads
    model = dataclasses.replace(
        small,
        width=WIDTH,
        heads=small.heads * WIDTH // small.width,
        head_width=head,
        hidden=HIDDEN,
        layers=LAYERS,
        encoder_layers=0,
        decoder_layers=0,
    )
    built = build(model, *translator.vocabulary.sizes)
    # The logits are sums over repeated features, of an embedding that enters the model
    # multiplied by the root of its width.
    once = math.sqrt(small.width / WIDTH)

    def enlarged_leaf(path, shape, summed) -> np.ndarray:
        x, added = translator.parameters, False
        keys = [part.key for part in path]
        for key in keys:
            added |= key not in x
            x = x[key] if key in x else x[0]  # an added layer is the first one
        times = [new // old for new, old in zip(shape.shape, x.shape, strict=True)]
        x = np.tile(x, times)
        if x.shape != shape.shape:
            raise UserError(f"{'.'.join(map(str, keys))} cannot grow to {shape.shape}")
        if keys[0] in ("embedding", "decoder_norm"):
            return x * once
        return (
            0 * x
            if added and keys[-1] in ADDS
            else x / math.prod(times[axis] for axis in summed)
        )

    parameters = jax.tree.map_with_path(enlarged_leaf, built.shapes, built.summed)
    config = dataclasses.replace(translator.config, model=model)
    return Translator(config, translator.vocabulary, built, parameters, (0,))


def write(workdir: str, folder: Path, lines: list[str]) -> None:
    """Writes the model of a workdir as an `enlarged` one, to a new workdir.

    Args:
      lines: both have to translate most of them alike.

    Raises:
      UserError: they do not, as with a kind of layer that this module does not know.
    """
    small = Translator.load(workdir)
    base = enlarged(small)
    translations = [
        [t.text for t in translator.translate(lines, beam=1)]
        for translator in (small, base)
    ]
    equal_lines = sum(a == b for a, b in zip(*translations, strict=True))
    if equal_lines < AGREE * len(lines):
        raise UserError(
            f"--base: enlarged, the model of {workdir} translates {equal_lines} of "
            f"{len(lines)} lines as before; want a pre-norm Transformer with tied "
            "embeddings and rotary positions, such as that of configs/multi30k.py"
        )
    workdir = Workdir(folder)
    with workdir.hold():
        checkpoints = Checkpoints(workdir, keep_parameters=1, keep_best=1)
        try:
            checkpoints.save_parameters(jax.device_get(base.parameters), 0)
        finally:
            checkpoints.close()
        workdir.store(base.config, base.vocabulary, {"enlarged": True})
