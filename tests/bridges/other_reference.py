"""Computes logits of other systems' files with classes of Hugging Face and PyTorch.

    python other_reference.py JOB.json

Stand-alone; needs torch and transformers. The job has `cases`: `kind`, `path`,
`sources`, `targets` and `output`. A class is chosen that computes what the original
does, after its positions and its epsilon are changed to the original's. For the kind
`torch` the file is written first: the state dict of a module as in PyTorch's tutorials.
"""

import json
import math
import re
import sys

import numpy as np
import torch
import transformers

FAR = 60  # positions


def sinusoids(width, offset=0):
    """The table of both systems: width / 2 - 1 steps, all sines first."""
    steps = torch.arange(offset, FAR, dtype=torch.float64)[:, None]
    exponents = torch.arange(width // 2, dtype=torch.float64) / (width // 2 - 1)
    angles = steps * torch.exp(-math.log(10_000) * exponents)
    return torch.cat([angles.sin(), angles.cos()], dim=1).float()


def fairseq(path):
    """A model of fairseq in FSMT, M2M100 (pre-norm) or MBart (learned positions)."""
    content = torch.load(path, weights_only=False)
    args = content["args"] or content["cfg"]["model"]
    state = {}
    for key, x in content["model"].items():
        if "in_proj_" in key:
            for part, each in zip("qkv", x.chunk(3), strict=True):
                state[key.replace("in_proj_", f"{part}_proj.")] = each
        else:
            state[key] = x
    state = {
        re.sub(
            r"layer_norms\.(\d)",
            lambda found, key=key: (
                ["self_attn", "encoder_attn", "final"][
                    int(found[1]) + (key.startswith("encoder") and found[1] == "1")
                ]
                + "_layer_norm"
            ),
            key,
        ): x
        for key, x in state.items()
        if not re.search(r"version|_float_tensor", key)
    }
    source, target = (state[f"{side}.embed_tokens.weight"] for side in SIDES)
    sizes = {
        "d_model": args.encoder_embed_dim,
        "activation_function": getattr(args, "activation_fn", "relu"),
        "scale_embedding": not getattr(args, "no_scale_embedding", False),
        "attn_implementation": "eager",
    }
    for side in SIDES:
        sizes[f"{side}_layers"] = getattr(args, f"{side}_layers")
        sizes[f"{side}_ffn_dim"] = getattr(args, f"{side}_ffn_embed_dim")
        sizes[f"{side}_attention_heads"] = getattr(args, f"{side}_attention_heads")
    vocabulary = {"vocab_size": max(len(source), len(target))}
    if getattr(args, "encoder_learned_pos", False):
        config = transformers.MBartConfig(
            **sizes, **vocabulary, max_position_embeddings=30
        )
        model = transformers.MBartForConditionalGeneration(config)
        for side in (model.model.encoder, model.model.decoder):
            side.layernorm_embedding = torch.nn.Identity()
    elif getattr(args, "encoder_normalize_before", False):
        config = transformers.M2M100Config(**sizes, **vocabulary)
        model = transformers.M2M100ForConditionalGeneration(config)
    else:
        config = transformers.FSMTConfig(
            langs=["en", "de"],
            src_vocab_size=len(source),
            tgt_vocab_size=len(target),
            **sizes,
        )
        model = transformers.FSMTForConditionalGeneration(config)
    # The tables of both sides and of the output, whatever the class ties.
    body = model.model
    body.encoder.embed_tokens.weight = torch.nn.Parameter(source)
    body.decoder.embed_tokens.weight = torch.nn.Parameter(target)
    state["output"] = state.pop("decoder.output_projection.weight", target)
    return model, body, state


SIDES = ("encoder", "decoder")


def run_fairseq(path, sources, targets):
    model, body, state = fairseq(path)
    output = state.pop("output")
    left = body.load_state_dict(
        {key: x for key, x in state.items() if "embed_tokens" not in key}, strict=False
    )
    assert not left.unexpected_keys, left
    odd = [
        key for key in left.missing_keys if not re.search("embed|shared|output", key)
    ]
    assert not odd, odd
    return run(model.eval(), body, output, None, sources, targets)


def run_marian(path, sources, targets):
    """A model of Marian in MarianMT or Pegasus, with Marian's positions and epsilon."""
    arrays = dict(np.load(path))
    options = json.loads(bytes(arrays.pop("special:model.yml")).split(b"\0")[0])
    pre = options["transformer-preprocess"] == "n"
    shapes = {
        "d_model": options["dim-emb"],
        "encoder_layers": options["enc-depth"],
        "decoder_layers": options["dec-depth"],
        "encoder_attention_heads": options["transformer-heads"],
        "decoder_attention_heads": options["transformer-heads"],
        "encoder_ffn_dim": options["transformer-dim-ffn"],
        "decoder_ffn_dim": options["transformer-decoder-dim-ffn"],
        "activation_function": options["transformer-ffn-activation"],
        "scale_embedding": True,
        "vocab_size": 41,
        "attn_implementation": "eager",
    }
    kinds = {True: "Pegasus", False: "Marian"}
    name = kinds[pre]
    config = getattr(transformers, f"{name}Config")(
        **shapes, pad_token_id=40, decoder_start_token_id=40
    )
    end = "ForConditionalGeneration" if pre else "MTModel"
    model = getattr(transformers, f"{name}{end}")(config)
    state = {}
    suffix = "_pre" if pre else ""

    def put(theirs, x):
        state[theirs] = torch.tensor(x.squeeze(0) if len(x) == 1 else x.T)

    for side in SIDES:
        for number in range(shapes[f"{side}_layers"]):
            layer, at = f"{side}.layers.{number}", f"{side}_l{number + 1}"
            parts = {"self": "self_attn", "context": "encoder_attn"}
            for mine, other in list(parts.items())[: 1 + (side == "decoder")]:
                for letter, proj in zip("qkvo", ("q", "k", "v", "out"), strict=True):
                    there = f"{layer}.{other}.{proj}_proj"
                    put(f"{there}.weight", arrays[f"{at}_{mine}_W{letter}"])
                    put(f"{there}.bias", arrays[f"{at}_{mine}_b{letter}"])
                norm = f"{layer}.{other}_layer_norm"
                put(f"{norm}.weight", arrays[f"{at}_{mine}_Wo_ln_scale{suffix}"])
                put(f"{norm}.bias", arrays[f"{at}_{mine}_Wo_ln_bias{suffix}"])
            for i in "12":
                put(f"{layer}.fc{i}.weight", arrays[f"{at}_ffn_W{i}"])
                put(f"{layer}.fc{i}.bias", arrays[f"{at}_ffn_b{i}"])
            norm = f"{layer}.final_layer_norm"
            put(f"{norm}.weight", arrays[f"{at}_ffn_ffn_ln_scale{suffix}"])
            put(f"{norm}.bias", arrays[f"{at}_ffn_ffn_ln_bias{suffix}"])
        if options.get("transformer-postprocess-top") == "n":
            put(f"{side}.layer_norm.weight", arrays[f"{side}_top_ln_scale"])
            put(f"{side}.layer_norm.bias", arrays[f"{side}_top_ln_bias"])
    body, zero = model.model, np.zeros((1, shapes["d_model"]), np.float32)
    tables = [arrays.get(f"{side}_Wemb", arrays.get("Wemb")) for side in SIDES]
    for side, table in zip(SIDES, tables, strict=True):
        table = torch.tensor(np.concatenate([table, zero]))
        getattr(body, side).embed_tokens.weight = torch.nn.Parameter(table)
    output = torch.tensor(arrays.get("decoder_ff_logit_out_W", tables[1].T).T)
    finals = [key for key in state if re.match(r"\w+\.layer_norm", key)]
    if finals and not pre:  # Marian of Hugging Face has no norms at the end
        for side in SIDES:
            stack, norm = getattr(body, side), torch.nn.LayerNorm(shapes["d_model"])
            norm.load_state_dict(
                {
                    end: state.pop(f"{side}.layer_norm.{end}")
                    for end in ("weight", "bias")
                }
            )
            last = stack.layers[-1]
            last.register_forward_hook(lambda _, __, y, norm=norm: normed(norm, y))
            last.own_norm = norm
            state |= {
                f"{side}.layers.{len(stack.layers) - 1}.own_norm.{end}": x
                for end, x in norm.state_dict().items()
            }
    left = body.load_state_dict(state, strict=False)
    assert not left.unexpected_keys, left
    assert all("embed" in key or "shared" in key for key in left.missing_keys), left
    for module in model.modules():
        if isinstance(module, torch.nn.LayerNorm):
            module.eps = 1e-6
    for side in (body.encoder, body.decoder):
        side.embed_positions.weight = torch.nn.Parameter(sinusoids(shapes["d_model"]))
    bias = torch.tensor(arrays["decoder_ff_logit_out_b"][0])
    return run(model.eval(), body, output, bias, sources, targets)


def normed(norm, found):
    return (norm(found[0]), *found[1:]) if isinstance(found, tuple) else norm(found)


def run(model, body, output, bias, sources, targets):
    """Logits of each pair, one at a time."""
    found = {}
    with torch.inference_mode():
        for i, (source, target) in enumerate(zip(sources, targets, strict=True)):
            given = {
                "input_ids": torch.tensor([source]),
                "attention_mask": torch.ones(1, len(source), dtype=torch.long),
                "decoder_input_ids": torch.tensor([target]),
            }
            if type(model).__name__.startswith("FSMT"):
                logits = fsmt(body, given)
            else:
                logits = body(**given).last_hidden_state
            made = torch.nn.functional.linear(logits, output, bias)[0]
            found[f"logits_{i}"] = made.numpy()
    return found


def fsmt(body, given):
    """FSMT with its causal mask, which it leaves out if there is a cache."""
    body.decoder.output_projection = torch.nn.Identity()
    return body(**given, use_cache=False)[0]


class Tutorial(torch.nn.Module):
    """Embeddings, positions, `torch.nn.Transformer` and a linear layer."""

    def __init__(self, name, width=16):
        super().__init__()
        shared = name == "pre"
        self.src_embedding = torch.nn.Embedding(40 if shared else 44, width)
        self.tgt_embedding = torch.nn.Embedding(40, width)
        if shared:
            self.tgt_embedding = self.src_embedding
        self.scale = 1.0 if shared else math.sqrt(width)
        angles = torch.arange(50)[:, None] * torch.exp(
            -torch.arange(0, width, 2) * math.log(10_000) / width
        )
        table = torch.stack([angles.sin(), angles.cos()], 2).reshape(50, 1, width)
        if name == "learned":
            self.pos_embedding = torch.nn.Parameter(torch.randn(1, 64, width))
        else:
            self.register_buffer("pe", table.transpose(0, 1))
        self.transformer = torch.nn.Transformer(
            *(width, 2, 1, 2, 20),
            dropout=0.0,
            activation="gelu" if shared else "relu",
            norm_first=shared,
            batch_first=True,
        )
        self.generator = torch.nn.Linear(width, 40, bias=name != "learned")
        for name, x in self.named_parameters():
            noise = 0.4 * torch.randn_like(x)
            x.data = 1 + noise / 2 if re.search(r"norm\d?\.weight", name) else noise

    def forward(self, source, target):
        table = self.pe if hasattr(self, "pe") else self.pos_embedding
        x, y = (
            embedding(ids) * self.scale + table[:, : ids.shape[1]]
            for embedding, ids in (
                (self.src_embedding, source),
                (self.tgt_embedding, target),
            )
        )
        length = target.shape[1]
        mask = torch.nn.Transformer.generate_square_subsequent_mask(length)
        return self.generator(self.transformer(x, y, tgt_mask=mask))


def run_torch(path, sources, targets):
    torch.manual_seed(0)
    module = Tutorial(re.search(r"(\w+)\.pt", path)[1]).eval()
    torch.save({"epoch": 3, "state_dict": module.state_dict()}, path)
    with torch.inference_mode():
        return {
            f"logits_{i}": module(torch.tensor([source]), torch.tensor([target]))[0]
            for i, (source, target) in enumerate(zip(sources, targets, strict=True))
        }


def main(path):
    with open(path) as file:
        cases = json.load(file)["cases"]
    kinds = {"fairseq": run_fairseq, "marian": run_marian, "torch": run_torch}
    for case in cases:
        found = kinds[case["kind"]](case["path"], case["sources"], case["targets"])
        np.savez(case["output"], **found)


if __name__ == "__main__":
    main(sys.argv[1])
