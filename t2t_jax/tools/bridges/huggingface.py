"""Folders of Hugging Face: their configs, weights and search options as ours.

A format of this family (`marian.py`, `m2m100.py`, `pegasus.py`, `fsmt.py`) says how its
class computes; what they share is here.
"""

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from t2t_jax.config import from_config_dict
from t2t_jax.data.tokenizers.vocabulary import Vocabulary
from t2t_jax.search.algorithm import never_generated
from t2t_jax.tools.bridges.formats import Imported, Request
from t2t_jax.tools.bridges.huggingface_files import Fields, Folder
from t2t_jax.tools.bridges.huggingface_weights import (
    HEAD,
    learned_positions,
    read_weights,
    silence,
)
from t2t_jax.tools.bridges.imported_config import imported_config
from t2t_jax.tools.bridges.reading import read_tensors

# Their names of activations that we have; theirs of `gelu` is exact, as ours is.
ACTIVATIONS = {"relu": "relu", "gelu": "gelu", "swish": "silu", "silu": "silu"}


def model_fields(config: Fields, *, scaled: bool, **own: Any) -> dict[str, Any]:
    """Reads the fields of `config.model` that all classes have.

    Args:
      config: of the folder.
      scaled: the class's default of `scale_embedding`.
      **own: the fields that the class itself decides.

    Raises:
      UserError: a field has a value that we have no counterpart of.
    """
    config.only(is_encoder_decoder=True, is_decoder=False)
    activation = config.get("activation_function", "")
    if activation not in ACTIVATIONS:
        raise config.error("activation_function", " or ".join(ACTIVATIONS))
    width = config.size("d_model")
    if width % 2:
        raise config.error("d_model", "an even number")
    fields = {
        "width": width,
        "feed_forward": ACTIVATIONS[activation],
        "embedding_scale": config.flag("scale_embedding", scaled),
        "dropout": config.rate("dropout"),
        "attention_dropout": config.rate("attention_dropout"),
        "activation_dropout": config.rate("activation_dropout"),
        "max_positions": config.size("max_position_embeddings"),
        "norm_epsilon": 1e-5,  # PyTorch's default, which these classes do not change
        "attention_bias": True,
        "positions": "sinusoid",
        **own,
    }
    for ours, theirs in (
        ("layers", "{}_layers"),
        ("heads", "{}_attention_heads"),
        ("hidden", "{}_ffn_dim"),
    ):
        encoder, decoder = (
            config.size(theirs.format(side)) for side in ("encoder", "decoder")
        )
        fields[ours] = encoder
        if decoder != encoder:
            fields[f"decoder_{ours}"] = decoder
    for side in ("encoder", "decoder"):
        heads = fields.get(f"{side}_heads", fields["heads"])
        if width % heads:
            raise config.error(f"{side}_attention_heads", f"a divisor of {width}")
    return fields


# Fields that say nothing about translating, repeat another one, or are read with the
# tokenizer.
_INERT = (
    *("architectures", "model_type", "transformers_version", "_name_or_path"),
    *("dtype", "torch_dtype", "init_std", "use_cache", "gradient_checkpointing"),
    *("num_hidden_layers", "hidden_size", "num_attention_heads", "vocab_size"),
    *("src_vocab_size", "tgt_vocab_size", "id2label", "label2id", "_num_labels"),
    *("num_labels", "classif_dropout", "classifier_dropout", "problem_type"),
    *("task_specific_params", "tokenizer_class", "output_past"),
    *("use_bfloat16", "return_dict", "torchscript", "chunk_size_feed_forward"),
    *("attn_implementation", "_attn_implementation", "_from_model_config"),
    *("pad_token_id", "eos_token_id", "bos_token_id", "decoder_start_token_id"),
    *("bad_words_ids", "renormalize_logits", "force_bos_token_to_be_generated"),
    # The end of an output that reaches its limit; ours has none there.
    "forced_eos_token_id",
)

_SEARCH = ("num_beams", "length_penalty", "early_stopping", "max_length")

# Options of generation, and the value that stands for none.
_NEUTRAL = {
    "temperature": 1.0,
    "top_k": 50,
    "top_p": 1.0,
    "typical_p": 1.0,
    "repetition_penalty": 1.0,
    "encoder_repetition_penalty": 1.0,
    "num_beam_groups": 1,
    "num_return_sequences": 1,
    "max_length": 20,  # nobody set it
}


