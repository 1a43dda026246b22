"""Converts our parameters to Hugging Face (PyTorch).

A post-norm model becomes a MarianMTModel, a pre-norm one a
PegasusForConditionalGeneration. Ours is a special case of both: its attention has no
biases, and its sinusoids are theirs in another order. Both compute our logits, up to
rounding, and greedy search finds the same tokens. Needs the extra `[peers]`.
"""

import dataclasses
from collections.abc import Sequence

import jax
import numpy as np

from benchmarks.peers import marian, need, sizes
from t2t_jax.config import ModelConfig
from t2t_jax.model.layers import Parameters
from t2t_jax.model.model import build
from t2t_jax.terminal.errors import UserError


def matrices(parameters: Parameters) -> dict[str, np.ndarray]:
    """Parameters by name, float32; weights as matrices [outputs, inputs]."""
    found = {}
    for path, leaf in jax.tree.leaves_with_path(parameters):
        name = ".".join(str(part.key) for part in path)
        x = np.asarray(leaf, np.float32)
        last = name.rpartition(".")[2]
        # Our weights are [inputs, outputs] and keep heads apart: [d, h, k], [h, k, d].
        if last in ("query", "key", "value"):
            x = x.reshape(len(x), -1).T
        elif last == "out":
            x = x.reshape(-1, x.shape[-1]).T
        elif last in ("inner", "outer"):
            x = x.T
        found[name] = np.ascontiguousarray(x)
    return found


def sines_first(config: ModelConfig, parameters: Parameters) -> Parameters:
    """Reorders the features of the model width, for a peer with other sinusoids.

    Our position table has sin at 2i and cos at 2i+1; Marian and Pegasus have all sines
    before all cosines. No layer depends on the order of its features, so the reordered
    parameters with the reordered table compute the same logits.
    """
    order = np.r_[0 : config.width : 2, 1 : config.width : 2]
    axes = build(config, len(parameters["embedding"]["tokens"])).axes

    def reorder(x, names: tuple[str, ...]) -> np.ndarray:
        x = np.asarray(x)
        for axis, name in enumerate(names):
            if name in ("width", "norm"):  # heads and the hidden layer stay
                x = x.take(order, axis)
        return x

    return jax.tree.map(reorder, parameters, axes)


def hugging_face(
    config: ModelConfig, parameters: Parameters, special: Sequence[int], longest: int
):
    """Builds a Hugging Face model with our parameters, on the CPU, in float32.

    `save_pretrained` stores it. Only the epsilon of LayerNorm is lost, because the
    configs have no field for it: `from_pretrained` gives PyTorch's 1e-5, ours is 1e-6,
    and `set_epsilon` restores it. Measured with 1 or 2 layers of width 16 or 32 and
    logits with a standard deviation of 1: a loaded model is off by at most 4.4e-5, and
    by 2.4e-6 after `set_epsilon`, which is rounding. With weights so large that
    rounding alone is off by 3e-3, it is 2.5e-2. The best tokens were always the same.

    Args:
      special: token ids of padding, beginning and end.
      longest: the number of positions.

    Raises:
      UserError: the model has parts that the peers do not have.
    """
    _check(config)
    (torch,) = need("torch")
    weights = matrices(sines_first(config, parameters))
    vocab_size = len(weights["embedding.tokens"])
    if config.norm == "pre":
        model = _pegasus(config, vocab_size, longest, special)
    else:
        model = marian(config, vocab_size, longest, special)
    named = dict(model.named_parameters())

    # Removes what it sets, so that what is left in the end has no counterpart in ours.
    def put(name: str, value: np.ndarray):
        assert named[name].shape == value.shape, name
        named.pop(name).data = torch.from_numpy(value.copy())

    put("model.shared.weight", weights["embedding.tokens"])
    for side in ("encoder", "decoder"):
        for layer in range(config.layers):
            ours, theirs = f"{side}.{layer}", f"model.{side}.layers.{layer}"
            for a, b in _ATTENTIONS[side].items():
                for part, other in _PROJECTIONS.items():
                    put(f"{theirs}.{b}.{other}.weight", weights[f"{ours}.{a}.{part}"])
                put(f"{theirs}.{b}_layer_norm.weight", _norm(weights, ours, a, "scale"))
                put(f"{theirs}.{b}_layer_norm.bias", _norm(weights, ours, a, "bias"))
            for part, other in (("inner", "fc1"), ("outer", "fc2")):
                put(f"{theirs}.{other}.weight", weights[f"{ours}.ff.{part}"])
                put(f"{theirs}.{other}.bias", weights[f"{ours}.ff.{part}_bias"])
            norm = f"{theirs}.final_layer_norm"
            put(f"{norm}.weight", _norm(weights, ours, "ff", "scale"))
            put(f"{norm}.bias", _norm(weights, ours, "ff", "bias"))
        if config.norm == "pre":
            last = f"model.{side}.layer_norm"
            put(f"{last}.weight", weights[f"{side}_norm.scale"])
            put(f"{last}.bias", weights[f"{side}_norm.bias"])
    for name, left in named.items():
        if "embed_positions" in name:  # sinusoids already, in the order of `weights`
            continue
        assert name.endswith("_proj.bias"), name
        left.data.zero_()
    set_epsilon(model, config.norm_epsilon)
    return model.eval()


def set_epsilon(model, epsilon: float) -> None:
    """Gives every LayerNorm of a PyTorch model this epsilon."""
    (torch,) = need("torch")
    for module in model.modules():
        if isinstance(module, torch.nn.LayerNorm):
            module.eps = epsilon


_ATTENTIONS = {
    "encoder": {"attention": "self_attn"},
    "decoder": {"attention": "self_attn", "cross": "encoder_attn"},
}
_PROJECTIONS = {
    "query": "q_proj",
    "key": "k_proj",
    "value": "v_proj",
    "out": "out_proj",
}


def _norm(weights, layer: str, part: str, which: str) -> np.ndarray:
    return weights[f"{layer}.{part}_sub.norm.{which}"]


def _pegasus(config: ModelConfig, vocab_size: int, longest: int, special):
    """A pre-norm model of the same size, with random weights."""
    (transformers,) = need("transformers")
    pad, bos, eos = special
    described = transformers.PegasusConfig(
        **sizes(config, vocab_size, longest),
        pad_token_id=pad,
        bos_token_id=bos,
        eos_token_id=eos,
        decoder_start_token_id=bos,
        forced_eos_token_id=None,  # its default would force token 1 at the last step
        attn_implementation="sdpa",
    )
    return transformers.PegasusForConditionalGeneration(described)


def _check(config: ModelConfig) -> None:
    """Refuses models that the peers cannot compute."""
    ours, paper = dataclasses.asdict(config), dataclasses.asdict(ModelConfig())
    free = {*("layers", "width", "heads", "hidden", "norm_epsilon", "max_positions")}
    free |= {*("dropout", "attention_dropout", "activation_dropout", "dtype", "remat")}
    free |= {"norm"} if config.norm == "pre" else set()
    for name in paper.keys() - free:
        if ours[name] != paper[name]:
            raise UserError(
                f"config.model.{name}={ours[name]!r}: only models with "
                f"{paper[name]!r} can be converted for the peers; leave them out with "
                "--peers="
            )
