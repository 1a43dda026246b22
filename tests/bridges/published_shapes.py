"""Writes random models of every published shape, as `save_pretrained` does.

    python -m tests.bridges.published_shapes FOLDER SHAPE

Needs torch and transformers. Every parameter is random, biases and norms too, so that
leaving one out is visible in the logits.
"""

import sys
from pathlib import Path

from tests.bridges import bpe_folders, published_tokenizers

SIZES = {"layers": 1, "attention_heads": 2, "ffn_dim": 24}
TOKENIZERS = published_tokenizers.FOLDERS | {"fsmt": bpe_folders.fsmt}
LANGUAGES = {"marian": ("en", "deu"), "pegasus": ("", ""), "fsmt": ("", "")}
LANGUAGES |= published_tokenizers.LANGUAGES
SCALED = {"scale_embedding": True, "activation_function": "relu"}
# Shape -> the class, options of its tokenizer, and fields of its config.
SHAPES = {
    "opus-mt": ("marian", {}, SCALED | {"activation_function": "swish"}),
    "tc-big-separate": ("marian", {"separate": True}, SCALED),
    "untied": ("marian", {}, {"tie_word_embeddings": False}),
    "m2m100": ("m2m100", {}, {}),
    "nllb": ("nllb", {}, {}),
    "pegasus": ("pegasus", {}, {"activation_function": "gelu"}),
    "fsmt": ("fsmt", {}, {}),
}
# As Hugging Face has them; the search of the import is to be that of the original.
GENERATION = {
    "marian": {"num_beams": 4, "max_length": 512, "renormalize_logits": True},
    "m2m100": {"num_beams": 5, "max_length": 200, "early_stopping": True},
    "pegasus": {"num_beams": 8, "length_penalty": 0.8, "max_length": 256},
}


def write(shape: str, folder: Path) -> None:
    """Writes one shape into an existing folder."""
    import transformers

    classes = {
        "marian": (transformers.MarianConfig, transformers.MarianMTModel),
        "m2m100": (
            transformers.M2M100Config,
            transformers.M2M100ForConditionalGeneration,
        ),
        "pegasus": (
            transformers.PegasusConfig,
            transformers.PegasusForConditionalGeneration,
        ),
        "fsmt": (transformers.FSMTConfig, transformers.FSMTForConditionalGeneration),
    }
    kind, options, fields = SHAPES[shape]
    described = TOKENIZERS[kind](folder, **options)
    generation = dict(GENERATION.get(kind, {}))
    if "bad_words_ids" in described:
        generation["bad_words_ids"] = described.pop("bad_words_ids")
    make_config, make_model = classes["m2m100" if kind == "nllb" else kind]
    sizes = {
        f"{side}_{name}": size
        for side in ("encoder", "decoder")
        for name, size in SIZES.items()
    }
    model = make_model(make_config(d_model=16, **sizes, **described, **fields))
    _make_random(model)
    for name, value in generation.items():
        setattr(model.generation_config, name, value)
    model.save_pretrained(folder)


def _make_random(model) -> None:
    """Draws all parameters, of scales that keep activations near 1."""
    import torch

    torch.manual_seed(1)
    drawn = set()  # tied ones only once
    for name, x in (*model.named_parameters(), *model.named_buffers()):
        if "embed_positions" in name or x.data_ptr() in drawn:
            continue
        drawn.add(x.data_ptr())
        with torch.no_grad():
            x.normal_()
            if "weight" in name and x.ndim == 2:
                x.mul_(1.5 * x.shape[1] ** -0.5)
            else:
                x.mul_(0.3)
            if name.endswith("norm.weight"):
                x.add_(1)


if __name__ == "__main__":
    folder, shape = sys.argv[1:]
    (Path(folder) / shape).mkdir(parents=True)
    write(shape, Path(folder) / shape)