def search_fields(options: Fields) -> dict[str, Any]:
    """Reads fields of `config.decode` from generation_config.json or an older config.

    Raises:
      UserError: a field that changes the search has a value that ours cannot have.
    """
    beam = options.size("num_beams") if options.get("num_beams") else 1
    alpha = options.get("length_penalty", 1.0)
    if not isinstance(alpha, int | float) or not 0 <= alpha < math.inf:
        raise options.error("length_penalty", "a number of at least 0")
    stops = {False: "best", True: "first", "never": "best"}
    stop = options.get("early_stopping", False)
    if stop not in stops:
        raise options.error("early_stopping", 'true, false or "never"')
    return {
        "beam": beam,
        "alpha": float(alpha),
        "penalty": "length",
        "stop": stops[stop],
    }


def notes(folder: Folder) -> list[str]:
    """Lists what the original has besides, to be called after all has been read."""
    config, generation = folder.config, folder.generation
    found = [
        f"{side}_layerdrop={rate}: training here does not drop whole layers"
        for side in ("encoder", "decoder")
        if (rate := config.rate(f"{side}_layerdrop"))
    ]
    for fields in dict.fromkeys((config, generation)):
        # Search options of a config count only without a generation_config.json.
        elsewhere = (*generation.values, *_SEARCH) if fields is not generation else ()
        for name in (*_INERT, *elsewhere):
            fields.get(name)
        for name, value in fields.left().items():
            if value == _NEUTRAL.get(name):
                continue
            if name in ("max_length", "max_new_tokens"):
                found.append(
                    f"{name}={value} ended translations in the original; here, "
                    "config.decode.extra_length does"
                )
            else:
                found.append(
                    f"{fields.name} has {name}={json.dumps(value)}, which this import "
                    "does not know; it has no effect here"
                )
    return found


def languages(folder: Folder) -> tuple[str, str]:
    """Source and target in the tokenizer's settings; empty where they do not say."""
    get = folder.tokenizer.get
    return (
        get("source_lang") or get("src_lang", ""),
        get("target_lang") or get("tgt_lang", ""),
    )


def finish(
    request: Request,
    folder: Folder,
    model: dict[str, Any],
    vocabulary: Vocabulary,
    between: tuple[str, str],
    *,
    head: str = HEAD,
    stored_positions: bool = False,
    silent: Sequence[int] = (),
    more_notes: Sequence[str] = (),
) -> Imported:
    """Reads the weights and puts together what the parts of an import have found.

    Args:
      model: fields of `config.model`, from `model_fields`.
      between: the languages.
      head: as for `weight_rules`.
      stored_positions: the class adds a stored table of positions as it is.
      silent: tokens for `silence`.
      more_notes: of the format.

    Raises:
      UserError: as `read_weights`; or the user's fields contradict the model.
    """
    path = request.path
    tensors = read_tensors(path)
    if stored_positions:
        usual = from_config_dict({"model": model}).model
        if learned_positions(tensors, usual):
            model = model | {"positions": "learned", "options": {}}
    config = imported_config(
        *(request, folder.config.name, model, vocabulary, between),
        search_fields(folder.generation),
    )
    parameters = read_weights(tensors, config.model, vocabulary.sizes, str(path), head)
    if config.model.output_bias:
        parameters = silence(parameters, silent)
    peer = peer_arguments(path, vocabulary)
    all_notes = (*notes(folder), *more_notes)
    return Imported(config, vocabulary, parameters, peer, all_notes)


def own_vocabulary(folder: Folder) -> Vocabulary | None:
    """The vocabulary of an export of ours, which stores our tokenizers as well.

    Raises:
      UserError: it does not fit the config.
    """
    path, of_source = (
        folder.path / n for n in ("tokenizer.model", "source_tokenizer.model")
    )
    if not path.is_file():
        return None
    source = Vocabulary.load(of_source) if of_source.is_file() else None
    vocabulary = Vocabulary(path.read_bytes(), str(path), source)
    for field, token in (
        ("pad_token_id", vocabulary.pad),
        ("eos_token_id", vocabulary.eos),
        ("decoder_start_token_id", vocabulary.bos),
    ):
        if folder.merged().get(field) != token:
            raise folder.config.error(field, f"{token}, which {path.name} has")
    return vocabulary


def peer_arguments(path: Path, vocabulary: Vocabulary) -> dict[str, Any]:
    """The arguments of the peer script `huggingface.py` for the folder `path`."""
    bos, eos, pad = vocabulary.bos, vocabulary.eos, vocabulary.pad
    # A target's language token begins every line, so an empty one has nothing else.
    first = vocabulary.encode([""])[0]
    return {
        "model": str(path.absolute()),
        "start": bos,
        "eos": eos,
        "pad": vocabulary.source.pad,
        "forced_bos": first[0] if first else None,
        "never": never_generated(bos, eos, pad, vocabulary.never),
    }
