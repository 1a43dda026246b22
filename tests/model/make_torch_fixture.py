"""Makes torch_transformer.npz: torch.nn.Transformer's numbers for our parameters.

Run once, by hand, where PyTorch is installed; the tests need only the file:

    python tests/model/make_torch_fixture.py

PyTorch's Transformer, led back to the paper: no LayerNorm behind the last layers, no
biases in attention, an epsilon of 1e-6; and what it leaves to its user: embeddings,
sinusoids, one matrix for source, target and output. Computed in float64, on weights
that float32 holds exactly, in training mode (which keeps it from its fused path).

The file has, by our names of parameters: `weights/*`, `gradients/*`, `after/*` (after 3
steps of Adam); the tokens and lengths of both sides; `logits`, `logits_after`; `losses`
[4], label-smoothed, and `gradient_norms` [3]; and the configuration.
"""

import math
from pathlib import Path

import numpy as np
import torch
from torch import nn

LAYERS, WIDTH, HEADS, HIDDEN, VOCABULARY = 2, 12, 3, 20, 17
PAD, BOS = 0, 1
SMOOTHING, WARMUP, STEPS = 0.1, 10, 3
SOURCE_LENGTH, TARGET_LENGTH = [7, 4, 6], [3, 8, 6]
PLACE = Path(__file__).with_name("torch_transformer.npz")


