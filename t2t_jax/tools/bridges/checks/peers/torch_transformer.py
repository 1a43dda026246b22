"""Runs a `torch.nn.Transformer` from a state dict.

`tables` has the names of embeddings, output layer and positions; the other arguments
are those of `torch.nn.Transformer`, and what the module around it does.
"""

import math

import torch


def load_state(path):
    """Returns the state dict of a file, in float32."""
    if path.endswith(".safetensors"):
        from safetensors.torch import load_file

        state = load_file(path)
    else:
        state = torch.load(path, map_location="cpu", weights_only=True)
    for key in ("model", "state_dict", "model_state_dict"):
        if isinstance(state.get(key), dict):
            state = state[key]
    return {name: x.float() for name, x in state.items()}


class Model:
    """The module of the user, rebuilt from its parts."""

    def __init__(self, job):
        state, tables = load_state(job["model"]), job["tables"]
        self.job = job
        self.source, self.target, self.output = (
            state[tables[name]] for name in ("source", "target", "output")
        )
        self.bias = state[tables["bias"]] if tables["bias"] else None
        self.positions = {
            side: state[name].reshape(-1, job["width"])
            for side, name in tables["positions"].items()
        }
        self.transformer = self._layers(job)
        prefix = job["prefix"]
        inside = {name: state[prefix + name] for name in self.transformer.state_dict()}
        self.transformer.load_state_dict(inside)
        self.transformer.eval()

    @staticmethod
    def _layers(job):
        options = {
            "d_model": job["width"],
            "nhead": job["heads"],
            "dropout": 0.0,
            "activation": {"silu": torch.nn.functional.silu}.get(
                job["activation"], job["activation"]
            ),
            "layer_norm_eps": job["epsilon"],
            "batch_first": True,
            "norm_first": job["norm"] == "pre",
        }
        parts = []
        for layer, stack, count, hidden, more in zip(
            (torch.nn.TransformerEncoderLayer, torch.nn.TransformerDecoderLayer),
            (torch.nn.TransformerEncoder, torch.nn.TransformerDecoder),
            job["layers"],
            job["hidden"],
            ({"enable_nested_tensor": False}, {}),
            strict=True,
        ):
            norm = None
            if job["norm"] != "post":
                norm = torch.nn.LayerNorm(job["width"], eps=job["epsilon"])
            one = layer(dim_feedforward=hidden, **options)
            parts.append(stack(one, count, norm=norm, **more))
        return torch.nn.Transformer(
            job["width"],
            job["heads"],
            custom_encoder=parts[0],
            custom_decoder=parts[1],
            batch_first=True,
        )

    def embed(self, table, side, ids):
        """Embeds ids [b, t]."""
        width, length = self.job["width"], ids.shape[1]
        x = table[ids] * (math.sqrt(width) if self.job["scale"] else 1.0)
        if side in self.positions:
            return x + self.positions[side][:length]
        if self.job["positions"] == "none":
            return x
        # Vaswani et al. 2017, section 3.5.
        steps = torch.arange(length, dtype=torch.float64)[:, None]
        angles = steps / 10000 ** (torch.arange(0, width, 2) / width)
        both = torch.stack([angles.sin(), angles.cos()], dim=-1)
        return x + both.reshape(length, width).float()

    def encode(self, sources, padding):
        embedded = self.embed(self.source, "encoder", sources)
        return self.transformer.encoder(embedded, src_key_padding_mask=padding)

    def decode(self, targets, memory, padding):
        """Returns the logits of all positions, [b, t, v]."""
        length = targets.shape[1]
        future = torch.ones(length, length, dtype=torch.bool).triu(1)
        outputs = self.transformer.decoder(
            self.embed(self.target, "decoder", targets),
            memory,
            tgt_mask=future,
            memory_key_padding_mask=padding,
        )
        return torch.nn.functional.linear(outputs, self.output, self.bias)


@torch.inference_mode()
def logits(job):
    """Teacher-forced logits, one sentence at a time: nothing is padded."""
    model, rows = Model(job), []
    for source, target in zip(job["sources"], job["targets"], strict=True):
        memory = model.encode(torch.tensor([source]), None)
        rows.append(model.decode(torch.tensor([target]), memory, None)[0].numpy())
    return rows


@torch.inference_mode()
def greedy(job, rows=32):
    """The most probable token after each prefix, until the end of sentence."""
    model, tokens = Model(job), []
    for first in range(0, len(job["sources"]), rows):
        part = job["sources"][first : first + rows]
        limits = job["limits"][first : first + rows]
        sources = torch.nn.utils.rnn.pad_sequence(
            [torch.tensor(source) for source in part], True, job["pad"]
        )
        lengths = torch.tensor([len(source) for source in part])
        padding = torch.arange(sources.shape[1])[None] >= lengths[:, None]
        memory = model.encode(sources, padding)
        made = torch.full((len(part), 1), job["bos"])
        for _ in range(max(limits)):
            last = model.decode(made, memory, padding)[:, -1]
            last[:, job["never"]] = -math.inf
            made = torch.cat([made, last.argmax(-1, keepdim=True)], dim=1)
            if (made[:, 1:] == job["eos"]).any(1).all():
                break
        for row, limit in zip(made[:, 1:].tolist(), limits, strict=True):
            end = row.index(job["eos"]) + 1 if job["eos"] in row else len(row)
            tokens.append(row[: min(end, limit)])
    return {"tokens": tokens}


TASKS = {"logits": logits, "greedy": greedy}
