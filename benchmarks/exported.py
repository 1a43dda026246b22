"""Peers that translate: our model, exported, in CTranslate2 and in Hugging Face.

Needs the extra `[peers]`.
"""

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from benchmarks.peers import device, need
from t2t_jax.decoding.translator import Translator
from t2t_jax.io.threads import core_count
from t2t_jax.tools.bridges.exports import to_ctranslate2, to_huggingface

Tokens = list[list[int]]


class Search(NamedTuple):
    """Options of a peer's search.

    Attributes:
      beam: beam width.
      alpha: exponent of the length penalty.
      extra: an output may have this many tokens more than the batch's longest source.
      exactly: forces outputs of this many tokens; None lets them end by themselves.
      rows: sentences in a batch.
    """

    beam: int
    alpha: float
    extra: int
    exactly: int | None
    rows: int


class HuggingFace:
    """Hugging Face's `generate` on batches sorted by length; on a GPU in bfloat16."""

    def __init__(self, translator: Translator, search: Search):
        self.torch, self.transformers = need("torch", "transformers")
        self.device = device(self.torch)
        vocabulary = translator.vocabulary
        self.special = vocabulary.pad, vocabulary.bos, vocabulary.eos
        with tempfile.TemporaryDirectory() as folder:
            to_huggingface.save(translator, Path(folder))
            model = self.transformers.AutoModelForSeq2SeqLM.from_pretrained(
                folder, dtype=self.torch.float32, attn_implementation="sdpa"
            ).eval()
        model.generation_config.max_length = None  # each batch has its own limit
        # Their configs have no field for it, so it is PyTorch's default.
        for module in model.modules():
            if isinstance(module, self.torch.nn.LayerNorm):
                module.eps = translator.config.model.norm_epsilon
        if self.device == "cuda":
            model = model.to(self.device, self.torch.bfloat16)
        self.model, self.search = model, search

    def __call__(self, sources: Tokens) -> Tokens:
        """Translates sources (with an end) to outputs without beginning and end."""
        search, found = self.search, {}
        pad, bos, eos = self.special
        order = sorted(range(len(sources)), key=lambda i: -len(sources[i]))
        for start in range(0, len(order), search.rows):
            part = order[start : start + search.rows]
            width = len(sources[part[0]])
            tokens = self.torch.full((len(part), width), pad)
            mask = self.torch.zeros((len(part), width), dtype=self.torch.long)
            for row, i in enumerate(part):
                tokens[row, : len(sources[i])] = self.torch.tensor(sources[i])
                mask[row, : len(sources[i])] = 1
            options = self.transformers.GenerationConfig(
                num_beams=search.beam,
                do_sample=False,
                length_penalty=search.alpha if search.beam > 1 else 1.0,
                max_new_tokens=search.exactly or width + search.extra,
                min_new_tokens=search.exactly,
                pad_token_id=pad,
                bos_token_id=bos,
                eos_token_id=eos,
                decoder_start_token_id=bos,
            )
            with self.torch.inference_mode():
                made = self.model.generate(
                    tokens.to(self.device),
                    attention_mask=mask.to(self.device),
                    generation_config=options,
                ).cpu()
            for i, row in zip(part, made.tolist(), strict=True):
                found[i] = until_end(row[1:], eos)
        return [found[i] for i in range(len(sources))]


def until_end(tokens: Sequence[int], eos: int) -> list[int]:
    """The tokens before the first end-of-sentence; all of them if it has none."""
    tokens = list(tokens)
    return tokens[: tokens.index(eos)] if eos in tokens else tokens


class CTranslate2:
    """CTranslate2's `translate_batch` on the CPU, sorted by length; float32 or int8."""

    def __init__(self, translator: Translator, search: Search, weights: str):
        (ctranslate2,) = need("ctranslate2")
        vocabulary = translator.vocabulary
        self.source, self.target = (
            [side.piece(token) for token in range(len(side))]
            for side in (vocabulary.source, vocabulary)
        )
        self.ids = {piece: token for token, piece in enumerate(self.target)}
        with tempfile.TemporaryDirectory() as folder:
            to_ctranslate2.save(translator, Path(folder), weights)
            self.translator = ctranslate2.Translator(
                folder,
                device="cpu",
                inter_threads=1,
                intra_threads=core_count(),
            )
        self.search = search

    def __call__(self, sources: Tokens) -> Tokens:
        """Translates; arguments and result as for `HuggingFace`."""
        search = self.search
        longest = max(map(len, sources)) + search.extra
        results = self.translator.translate_batch(
            # It adds the end itself.
            [[self.source[token] for token in source[:-1]] for source in sources],
            beam_size=search.beam,
            length_penalty=search.alpha,
            max_batch_size=search.rows,
            max_decoding_length=search.exactly or longest,
            min_decoding_length=search.exactly or 1,
        )
        return [[self.ids[piece] for piece in r.hypotheses[0]] for r in results]
