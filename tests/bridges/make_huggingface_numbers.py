"""Makes huggingface_numbers.npz: logits of Hugging Face's classes, for random weights.

Run once, by hand, where PyTorch and transformers are installed; the tests need only the
file:

    python tests/bridges/make_huggingface_numbers.py

Weights are multiples of 1 / 1024, so that float16 holds them. All are random, biases
and norms too. Pegasus stores small random positions, beside which the epsilon of its
norms is visible.

The file has, of each model, `NAME/config` and `NAME/shapes` of its tensors as JSON, all
these one after another in `NAME/tensors`, the ids `NAME/source` and `NAME/target`, and
`NAME/logits` of the first `COLUMNS` tokens.
"""

import json
import tempfile
from pathlib import Path

import numpy as np
import torch
import transformers
from safetensors.numpy import load_file

FILE = Path(__file__).with_name("huggingface_numbers.npz")
COLUMNS, SOURCE, TARGET = 32, 7, 5
SIZES = {"d_model": 8, "encoder_layers": 1, "decoder_layers": 2}
SIZES |= {"encoder_attention_heads": 2, "decoder_attention_heads": 4}
SIZES |= {"encoder_ffn_dim": 10, "decoder_ffn_dim": 14, "max_position_embeddings": 24}
OURS = {"vocab_size": 290, "pad_token_id": 0, "eos_token_id": 2}
OURS |= {"decoder_start_token_id": 1}
# Those of tests/bridges/published_tokenizers.py and bpe_folders.py.
M2M100 = {"vocab_size": 259, "pad_token_id": 1, "eos_token_id": 2}
M2M100 |= {"decoder_start_token_id": 2}
FSMT = {"src_vocab_size": 292, "tgt_vocab_size": 292, "langs": ["en", "de"]}
FSMT |= {"tie_word_embeddings": False}
SCALED = {"scale_embedding": True}
# Name -> the class, and fields of its config.
MODELS = {
    "marian": ("MarianMTModel", OURS | SCALED | {"activation_function": "swish"}),
    "marian, untied": ("MarianMTModel", OURS | {"tie_word_embeddings": False}),
    "marian, two vocabularies": (
        "MarianMTModel",
        OURS
        | SCALED
        | {"vocab_size": 280, "decoder_vocab_size": 290}
        | {"share_encoder_decoder_embeddings": False},
    ),
    "fsmt": ("FSMTForConditionalGeneration", FSMT),
    "m2m_100": (
        "M2M100ForConditionalGeneration",
        M2M100 | {"activation_function": "relu"},
    ),
    "pegasus": (
        "PegasusForConditionalGeneration",
        OURS | {"activation_function": "gelu"},
    ),
}


def make_random(model) -> None:
    """Draws all parameters, of scales that keep activations near 1."""
    positions = isinstance(model, transformers.PegasusForConditionalGeneration)
    drawn = set()  # tied ones only once
    for name, x in (*model.named_parameters(), *model.named_buffers()):
        if x.data_ptr() in drawn or ("embed_positions" in name and not positions):
            continue
        drawn.add(x.data_ptr())
        scale = 1.5 * x.shape[1] ** -0.5 if x.ndim == 2 else 0.3
        if positions and ("embed" in name or "shared" in name):
            scale = 0.02
        value = scale * torch.randn(x.shape) + float(name.endswith("norm.weight"))
        x.data = torch.round(1024 * value) / 1024


def main() -> None:
    stored = {}
    for name, (kind, fields) in MODELS.items():
        torch.manual_seed(20181017)
        kind = getattr(transformers, kind)
        model = kind(kind.config_class(**SIZES, **fields)).eval()
        make_random(model)
        ids = torch.randint(4, 140, (2, SOURCE + TARGET))
        with torch.inference_mode():
            logits = model(
                input_ids=ids[:, :SOURCE],
                decoder_input_ids=ids[:, SOURCE:],
                use_cache=False,
            ).logits
        with tempfile.TemporaryDirectory() as folder:
            model.save_pretrained(folder)
            saved = load_file(Path(folder) / "model.safetensors")
            text = (Path(folder) / "config.json").read_text()
        shapes = json.dumps({key: x.shape for key, x in saved.items()})
        tensors = np.concatenate([x.ravel() for x in saved.values()])
        stored[f"{name}/config"], stored[f"{name}/shapes"] = text, shapes
        stored[f"{name}/tensors"] = tensors.astype(np.float16)
        stored[f"{name}/source"] = ids[:, :SOURCE].numpy()
        stored[f"{name}/target"] = ids[:, SOURCE:].numpy()
        stored[f"{name}/logits"] = logits[..., :COLUMNS].numpy()
    np.savez_compressed(FILE, **stored)
    print(f"{FILE}: {FILE.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
