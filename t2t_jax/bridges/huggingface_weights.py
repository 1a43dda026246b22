"""The weights of Hugging Face's translation models: their names, and tied copies.

Import and export use the same rules. All classes keep fairseq's names.
"""

from collections.abc import Sequence

import numpy as np

from t2t_jax.bridges import weights
from t2t_jax.bridges.weights import FAIRSEQ, ROW, SAME, Rule
from t2t_jax.config import ModelConfig
from t2t_jax.model.layers import Parameters
from t2t_jax.model.model import build
from t2t_jax.model.positions import Sinusoid, sinusoids
from t2t_jax.terminal.errors import UserError

SHARED, SOURCE, TARGET, HEAD = (
    "model.shared.weight",
    "model.encoder.embed_tokens.weight",
    "model.decoder.embed_tokens.weight",
    "lm_head.weight",
)
BIAS = "final_logits_bias"


def weight_rules(config: ModelConfig, head: str = HEAD) -> list[Rule]:
    """The rules of a model; tied tables are stored once, under their first name.

    Args:
      config: as `model_fields` gives it.
      head: the name of the output layer's matrix.
    """
    rules = [
        Rule(names[0], (ours,), SAME)
        for ours, names in table_names(config.tied, head).items()
    ]
    if config.output_bias:
        rules.append(Rule(BIAS, ("embedding.output_bias",), ROW))
    rules += weights.layer_rules(config, FAIRSEQ, "model.")
    if config.norm in ("pre", "post_final"):
        for side in ("encoder", "decoder"):
            rules += weights.norm_rules(f"model.{side}.layer_norm", f"{side}_norm")
    return rules


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
    """Reads the parameters of a model from its file.

    Args:
      config: as `model_fields` gives it.
      sizes: of the vocabularies, as `model.build` takes them.
      name: the file, for error messages.
      head: as for `weight_rules`.

    Raises:
      UserError: a tensor is missing, unknown or of another shape; copies of a tied
        matrix differ; or a stored table of positions is not ours.
    """
    tensors = dict(tensors)
    if config.tied == "none" and (shared := tensors.pop(SHARED, None)) is not None:
        # Before version 5, both sides shared it whatever the output layer did.
        tensors.setdefault(SOURCE, shared)
        tensors.setdefault(TARGET, shared)
    for names in table_names(config.tied, head).values():
        _merge_copies(tensors, names, name)
    if config.output_bias:  # a file without it means zeros
        tensors.setdefault(BIAS, np.zeros((1, sizes[0]), np.float32))
    _check_positions(tensors, config, name)
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


def _check_positions(tensors: dict, config: ModelConfig, name: str) -> None:
    """Removes tables of sinusoids, after comparing them with ours."""
    own = config.own_options(Sinusoid)
    offset = own.position_offset
    for side in ("encoder", "decoder"):
        for stored in (
            f"model.{side}.embed_positions.weight",
            f"model.{side}.embed_positions.weights",  # fairseq's spelling
        ):
            if stored not in tensors:
                continue
            table = np.asarray(tensors.pop(stored), np.float32)
            ours = sinusoids(
                len(table),
                config.width,
                own.sinusoid_layout,
                own.sinusoid_spacing,
            )
            # Rows before the first position, such as that of padding, are not used.
            # Theirs may be bfloat16 (2^-9); other frequencies are off by 1.
            if table.shape != ours.shape or not np.allclose(
                table[offset:], ours[offset:], rtol=0, atol=0.01
            ):
                raise UserError(
                    f"{name}: {stored} is not the table of sinusoids that this class "
                    "computes; a model with learned positions cannot be imported"
                )


def silence(parameters: Parameters, tokens: Sequence[int]) -> Parameters:
    """Gives tokens the logit -1e9: the probability of the others adds up to 1."""
    embedding = dict(parameters["embedding"])
    bias = np.array(embedding["output_bias"])
    bias[list(tokens)] = -1e9
    return {**parameters, "embedding": {**embedding, "output_bias": bias}}
