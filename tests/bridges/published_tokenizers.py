"""Folders with the tokenizer files of published models, small; and nasty lines.

`python -m tests.bridges.published_tokenizers JOB.json` runs the original of a folder.
The job has `kind`, `folder`, `source` and `target` languages, `lines`, `rows` of ids;
the result has the ids of lines as source and as target, and the rows' texts.
"""

import functools
import io
import json
import random
import subprocess
import sys
from pathlib import Path

import sentencepiece

from t2t_jax.data.tokenizers.vocabulary import Vocabulary
from t2t_jax.extensions.grammar import corpus

SIDES = {"source": 0, "target": 1}
TAGS = ">>deu<<", ">>fra<<"


@functools.cache
def spm(side: str | None, model_type: str, size: int = 150, **options) -> bytes:
    """A SentencePiece model of one language of the built-in corpus, or of both."""
    pairs = corpus.pairs("train", count=300)
    lines = [line for pair in pairs for line in pair]
    lines = lines if side is None else lines[SIDES[side] :: 2]
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines),
        model_writer=model,
        model_type=model_type,
        vocab_size=size + 256 * options.get("byte_fallback", False),
        minloglevel=2,
        **options,
    )
    return model.getvalue()


def pieces(model: bytes) -> list[str]:
    processor = sentencepiece.SentencePieceProcessor(model_proto=model)
    return [processor.id_to_piece(i) for i in range(len(processor))]


def marian(folder: Path, model_type="unigram", separate=False, **options) -> dict:
    """Writes the files of a MarianMT; returns its config."""
    models = {side: spm(side, model_type, **options) for side in SIDES}
    for side, model in models.items():
        (folder / f"{side}.spm").write_bytes(model)
    ordinary = {side: set(pieces(model)[3:]) for side, model in models.items()}

    def table(pieces):
        # Not in the order of SentencePiece; a piece is missing.
        pieces = sorted(pieces)[1:]
        random.Random(1).shuffle(pieces)
        return ["</s>", "<unk>", *TAGS, *pieces]

    def write(name, content):
        (folder / name).write_text(json.dumps(content))

    tables = [table(ordinary["source"] | ordinary["target"])]
    config = {"eos_token_id": 0, "share_encoder_decoder_embeddings": not separate}
    if separate:
        # The library takes special tokens of both sides from the source.
        tables = [table(ordinary[side]) for side in SIDES]
        tables = [t[: min(map(len, tables))] for t in tables]
        config["decoder_vocab_size"] = len(tables[1]) + 1
    for name, pieces_of_side in zip(("vocab", "target_vocab"), tables, strict=False):
        ids = {piece: i for i, piece in enumerate([*pieces_of_side, "<pad>"])}
        write(f"{name}.json", ids)
    write("tokenizer_config.json", {"separate_vocabs": separate})
    padding = len(tables[0])
    config |= {"vocab_size": padding + 1, "pad_token_id": padding}
    return config | {"bad_words_ids": [[padding]], "decoder_start_token_id": padding}


def m2m100(folder: Path, model_type="bpe", **options) -> dict:
    model = spm(None, model_type, **options)
    (folder / "sentencepiece.bpe.model").write_bytes(model)
    table = ["<s>", "<pad>", "</s>", "<unk>", *pieces(model)[3:][::-1]]
    ids = {p: i for i, p in enumerate(table)}
    (folder / "vocab.json").write_text(json.dumps(ids))
    from t2t_jax.tools.bridges.vocabularies.huggingface import M2M100

    tokens = [f"__{language}__" for language in M2M100.split()]
    special = {"additional_special_tokens": tokens}
    (folder / "special_tokens_map.json").write_text(json.dumps(special))
    (folder / "tokenizer_config.json").write_text(json.dumps(special))
    return {
        **{"vocab_size": len(table) + 108, "pad_token_id": 1, "eos_token_id": 2},
        "decoder_start_token_id": 2,
    }


