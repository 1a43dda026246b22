"""Teacher-forced logits as an ONNX graph, through jax2onnx; no search.

The number of rows is free. The lengths of source and target are fixed: jax2onnx gives a
range over a symbolic length a size that it cannot match with that length, and position
tables are constants. Padding is inert, so shorter rows are padded.
"""

import importlib.util
import logging
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx
from jax import Array, export

from t2t_jax.data.tokenizers.vocabulary import TOKENIZER_FILES
from t2t_jax.decoding.translator import Translator
from t2t_jax.io.errors import UserError
from t2t_jax.model import kernels
from t2t_jax.model.architecture import logits
from t2t_jax.model.layers import Parameters
from t2t_jax.model.model import Model
from t2t_jax.tools.bridges.checks.agreement import float32
from t2t_jax.tools.bridges.exports.card import origin, write_own
from t2t_jax.tools.bridges.formats import ExportFormat

FORMAT, VERSION = "t2t_jax-onnx", 1
GRAPH, ABOUT = "model.onnx", "export.json"
LENGTH = 128  # of source and target in tokens, if the model has so many positions
INPUTS = "source", "source_length", "target"


def write(
    translator: Translator, folder: Path, options: dict[str, Any]
) -> dict[str, Any]:
    """Writes the graph and the tokenizers; returns the length of its rows."""
    if importlib.util.find_spec("jax2onnx") is None:
        raise UserError(
            "--to=onnx needs jax2onnx, which is not installed: "
            "pip install 't2t_jax[peers]'"
        )
    translator = float32(translator)
    longest = translator.model.longest
    length = LENGTH if longest is None else min(LENGTH, longest)
    _convert(translator, length, folder / GRAPH)
    about, use = _about(translator, length), _use(translator, length)
    kind = "logits of t2t_jax in ONNX"
    write_own(translator, folder / ABOUT, about, kind, use, options)
    return {"length": length}


def logits_function(model: Model, parameters: Parameters) -> Callable[..., Array]:
    """Returns the function that is converted; the parameters are its constants."""

    def of_batch(source_bs: Array, length_b: Array, target_bt: Array) -> Array:
        """Computes logits, float32 [b, t, v].

        Args:
          source_bs: int32, ids with the end of sentence; anything after it.
          length_b: int32, the numbers of these ids.
          target_bt: int32, the decoder's inputs: its start token, then the target.
        """
        source_at, target_at = (
            jnp.broadcast_to(jnp.arange(x.shape[1]), x.shape)
            for x in (source_bs, target_bt)
        )
        segment_bs = (source_at < length_b[:, None]).astype(jnp.int32)
        batch = {
            "source": source_bs * segment_bs,
            "source_segment": segment_bs,
            "source_position": source_at,
            "target_input": target_bt,
            "target_segment": jnp.ones_like(target_bt),
            "target_position": target_at,
        }
        return logits(nnx.merge(model.definition, parameters), batch)

    return of_batch


def _convert(translator: Translator, length: int, file: Path) -> None:
    from jax2onnx import to_onnx

    (rows,) = export.symbolic_shape("rows")
    ids = jax.ShapeDtypeStruct((rows, length), jnp.int32)
    lengths = jax.ShapeDtypeStruct((rows,), jnp.int32)
    chatter = logging.root.manager.disable
    logging.disable(logging.WARNING)  # about its own passes
    try:
        with kernels.disabled():
            to_onnx(
                logits_function(translator.model, translator.parameters),
                [ids, lengths, ids],
                return_mode="file",
                output_path=file,
                input_names=INPUTS,
                output_names=["logits"],
            )
    except Exception as e:  # of whatever type: it has many
        reason = (str(e).strip().splitlines() or [type(e).__name__])[0]
        raise UserError(
            f"jax2onnx cannot convert config.model.kind="
            f"{translator.config.model.kind!r} with the other fields of config.model: "
            f"{reason}; --to=stablehlo exports every model"
        ) from e
    finally:
        logging.disable(chatter)


def _about(translator: Translator, length: int) -> dict[str, Any]:
    vocabulary = translator.vocabulary
    return {
        "format": FORMAT,
        "format_version": VERSION,
        "computes": "logits of given targets (teacher forcing); it does not search",
        "versions": {
            name: metadata.version(name) for name in ("jax", "jax2onnx", "onnx")
        },
        **origin(translator),
        "length": length,
        "source": {
            "tokenizer": TOKENIZER_FILES[0 if vocabulary.joint else 1],
            "eos": vocabulary.source.eos,
        },
        "target": {
            "tokenizer": TOKENIZER_FILES[0],
            "bos": vocabulary.bos,
            "eos": vocabulary.eos,
        },
    }


def _use(translator: Translator, length: int) -> str:
    return f"""\
**Logits only, not a search**: `{GRAPH}` computes the scores of the next token at every
position of a target that you give (teacher forcing). It does not translate by itself.

Inputs, int32, for any number of rows:

- `source` [rows, {length}]: ids with the end of sentence; anything after it
- `source_length` [rows]: the number of these ids, at least 1
- `target` [rows, {length}]: the decoder's inputs: its start token, then the target

Output: `logits` [rows, {length}, {len(translator.vocabulary)}], float32; those at
position i are of the token after `target[:, i]`. Rows have {length} positions, no more
and no fewer: pad shorter ones, which changes nothing in front of the padding.

`{GRAPH}.data`, if it is there, holds large parameters: keep it next to `{GRAPH}`.
`{ABOUT}`: the ids of start and end, the tokenizers, and what the model was made from.

```python
import json, numpy as np, onnxruntime
about = json.load(open("{ABOUT}"))
session = onnxruntime.InferenceSession("{GRAPH}")
def logits(source, target):  # ids with the end of sentence; ids without the start
    rows = np.zeros((2, 1, about["length"]), np.int32)
    rows[0, 0, : len(source)] = source
    rows[1, 0, : len(target) + 1] = [about["target"]["bos"], *target]
    length = np.array([len(source)], np.int32)
    inputs = dict(source=rows[0], source_length=length, target=rows[1])
    return session.run(None, inputs)[0][0, : len(target) + 1]
```
"""


EXPORT = ExportFormat("logits in ONNX, not a search", write, "onnx", checks=("logits",))
