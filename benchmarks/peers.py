"""Peers: Hugging Face's MarianMT on PyTorch trains, and exported models translate.

Needs the extra `[peers]`. On a CPU, PyTorch gets a thread for each core; on a GPU,
bfloat16 autocast, scaled_dot_product_attention, torch.compile and fused Adam. MarianMT
is post-norm whatever `config.model.norm` says; a pre-norm model has just two LayerNorms
more.
"""

import importlib
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import jax
import numpy as np

from t2t_jax.config import Config, ModelConfig
from t2t_jax.decoding.translator import Translator
from t2t_jax.io.errors import UserError
from t2t_jax.io.threads import core_count
from t2t_jax.model.products import quantized
from t2t_jax.parallel.machine import tree_bytes
from t2t_jax.tools.bridges.exports import to_ctranslate2, to_huggingface

TRAINING = ("marianmt",)
PAD, BOS, EOS = 0, 1, 2
IGNORED = -100  # a target that the loss ignores; PyTorch's default


def need(*names: str) -> list:
    """Imports modules of the extra `[peers]`."""
    try:
        return [importlib.import_module(name) for name in names]
    except ImportError as e:
        raise UserError(
            f"the peers need {e.name or e}, which is not installed: "
            "pip install -e '.[peers]', or leave the peers out with --peers="
        ) from None


def device(torch) -> str:
    """Chooses `cuda` or `cpu`; on a CPU PyTorch gets all cores."""
    if torch.cuda.is_available():
        return "cuda"
    torch.set_num_threads(core_count())
    return "cpu"