def nllb(folder: Path, model_type="bpe", **options) -> dict:
    from t2t_jax.tools.bridges.vocabularies.huggingface import NLLB

    model = spm(None, model_type, unk_id=0, bos_id=1, eos_id=2, **options)
    (folder / "sentencepiece.bpe.model").write_bytes(model)
    added = [*NLLB.split(), "<mask>"]
    start = len(pieces(model)) + 1
    settings = {
        "additional_special_tokens": NLLB.split(),
        "added_tokens_decoder": {
            start + i: {"content": token, "special": True, "lstrip": token == "<mask>"}
            for i, token in enumerate(added)
        },
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    return {
        **{"vocab_size": len(pieces(model)) + 206, "pad_token_id": 1},
        **{"eos_token_id": 2, "decoder_start_token_id": 2},
    }


def pegasus(folder: Path, model_type="unigram", **options) -> dict:
    special = {"pad_id": 0, "eos_id": 1, "unk_id": 2, "bos_id": -1}
    model = spm(None, model_type, **special | options)
    (folder / "spiece.model").write_bytes(model)
    (folder / "tokenizer_config.json").write_text("{}")
    return {
        **{"vocab_size": len(pieces(model)) + 103, "pad_token_id": 0},
        **{"eos_token_id": 1, "decoder_start_token_id": 0},
    }


# What is joined to nasty lines.
NASTY = """
the cat Katze größer naïve ﬁ ① e\u0301 Ⅷ ﷺ ½ ſ 日本 カ゛ 한국 한 🇩🇪 \u202eabc\u202c
👩\u200d👩\u200d👧 עברית हिन्दी </s> <unk> <pad> <s> <mask> __en__ __de__ deu_Latn \u2581
<mask_1> <unk_2> <unk_102> <0x41> <0x0A> >>deu<< >>xyz<< >> << >>de u<< ⁇ \ufffd
\ufeff \u200b \u200d \xad
"""
WORDS = NASTY.split()
SPACES = [" "] * 8 + [*("", "", "  ", "\t", "\xa0", "\u3000", "\u2003", "\r", "\x85")]
SPACES += ["\u2028"]


def nasty_lines(count: int) -> list[str]:
    """Lines of random characters, words, white space and special tokens; none equal."""
    draw = random.Random(7)
    ranges = [(0x20, 0x7F), (0, 0x250), (0x250, 0x3000), (0x3000, 0xD800)]
    ranges += [(0xE000, 0x10000), (0x10000, 0x20000), (0x20000, 0x110000)]
    english = [line for pair in corpus.pairs("dev", count=100) for line in pair]
    lines = ["", " ", "\t", "the " * 3000, "ü" * 5000, *TAGS, "a" * 3000]
    lines += [">>deu<<>>deu<< a", ">>deu<<the", " >>deu<< the", ">>deu<", ">> a << b"]
    while len(lines) < count:
        line = draw.choice(english) if draw.random() < 0.4 else ""
        for _ in range(draw.randrange(1, 8)):
            kind = draw.random()
            if kind < 0.5:
                word = draw.choice(WORDS)
            else:
                low, high = draw.choice(ranges)
                codes = [draw.randrange(low, high) for _ in range(draw.randrange(4))]
                word = "".join(map(chr, codes)).replace("\n", "")
            place = draw.choice([0, len(line), draw.randrange(len(line) + 1)])
            word = draw.choice(SPACES) + word + draw.choice(SPACES)
            line = line[:place] + word + line[place:]
        lines.append(line)
    return lines[:count]


FOLDERS = {"marian": marian, "m2m100": m2m100, "nllb": nllb, "pegasus": pegasus}
LANGUAGES = {"m2m100": ("en", "de"), "nllb": ("eng_Latn", "deu_Latn")}


def read(kind, folder: Path, config: dict, languages=None) -> Vocabulary:
    """The vocabulary of a folder of a kind."""
    from t2t_jax.tools.bridges.vocabularies import huggingface, marian

    module = marian if kind == "marian" else huggingface
    languages = languages or LANGUAGES.get(kind, ())
    return getattr(module, f"{kind}_vocabulary")(folder, config, *languages)


def new_vocabulary(kind, folder: Path, **options) -> Vocabulary:
    """The vocabulary of a new folder."""
    return read(kind, folder, FOLDERS[kind](folder, **options))


def original(folder: Path, **job) -> dict:
    """Runs the original tokenizer of a folder in a process of its own."""
    file, output = folder / "job.json", folder / "result.json"
    job |= {"folder": str(folder), "output": str(output)}
    file.write_text(json.dumps(job))
    subprocess.run([sys.executable, "-m", __name__, file], check=True)
    return json.loads(output.read_text())


CLASSES = {"marian": "Marian", "m2m100": "M2M100", "nllb": "Nllb", "pegasus": "Pegasus"}


def main():
    import transformers

    job = json.loads(Path(sys.argv[1]).read_text())
    kind = getattr(transformers, f"{CLASSES.get(job['kind'], 'FSMT')}Tokenizer")
    languages = {"src_lang": job["source"], "tgt_lang": job["target"]}
    languages = {name: value for name, value in languages.items() if value}
    tokenizer = kind.from_pretrained(job["folder"], **languages)
    result = {
        "source": tokenizer(job["lines"])["input_ids"],
        "target": tokenizer(text_target=job["lines"])["input_ids"],
        "texts": [tokenizer.decode(r, skip_special_tokens=True) for r in job["rows"]],
    }
    Path(job["output"]).write_text(json.dumps(result))


if __name__ == "__main__":
    main()
