"""Writes random models of every published shape, as `save_pretrained` does.

    python -m tests.bridges.published_shapes FOLDER [--true_size] [SHAPE ...]

Needs torch and transformers. Every parameter is random, biases and norms too, so that
leaving one out is visible in the logits. The tokenizers are small ones, also with
--true_size, which gives the widths and (at most 6) layers of the published models.
"""

import argparse
import json
from pathlib import Path

from tests.bridges import published_tokenizers

TINY = {"width": 16, "layers": 1, "heads": 2, "hidden": 24}
BASE = {"width": 512, "layers": 6, "heads": 8, "hidden": 2048}
BIG = {"width": 1024, "layers": 6, "heads": 16, "hidden": 4096}
TWO_LAYERS = {**BIG, "layers": 2}


def fsmt(folder: Path) -> dict:
    """Writes the files of an FSMT tokenizer; returns its config."""
    merges = ["e n", "e r</w>", "t h", "th e</w>", "s c", "sc h"]
    (folder / "merges.txt").write_text("".join(f"{merge} 1\n" for merge in merges))
    config = {"langs": ["en", "de"], "tie_word_embeddings": False}
    letters = "abcdefghijklmnopqrstuvwxyz."
    for side, more in (("src", ""), ("tgt", "äöüß")):
        pieces = ["<s>", "<pad>", "</s>", "<unk>", *letters, *more]
        pieces += [f"{letter}</w>" for letter in letters + more]
        pieces += [merge.replace(" ", "") for merge in merges]
        ids = {piece: i for i, piece in enumerate(pieces)}
        (folder / f"vocab-{side}.json").write_text(json.dumps(ids))
        config[f"{side}_vocab_size"] = len(ids)
    settings = {"langs": ["en", "de"], "do_lower_case": False}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    return config


MARIAN = {"scale_embedding": True, "max_position_embeddings": 512}
TOKENIZERS = published_tokenizers.FOLDERS | {"fsmt": fsmt}

# Shape -> the class, options of its tokenizer, fields of its config and of
# generation_config.json, and its published sizes.
SHAPES = {
    "opus-mt": ("marian", {}, MARIAN | {"activation_function": "swish"}, BASE),
    "tc-big": ("marian", {}, MARIAN | {"activation_function": "relu"}, BIG),
    "tc-big-separate": (
        *("marian", {"separate": True}, MARIAN | {"activation_function": "relu"}),
        BIG,
    ),
    "untied": ("marian", {}, MARIAN | {"tie_word_embeddings": False}, BASE),
    "m2m100": ("m2m100", {}, {}, TWO_LAYERS),
    "nllb": ("nllb", {}, {}, TWO_LAYERS),
    "pegasus": ("pegasus", {}, {"scale_embedding": True}, TWO_LAYERS),
    "fsmt": ("fsmt", {}, {}, BIG),
}
# As Hugging Face has them; the search of the import is to be that of the original.
GENERATION = {
    "marian": {"num_beams": 4, "max_length": 512, "renormalize_logits": True},
    "m2m100": {"num_beams": 5, "max_length": 200, "early_stopping": True},
    "nllb": {"max_length": 200},
    "pegasus": {"num_beams": 8, "length_penalty": 0.8, "max_length": 256},
    "fsmt": {},
}
LANGUAGES = {"marian": ("en", "deu"), "pegasus": ("", ""), "fsmt": ("", "")}
LANGUAGES |= published_tokenizers.LANGUAGES


def write(shape: str, folder: Path, true_size: bool = False) -> None:
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
    kind, options, fields, size = SHAPES[shape]
    size = size if true_size else TINY
    described = TOKENIZERS[kind](folder, **options)
    generation = dict(GENERATION[kind])
    if "bad_words_ids" in described:
        generation["bad_words_ids"] = described.pop("bad_words_ids")
    make_config, make_model = classes["m2m100" if kind == "nllb" else kind]
    config = make_config(
        d_model=size["width"],
        **{f"{side}_layers": size["layers"] for side in ("encoder", "decoder")},
        **{f"{side}_attention_heads": size["heads"] for side in ("encoder", "decoder")},
        **{f"{side}_ffn_dim": size["hidden"] for side in ("encoder", "decoder")},
        **described,
        **fields,
    )
    model = make_model(config)
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


def main() -> None:
    """Writes the shapes of the command line, or all."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("shapes", nargs="*", default=[])
    parser.add_argument("--true_size", action="store_true")
    given = parser.parse_args()
    for shape in given.shapes or SHAPES:
        folder = given.folder / shape
        folder.mkdir(parents=True, exist_ok=True)
        write(shape, folder, given.true_size)


if __name__ == "__main__":
    main()