def sizes(config: ModelConfig, vocab_size: int, longest: int) -> dict:
    """Arguments of a Hugging Face config of the same sizes, if it can have them."""
    if config.head_width not in (0, config.width // config.heads):
        raise UserError(
            f"config.model.head_width={config.head_width}: the peers have heads of "
            f"width / heads = {config.width // config.heads}; set it to 0"
        )
    return {
        "vocab_size": vocab_size,
        "d_model": config.width,
        "encoder_layers": config.layers,
        "decoder_layers": config.layers,
        "encoder_attention_heads": config.heads,
        "decoder_attention_heads": config.heads,
        "encoder_ffn_dim": config.hidden,
        "decoder_ffn_dim": config.hidden,
        "encoder_layerdrop": 0.0,
        "decoder_layerdrop": 0.0,
        "max_position_embeddings": longest,
        "dropout": config.dropout,
        "attention_dropout": 0.0,
        "activation_dropout": 0.0,
        "activation_function": "relu",
        "scale_embedding": True,
    }


def marian(config: ModelConfig, vocab_size: int, longest: int):
    """Builds a `MarianMTModel` of the same sizes, with random weights.

    Source, target and output embeddings are shared.
    """
    (transformers,) = need("transformers")
    described = transformers.MarianConfig(
        **sizes(config, vocab_size, longest),
        decoder_vocab_size=vocab_size,
        share_encoder_decoder_embeddings=True,
        pad_token_id=PAD,
        bos_token_id=BOS,
        eos_token_id=EOS,
        decoder_start_token_id=BOS,
        forced_eos_token_id=None,
        attn_implementation="sdpa",
    )
    return transformers.MarianMTModel(described)


class MarianTraining:
    """Trains MarianMT the usual way: Adam, label-smoothed cross-entropy."""

    def __init__(
        self, config: Config, vocab_size: int, bfloat16: bool, longest: int = 512
    ):
        (self.torch,) = need("torch")
        self.device = device(self.torch)
        self.bfloat16 = bfloat16
        self.torch.manual_seed(0)
        self.model = marian(config.model, vocab_size, longest).train().to(self.device)
        train = config.train
        self.optimizer = self.torch.optim.Adam(
            self.model.parameters(),
            lr=1e-4,
            betas=(train.adam_b1, train.adam_b2),
            eps=train.adam_epsilon,
            fused=self.device == "cuda" or None,
        )
        self.loss = self.torch.nn.CrossEntropyLoss(
            label_smoothing=train.label_smoothing, ignore_index=IGNORED
        )
        self.forward = self.model
        if self.device == "cuda":
            # Where it cannot be compiled (no C compiler), it runs as it is.
            self.torch._dynamo.config.suppress_errors = True
            self.forward = self.torch.compile(self.model)

    def step(self, source_bs: np.ndarray, target_bt: np.ndarray, padded: bool):
        """One update; returns the loss, still on its device.

        Args:
          source_bs, target_bt: token ids, int; 0 is padding.
          padded: True if there is padding, which a mask has to hide.
        """
        source, target = self.placed(source_bs), self.placed(target_bt)
        start = self.torch.full_like(target[:, :1], BOS)
        inputs = {
            "input_ids": source,
            "decoder_input_ids": self.torch.cat([start, target[:, :-1]], 1),
            "use_cache": False,
        }
        if padded:
            inputs["attention_mask"] = (source != PAD).long()
            target = target.masked_fill(target == PAD, IGNORED)
        with self.torch.autocast(
            self.device, dtype=self.torch.bfloat16, enabled=self.bfloat16
        ):
            logits = self.forward(**inputs).logits
            loss = self.loss(logits.flatten(0, 1), target.flatten())
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return loss.detach()

    def placed(self, tokens: np.ndarray):
        """Copies token ids to the device."""
        return self.torch.from_numpy(tokens.astype(np.int64)).to(self.device)

    def finish(self) -> None:
        """Waits for the device."""
        if self.device == "cuda":
            self.torch.cuda.synchronize()

    def peak_megabytes(self) -> float | None:
        """Peak memory of the device so far, in MiB; None on a CPU."""
        if self.device == "cpu":
            return None
        return self.torch.cuda.max_memory_allocated() / 2**20


# ----------------------------------------------------------- translating

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
        self.megabytes = (
            sum(p.numel() * p.element_size() for p in model.parameters()) / 1e6
        )

    def __call__(self, sources: Tokens) -> Tokens:
        """Translates sources (with an end) to outputs without beginning and end."""
        search, outputs = self.search, {}
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
                generated = self.model.generate(
                    tokens.to(self.device),
                    attention_mask=mask.to(self.device),
                    generation_config=options,
                ).cpu()
            for i, row in zip(part, generated.tolist(), strict=True):
                outputs[i] = until_end(row[1:], eos)
        return [outputs[i] for i in range(len(sources))]


class OursInt8:
    """Our own search with int8 weights."""

    def __init__(self, translator: Translator, search: Search):
        model, self.search = translator.model, search
        parameters = quantized(jax.device_get(translator.parameters), model.summed)
        self._translator = Translator(
            translator.config, translator.vocabulary, model, parameters
        )
        self.megabytes = tree_bytes(parameters) / 1e6

    def __call__(self, sources: Tokens) -> Tokens:
        hypotheses = self._translator.translate_ids(sources, beam=self.search.beam)
        eos = self._translator.vocabulary.eos
        return [until_end(hypothesis.tokens, eos) for hypothesis in hypotheses]


def until_end(tokens: Sequence[int], eos: int) -> list[int]:
    """The tokens before the first end-of-sentence; all of them if it has none."""
    tokens = list(tokens)
    return tokens[: tokens.index(eos)] if eos in tokens else tokens


class CTranslate2:
    """CTranslate2's `translate_batch`, sorted by length; int8, or floats.

    On a GPU floats are float16. On a CPU it may divide its cores among batches, one
    each, or use all for one batch: `choose_threads` takes what is faster.
    """

    def __init__(self, translator: Translator, search: Search, weights: str):
        (ctranslate2,) = need("ctranslate2")
        vocabulary = translator.vocabulary
        self.source, self.target = (
            [side.piece(token) for token in range(len(side))]
            for side in (vocabulary.source, vocabulary)
        )
        self.ids = {piece: token for token, piece in enumerate(self.target)}
        on_gpu = ctranslate2.get_cuda_device_count() > 0
        with tempfile.TemporaryDirectory() as folder:
            to_ctranslate2.save(translator, Path(folder), weights)
            files = Path(folder).iterdir()
            self.megabytes = sum(file.stat().st_size for file in files) / 1e6
            cores = core_count()
            # (batches at a time, threads of each)
            threads = dict.fromkeys([(1, 1)] if on_gpu else [(1, cores), (cores, 1)])
            self.translators = [
                ctranslate2.Translator(
                    folder,
                    device="cuda" if on_gpu else "cpu",
                    compute_type="float16" if on_gpu and weights != "int8" else weights,
                    inter_threads=batches,
                    intra_threads=threads_each,
                )
                for batches, threads_each in threads
            ]
        self.translator, self.search = self.translators[0], search

    def choose_threads(self, sources: Tokens) -> None:
        """Keeps the fastest division of the cores, by the second of two calls."""

        def seconds(translator) -> float:
            self.translator = translator
            self(sources)
            began = time.perf_counter()
            self(sources)
            return time.perf_counter() - began

        self.translator = min(self.translators, key=seconds)
        self.translators = [self.translator]

    def __call__(self, sources: Tokens) -> Tokens:
        """Translates; arguments and result as for `HuggingFace`."""
        search = self.search
        longest = max(map(len, sources)) + search.extra
        # Batches enough for all that it divides the cores among.
        share = -(-len(sources) // self.translator.num_translators)
        results = self.translator.translate_batch(
            # It adds the end itself.
            [[self.source[token] for token in source[:-1]] for source in sources],
            beam_size=search.beam,
            length_penalty=search.alpha,
            max_batch_size=min(search.rows, share),
            max_decoding_length=search.exactly or longest,
            min_decoding_length=search.exactly or 1,
        )
        return [[self.ids[piece] for piece in r.hypotheses[0]] for r in results]