class Translation(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        self.transformer = nn.Transformer(
            d_model=WIDTH,
            nhead=HEADS,
            num_encoder_layers=LAYERS,
            num_decoder_layers=LAYERS,
            dim_feedforward=HIDDEN,
            dropout=0.0,
            activation="relu",
            layer_norm_eps=1e-6,
            batch_first=True,
            norm_first=False,
        )
        self.transformer.encoder.norm = None
        self.transformer.decoder.norm = None

    def forward(self, source, target_input):
        source_pad, target_pad = source == PAD, target_input == PAD
        length = target_input.shape[1]
        future = torch.ones(length, length, dtype=torch.bool).triu(diagonal=1)
        output = self.transformer(
            self.embed(source),
            self.embed(target_input),
            tgt_mask=future,
            src_key_padding_mask=source_pad,
            tgt_key_padding_mask=target_pad,
            memory_key_padding_mask=source_pad,
        )
        return nn.functional.linear(output, self.embedding.weight)

    def embed(self, tokens):
        """As in PyTorch's own tutorial on translation with nn.Transformer."""
        step = torch.arange(0, WIDTH, 2, dtype=torch.float64)
        frequency = torch.exp(-step * math.log(10000) / WIDTH)
        position = torch.arange(tokens.shape[1], dtype=torch.float64)[:, None]
        table = torch.zeros(tokens.shape[1], WIDTH, dtype=torch.float64)
        table[:, 0::2] = torch.sin(position * frequency)
        table[:, 1::2] = torch.cos(position * frequency)
        return self.embedding(tokens) * math.sqrt(WIDTH) + table


def randomise(model: nn.Module) -> list[nn.Parameter]:
    """Gives every parameter a random value, and returns those that are trained."""
    trained = []
    for name, parameter in model.named_parameters():
        scale, offset = parameter.shape[-1] ** -0.5, 0.0
        if parameter.ndim == 1:  # LayerNorm, feed-forward biases
            scale, offset = 0.3, float("norm" in name and "weight" in name)
        if name.endswith(("in_proj_bias", "out_proj.bias")):
            nn.init.zeros_(parameter)
            parameter.requires_grad_(False)
            continue
        value = offset + scale * torch.randn(parameter.shape)
        parameter.data = value.float().double()
        trained.append(parameter)
    return trained


def by_our_names(model: Translation, read) -> dict[str, np.ndarray]:
    """`read(parameter)` of every parameter, by our names and in our shapes.

    PyTorch multiplies by the transpose, keeps query, key and value in one matrix, and
    the heads one after the other in its rows.
    """
    named = {"embedding/tokens": read(model.embedding.weight)}
    to_heads = (WIDTH, HEADS, WIDTH // HEADS)

    def attention(name, module):
        projections = read(module.in_proj_weight).reshape(3, WIDTH, WIDTH)
        for part, matrix in zip(("query", "key", "value"), projections, strict=True):
            named[f"{name}/{part}"] = matrix.T.reshape(to_heads)
        out = read(module.out_proj.weight).T
        named[f"{name}/out"] = out.reshape(HEADS, WIDTH // HEADS, WIDTH)

    def norm(name, module):
        named[f"{name}/norm/scale"] = read(module.weight)
        named[f"{name}/norm/bias"] = read(module.bias)

    def feed_forward(name, layer):
        named[f"{name}/inner"] = read(layer.linear1.weight).T
        named[f"{name}/inner_bias"] = read(layer.linear1.bias)
        named[f"{name}/outer"] = read(layer.linear2.weight).T
        named[f"{name}/outer_bias"] = read(layer.linear2.bias)

    for i, layer in enumerate(model.transformer.encoder.layers):
        attention(f"encoder/{i}/attention", layer.self_attn)
        norm(f"encoder/{i}/attention_sub", layer.norm1)
        feed_forward(f"encoder/{i}/ff", layer)
        norm(f"encoder/{i}/ff_sub", layer.norm2)
    for i, layer in enumerate(model.transformer.decoder.layers):
        attention(f"decoder/{i}/attention", layer.self_attn)
        norm(f"decoder/{i}/attention_sub", layer.norm1)
        attention(f"decoder/{i}/cross", layer.multihead_attn)
        norm(f"decoder/{i}/cross_sub", layer.norm2)
        feed_forward(f"decoder/{i}/ff", layer)
        norm(f"decoder/{i}/ff_sub", layer.norm3)
    return named


def sentences(lengths):
    """Random tokens [b, longest], PAD behind each sentence; BOS is not among them."""
    tokens = torch.full((len(lengths), max(lengths)), PAD)
    for row, length in enumerate(lengths):
        tokens[row, :length] = torch.randint(BOS + 1, VOCABULARY, (length,))
    return tokens


def main():
    torch.manual_seed(20170612)
    model = Translation().double().train()
    trained = randomise(model)
    source, target = sentences(SOURCE_LENGTH), sentences(TARGET_LENGTH)
    target_input = torch.cat([torch.full_like(target[:, :1], BOS), target[:, :-1]], 1)
    real = target != PAD

    optimizer = torch.optim.Adam(trained, lr=1.0, betas=(0.9, 0.98), eps=1e-9)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer,
        lambda updates: (
            WIDTH**-0.5 * min((updates + 1) ** -0.5, (updates + 1) * WARMUP**-1.5)
        ),
    )
    saved, losses, norms = {}, [], []
    for step in range(STEPS + 1):
        logits = model(source, target_input)
        loss = nn.functional.cross_entropy(
            logits[real], target[real], label_smoothing=SMOOTHING
        )
        losses.append(loss.item())
        optimizer.zero_grad()
        loss.backward()
        weights = by_our_names(
            model, lambda parameter: parameter.detach().numpy().copy()
        )
        if step == 0:
            gradients = by_our_names(
                model, lambda parameter: parameter.grad.numpy().copy()
            )
            start, start_logits = weights, logits.detach().numpy()
        if step < STEPS:
            norms.append(math.sqrt(sum((p.grad**2).sum().item() for p in trained)))
            optimizer.step()
            schedule.step()

    for kind, arrays in (
        ("weights", start),
        ("gradients", gradients),
        ("after", weights),
    ):
        for name, array in arrays.items():
            saved[f"{kind}/{name}"] = array.astype(np.float32)
    for name, tokens in ("source", source), ("target", target):
        saved[name] = tokens.numpy().astype(np.int32)
    saved |= {
        "target_input": target_input.numpy().astype(np.int32),
        "source_length": np.array(SOURCE_LENGTH),
        "target_length": np.array(TARGET_LENGTH),
        "logits": start_logits,
        "logits_after": logits.detach().numpy(),
        "losses": np.array(losses),
        "gradient_norms": np.array(norms),
        "heads": np.array(HEADS),
        "smoothing": np.array(SMOOTHING),
        "warmup": np.array(WARMUP),
        "bos": np.array(BOS),
        "torch_version": np.array(torch.__version__),
    }
    np.savez(PLACE, **saved)
    print(f"{PLACE}: {PLACE.stat().st_size:,} bytes, losses {losses}, norms {norms}")


if __name__ == "__main__":
    main()
