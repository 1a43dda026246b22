"""Writes random models of every published shape, as `save_pretrained` does.

    python published_shapes.py FOLDER [--true_size] [SHAPE ...]

Stand-alone; needs torch, transformers, sentencepiece and subword-nmt. Every parameter
is random, biases and norms too, so that leaving one out is visible in the logits. The
tokenizers are trained on made-up words; tables of published sizes are filled up.
"""

import argparse
import io
import json
import random
from pathlib import Path

import sentencepiece
import torch
import transformers

SYLLABLES = "ba", "de", "ki", "lo", "mu", "na", "po", "ra", "si", "ver", "schön", "ü"
TINY = {"width": 16, "layers": 1, "heads": 2, "hidden": 24}


def words(seed, count=300):
    draw = random.Random(seed)
    return [
        "".join(draw.choices(SYLLABLES, k=draw.randint(1, 4))) for _ in range(count)
    ]


def lines(seed, count=200):
    draw, known = random.Random(seed), words(seed)
    return [" ".join(draw.choices(known, k=draw.randint(2, 9))) for _ in range(count)]


def spm(seed, **options):
    """Trains a SentencePiece model; returns its content and its pieces."""
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines(seed)),
        model_writer=model,
        vocab_size=options.pop("vocab_size", 60),
        minloglevel=2,
        **options,
    )
    processor = sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())
    pieces = [processor.id_to_piece(i) for i in range(len(processor))]
    return model.getvalue(), pieces


def put(folder, name, content):
    if isinstance(content, bytes):
        (folder / name).write_bytes(content)
    else:
        (folder / name).write_text(json.dumps(content, ensure_ascii=False))


def filled(pieces, size):
    """Adds pieces that the SentencePiece model never gives."""
    return [*pieces, *(f"filled{i}" for i in range(size - len(pieces)))]


def save(model, folder, generation):
    """Makes all parameters random and stores the model."""
    random_parameters(model)
    for name, value in generation.items():
        setattr(model.generation_config, name, value)
    model.save_pretrained(folder)


def random_parameters(model):
    torch.manual_seed(1)
    seen = {}
    names = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    for name, x in names.items():
        if "embed_positions" in name or x.data_ptr() in seen:
            continue
        seen[x.data_ptr()] = name
        with torch.no_grad():
            noise = torch.randn_like(x)
            if name.endswith("norm.weight"):
                x.copy_(1 + 0.2 * noise)
            elif x.ndim == 2 and "final_logits_bias" not in name:
                x.copy_(noise * (1.5 * x.shape[1] ** -0.5))
            else:
                x.copy_(0.3 * noise)


def sizes(size, decoder_layers=None):
    return {
        "d_model": size["width"],
        "encoder_layers": size["layers"],
        "decoder_layers": decoder_layers or size["layers"],
        "encoder_attention_heads": size["heads"],
        "decoder_attention_heads": size["heads"],
        "encoder_ffn_dim": size["hidden"],
        "decoder_ffn_dim": size["hidden"],
    }


def marian(folder, size, vocab_size, shared=True, activation="swish", tie=True):
    """MarianMT; the pad piece is the last one of each table."""
    tables = []
    for seed, side in enumerate(("source", "target")):
        content, pieces = spm(seed)
        put(folder, f"{side}.spm", content)
        tables.append([p for p in pieces if p not in ("<unk>", "<s>", "</s>")])
    if shared:
        tables = [list(dict.fromkeys(tables[0] + tables[1]))]
    names = ("vocab.json", "target_vocab.json")
    rows = []
    # Both have the same number: pad, which starts the decoder, has one id.
    number = max(vocab_size, max(map(len, tables)) + 3)
    for name, pieces in zip(names, tables, strict=False):
        table = [*filled(["</s>", "<unk>", *pieces], number - 1), "<pad>"]
        put(folder, name, {piece: i for i, piece in enumerate(table)})
        rows.append(len(table))
    settings = {"source_lang": "en", "target_lang": "de", "separate_vocabs": not shared}
    put(folder, "tokenizer_config.json", settings)
    pad = number - 1
    config = transformers.MarianConfig(
        **sizes(size),
        vocab_size=rows[0],
        decoder_vocab_size=rows[-1],
        share_encoder_decoder_embeddings=shared,
        tie_word_embeddings=tie,
        activation_function=activation,
        scale_embedding=True,
        max_position_embeddings=512,
        pad_token_id=pad,
        decoder_start_token_id=pad,
        eos_token_id=0,
        forced_eos_token_id=0,
    )
    generation = {"num_beams": 4, "max_length": 512, "bad_words_ids": [[pad]]}
    generation["renormalize_logits"] = True
    save(transformers.MarianMTModel(config), folder, generation)


