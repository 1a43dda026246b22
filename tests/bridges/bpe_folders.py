"""Folders with the tokenizer files of fairseq and FSMT models, small."""

import functools
import itertools
import json
from collections import Counter
from pathlib import Path

from sacremoses import MosesTokenizer

from t2t_jax.extensions.data.tokenizers.bpe import merge
from t2t_jax.extensions.grammar import corpus

SPECIAL = ["<s>", "<pad>", "</s>", "<unk>"]
# Escapes of Moses become pieces, as in every published model.
WORDS = "don't it's l'eau a-b (2) 5,3% \"A\" [&] Köln... “"
MADE_UP = ["' & [ ]" * 3, *WORDS.split()]


@functools.cache
def learned(merges: int = 150) -> tuple[list[str], list[str]]:
    """Merges of Moses words, `a b</w>`, and the pieces that they give."""
    pairs = corpus.pairs("train", count=100)
    lines = [line for pair in pairs for line in pair] + MADE_UP * 20
    moses = MosesTokenizer("en")
    words = Counter(
        word for x in lines for word in moses.tokenize(x, aggressive_dash_splits=True)
    )
    parts = {word: [*word[:-1], word[-1] + "</w>"] for word in words}
    # The alphabet of both places, so that any of its words has pieces.
    alphabet = dict.fromkeys("".join(words))
    pieces = dict.fromkeys(p for c in alphabet for p in (c, c + "</w>"))
    codes = []
    for _ in range(merges):
        counts: Counter = Counter()
        for word, count in words.items():
            for pair in itertools.pairwise(parts[word]):
                counts[pair] += count
        best = max(counts, key=lambda pair: (counts[pair], pair))
        codes.append(" ".join(best))
        pieces["".join(best)] = None
        parts = {word: merge(old, {best: 0}) for word, old in parts.items()}
    return codes, [*pieces]


def as_fairseq(piece: str) -> str:
    return piece.removesuffix("</w>") if piece.endswith("</w>") else piece + "@@"


def fairseq(folder: Path, header: str = "#version: 0.2\n", ending: str = "") -> dict:
    """Writes dictionaries of English and German, and codes; returns the options.

    Args:
      header: of the codes.
      ending: of each line of the codes; a count makes them fastBPE's.
    """
    codes, pieces = learned()
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "bpecodes").write_text(header + "".join(f"{c}{ending}\n" for c in codes))
    for language, side_pieces in (("en", pieces), ("de", pieces[::-1])):
        lines = [f"{as_fairseq(piece)} 7\n" for piece in side_pieces]
        text = "".join([*lines, "madeupword0000 0\n"])
        (folder / f"dict.{language}.txt").write_text(text)
    return {
        **{"source_lang": "en", "target_lang": "de"},
        **{"bpe": "subword_nmt", "tokenizer": "moses"},
    }


def fsmt(folder: Path, **settings) -> dict:
    """Writes the files of FSMT; returns the config."""
    codes, pieces = learned()
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "merges.txt").write_text("".join(f"{c} 9\n" for c in codes) + "cut off")
    config = {"langs": ["en", "de"], "tie_word_embeddings": False}
    for side, side_pieces in (("src", pieces), ("tgt", pieces[::-1])):
        ids = {piece: i for i, piece in enumerate([*SPECIAL, *side_pieces])}
        (folder / f"vocab-{side}.json").write_text(json.dumps(ids))
        config[f"{side}_vocab_size"] = len(ids)
    settings = {"langs": ["en", "de"], "do_lower_case": False, **settings}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    return config
