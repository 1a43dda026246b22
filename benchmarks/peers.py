"""Peers of the training benchmarks: Hugging Face's MarianMT on PyTorch.

Needs the extra `[peers]`. On a CPU, PyTorch gets a thread for each core; on a GPU,
bfloat16 autocast, scaled_dot_product_attention, torch.compile and fused Adam. MarianMT
is post-norm whatever `config.model.norm` says; a pre-norm model has just two LayerNorms
more.
"""

import importlib

import numpy as np

from t2t_jax.config import Config, ModelConfig
from t2t_jax.io.errors import UserError
from t2t_jax.io.threads import core_count

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
