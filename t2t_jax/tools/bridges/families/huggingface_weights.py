"""The weights of Hugging Face's translation models: their names, and tied copies.

Import and export use the same rules. All classes keep fairseq's names.
"""

from collections.abc import Sequence

import numpy as np

from t2t_jax.config import ModelConfig
from t2t_jax.io.errors import UserError
from t2t_jax.model.layers import Parameters
from t2t_jax.model.model import build
from t2t_jax.model.positions import Sinusoid, sinusoids
from t2t_jax.tools.bridges import weights
from t2t_jax.tools.bridges.weights import FAIRSEQ, ROW, Rule, Tables

SHARED, SOURCE, TARGET, HEAD = (
    "model.shared.weight",
    "model.encoder.embed_tokens.weight",
    "model.decoder.embed_tokens.weight",
    "lm_head.weight",
)
BIAS = "final_logits_bias"
POSITIONS = {
    side: f"model.{side}.embed_positions.weight" for side in ("encoder", "decoder")
}


def weight_rules(config: ModelConfig, head: str = HEAD) -> list[Rule]:
    """The rules of a model; tied tables are stored once, under their first name."""
    tables = Tables(SOURCE, TARGET, head, BIAS, POSITIONS, SHARED)
    return [
        *weights.table_rules(config, tables, ROW),
        *weights.layer_rules(config, FAIRSEQ._replace(prefix="model.")),
    ]


def table_names(tied: str, head: str = HEAD) -> dict[str, tuple[str, ...]]:
    """The names under which files store each of our embedding matrices."""
    return {
        "all": {"embedding.tokens": (SHARED, SOURCE, TARGET, head)},
        "target": {
            "embedding.source_tokens": (SOURCE,),
            "embedding.tokens": (TARGET, head),
        },
        "none": {
            "embedding.source_tokens": (SOURCE,),
            "embedding.tokens": (TARGET,),
            "embedding.output": (head,),
        },
    }[tied]


def read_weights(
    tensors: weights.Tensors,
    config: ModelConfig,
    sizes: Sequence[int],
    name: str,
    head: str = HEAD,
) -> Parameters:
    """Reads the parameters of a model from its file."""
    tensors = dict(tensors)
    if config.tied == "none" and (shared := tensors.pop(SHARED, None)) is not None:
        # Before version 5, both sides shared it whatever the output layer did.
        tensors.setdefault(SOURCE, shared)
        tensors.setdefault(TARGET, shared)
    for names in table_names(config.tied, head).values():
        _merge_copies(tensors, names, name)
    if config.output_bias:  # a file without it means zeros
        tensors.setdefault(BIAS, np.zeros((1, sizes[0]), np.float32))
    if config.positions == "sinusoid":
        _drop_sinusoids(tensors, config, name)
    return weights.read(
        weight_rules(config, head), tensors, build(config, *sizes), name
    )


def _merge_copies(tensors: dict, names: tuple[str, ...], name: str) -> None:
    """Keeps one of several equal tensors, under the first of their names."""
    stored = [n for n in names if n in tensors]
    for copy in stored[1:]:
        if not np.array_equal(tensors[stored[0]], tensors[copy]):
            raise UserError(
                f"{name}: {stored[0]} and {copy} differ, but its config says that they "
                "are one matrix; set tie_word_embeddings=false in config.json if they "
                "are not"
            )
    if stored:
        one = tensors[stored[0]]
        for copy in stored:
            del tensors[copy]
        tensors[names[0]] = one


def learned_positions(tensors: weights.Tensors, config: ModelConfig) -> bool:
    """True if both sides store a table of positions that is not our sinusoids.

    Marian and Pegasus add what their files store, and compute it only if it is missing.
    """
    return all(
        name in tensors and not _is_sinusoids(tensors[name], config)
        for name in POSITIONS.values()
    )


def _is_sinusoids(table: np.ndarray, config: ModelConfig) -> bool:
    own = config.own_options(Sinusoid)
    ours = sinusoids(
        len(table), config.width, own.sinusoid_layout, own.sinusoid_spacing
    )
    if table.shape != ours.shape:
        return False
    # Rows before the first position, such as that of padding, are not used. Theirs may
    # be bfloat16 (2^-9), or computed in float32; other frequencies are off by 1.
    first = own.position_offset
    table = np.asarray(table, np.float32)
    return np.allclose(table[first:], ours[first:], rtol=0, atol=0.01)


def _drop_sinusoids(tensors: dict, config: ModelConfig, name: str) -> None:
    """Removes stored tables of sinusoids; raises UserError if they are not ours."""
    for stored in POSITIONS.values():
        for spelled in (stored, f"{stored}s"):  # fairseq's is `weights`
            if spelled in tensors and not _is_sinusoids(tensors.pop(spelled), config):
                raise UserError(
                    f"{name}: {spelled} is not the table of sinusoids that this class "
                    "computes; such positions cannot be imported"
                )


# Beside other logits, exp(-100) is 0 in float32. With -1e9, the loss of a model that is
# trained further would be that token's share of the label smoothing, and nothing else.
SILENT = -100.0


def silence(parameters: Parameters, tokens: Sequence[int] = ()) -> Parameters:
    """Gives tokens a logit of about `SILENT`, and no token a lower bias than that.

    The other probabilities then add up to 1, as where such a token does not exist.
    """
    embedding = dict(parameters["embedding"])
    bias = np.maximum(embedding["output_bias"], SILENT)
    bias[list(tokens)] = SILENT
    return {**parameters, "embedding": {**embedding, "output_bias": bias}}