def m2m100(folder, size, vocab_size):
    """M2M100: ids of vocab.json, then 100 languages and 8 unused rows."""
    content, pieces = spm(0)
    put(folder, "sentencepiece.bpe.model", content)
    pieces = [p for p in pieces if p not in ("<unk>", "<s>", "</s>")]
    table = ["<s>", "<pad>", "</s>", "<unk>", *pieces]
    table = filled(table, vocab_size - 108)
    put(folder, "vocab.json", {piece: i for i, piece in enumerate(table)})
    put(folder, "tokenizer_config.json", {"src_lang": "en", "tgt_lang": "de"})
    config = transformers.M2M100Config(**sizes(size), vocab_size=len(table) + 108)
    generation = {"num_beams": 5, "max_length": 200, "early_stopping": True}
    save(transformers.M2M100ForConditionalGeneration(config), folder, generation)


def nllb(folder, size, vocab_size):
    """NLLB: SentencePiece's ids + 1, then 202 languages and <mask>."""
    content, pieces = spm(0, model_type="bpe", vocab_size=max(80, vocab_size))
    put(folder, "sentencepiece.bpe.model", content)
    settings = {"tokenizer_class": "NllbTokenizer"}
    put(folder, "tokenizer_config.json", settings)
    config = transformers.M2M100Config(**sizes(size), vocab_size=len(pieces) + 204)
    save(
        transformers.M2M100ForConditionalGeneration(config), folder, {"max_length": 200}
    )


def pegasus(folder, size, vocab_size):
    """Pegasus: SentencePiece's ids + 103."""
    special = {"pad_id": 0, "eos_id": 1, "unk_id": 2, "bos_id": -1}
    content, pieces = spm(0, **special)
    put(folder, "spiece.model", content)
    put(folder, "tokenizer_config.json", {"tokenizer_class": "PegasusTokenizer"})
    config = transformers.PegasusConfig(
        **sizes(size),
        vocab_size=len(pieces) + 103,
        scale_embedding=True,
        activation_function="relu",
    )
    generation = {"num_beams": 8, "length_penalty": 0.8, "max_length": 256}
    save(transformers.PegasusForConditionalGeneration(config), folder, generation)


def fsmt(folder, size, vocab_size, tie=False):
    """FSMT: byte-pair codes, and ids of two files of JSON."""
    from subword_nmt import learn_bpe

    text = lines(0) + ([] if tie else lines(1))
    learned = io.StringIO()
    learn_bpe.learn_bpe(io.StringIO("\n".join(text)), learned, 40)
    merges = learned.getvalue().splitlines()[1:]
    (folder / "merges.txt").write_text("\n".join(f"{m} 1" for m in merges) + "\n")
    units = []
    for seed in (0, 0 if tie else 1):
        letters = {c for word in words(seed) for c in word}
        known = sorted({*letters, *(c + "</w>" for c in letters)})
        known += [m.replace(" ", "") for m in merges]
        special = ["<s>", "<pad>", "</s>", "<unk>"]
        units.append([*special, *dict.fromkeys(known), *["odd</w>"] * seed])
    for side, table in zip(("src", "tgt"), units, strict=True):
        put(folder, f"vocab-{side}.json", {piece: i for i, piece in enumerate(table)})
    settings = {"langs": ["en", "de"], "do_lower_case": False}
    put(folder, "tokenizer_config.json", settings)
    config = transformers.FSMTConfig(
        **sizes(size),
        langs=["en", "de"],
        src_vocab_size=len(units[0]),
        tgt_vocab_size=len(units[1]),
        tie_word_embeddings=tie,
    )
    save(transformers.FSMTForConditionalGeneration(config), folder, {})


BASE = {"width": 512, "layers": 6, "heads": 8, "hidden": 2048}
BIG = {"width": 1024, "layers": 6, "heads": 16, "hidden": 4096}

# Shape -> its function, the arguments of a tiny one, and its published sizes.
SHAPES = {
    "opus-mt": (marian, {}, (BASE, 58101)),
    "tc-big": (marian, {"activation": "relu"}, (BIG, 57276)),
    "tc-big-separate": (marian, {"activation": "relu", "shared": False}, (BIG, 32001)),
    "untied": (marian, {"tie": False}, (BASE, 0)),
    "m2m100": (m2m100, {}, ({**BIG, "layers": 2}, 128112)),
    "nllb": (nllb, {}, ({**BIG, "layers": 2}, 0)),
    "pegasus": (pegasus, {}, ({**BIG, "layers": 2}, 0)),
    "fsmt": (fsmt, {}, (BIG, 0)),
    "fsmt-tied": (fsmt, {"tie": True}, (BIG, 0)),
}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("shapes", nargs="*", default=[])
    parser.add_argument("--true_size", action="store_true")
    given = parser.parse_args()
    for name in given.shapes or SHAPES:
        write, options, published = SHAPES[name]
        folder = given.folder / name
        folder.mkdir(parents=True, exist_ok=True)
        size, vocab_size = published if given.true_size else (TINY, 0)
        write(folder, size, vocab_size, **options)


if __name__ == "__main__":
    main()
