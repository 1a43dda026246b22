"""Hugging Face's translation models: what all classes share; M2M100, NLLB and Pegasus.

MarianMT is in `marian.py` and FSMT in `fairseq.py`. A reader of a class says how the
class computes; configs, search options and weights are read here.
"""

import json
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from t2t_jax.config import ModelConfig, from_config_dict
from t2t_jax.data.tokenizers.vocabulary import TOKENIZER_FILES, Vocabulary
from t2t_jax.io.errors import UserError
from t2t_jax.model.layers import Parameters
from t2t_jax.model.model import build
from t2t_jax.model.positions import Sinusoid
from t2t_jax.search.algorithm import never_generated
from t2t_jax.tools.bridges import weights
from t2t_jax.tools.bridges.formats import (
    NO_CHANGE,
    REPETITION,
    TENSOR2TENSOR,
    Imported,
    ImportFormat,
    Request,
    imported_config,
    languages,
    layerdrop_notes,
    load_vocabulary,
)
from t2t_jax.tools.bridges.model_files import Fields, recognizer
from t2t_jax.tools.bridges.tensor_files import read_tensors
from t2t_jax.tools.bridges.vocabularies.huggingface import (
    m2m100_vocabulary,
    nllb_vocabulary,
    pegasus_vocabulary,
)
from t2t_jax.tools.bridges.weights import FAIRSEQ, ROW, TableNames, TensorRule


class Folder(NamedTuple):
    """The JSON files of a model; `generation` is part of `config` in older ones."""

    path: Path
    config: Fields
    generation: Fields
    tokenizer: Fields

    def merged(self) -> dict[str, Any]:
        """The fields of config.json, with those of generation over them."""
        return {**self.config.values, **self.generation.values}


def open_folder(path: Path) -> Folder:
    """Reads the JSON files of a model's folder."""
    config = Fields.load(path / "config.json")
    # These change the model's class or the meaning of its weights.
    for field in ("auto_map", "quantization_config", "pruned_heads"):
        if config.get(field):
            raise config.error(field, "none; such a model cannot be imported")
    generation = Fields.load(path / "generation_config.json", required=False)
    if not generation.values:
        generation = config
    tokenizer = Fields.load(path / "tokenizer_config.json", required=False)
    return Folder(path, config, generation, tokenizer)


# Their names of activations that we have; theirs of `gelu` is exact, as ours is.
ACTIVATIONS = {"relu": "relu", "gelu": "gelu", "swish": "silu", "silu": "silu"}

# Their names of sizes, of each side.
SIZES = {"layers": "layers", "heads": "attention_heads", "hidden": "ffn_dim"}


def model_fields(
    config: Fields, *, scaled: bool, **class_fields: Any
) -> dict[str, Any]:
    """Reads the fields of `config.model` that all classes have.

    `scaled` is the class's default of `scale_embedding`, `class_fields` its own fields.
    """
    config.only(is_encoder_decoder=True, is_decoder=False)
    activation = config.choice("activation_function", ACTIVATIONS)
    width = config.size("d_model")
    if width % 2:
        raise config.error("d_model", "an even number")
    fields = {
        "width": width,
        "feed_forward": activation,
        "embedding_scale": config.flag("scale_embedding", scaled),
        "dropout": config.rate("dropout"),
        "attention_dropout": config.rate("attention_dropout"),
        "activation_dropout": config.rate("activation_dropout"),
        "max_positions": config.size("max_position_embeddings"),
        "norm_epsilon": 1e-5,  # PyTorch's default, which these classes do not change
        "attention_bias": True,
        "positions": "sinusoid",
        **class_fields,
    }
    for field, size_name in SIZES.items():
        fields[field] = config.size(f"encoder_{size_name}")
        if (decoder := config.size(f"decoder_{size_name}")) != fields[field]:
            fields[f"decoder_{field}"] = decoder
    for side in ("encoder", "decoder"):
        heads = fields.get(f"{side}_heads", fields["heads"])
        if width % heads:
            raise config.error(f"{side}_attention_heads", f"a divisor of {width}")
    return fields


# Fields that say nothing about translating, repeat another one, or are read with the
# tokenizer. `forced_eos_token_id` ends an output that reaches its limit; ours is cut.
_INERT = (
    "architectures", "model_type", "transformers_version", "_name_or_path", "dtype",
    "torch_dtype", "init_std", "use_cache", "gradient_checkpointing",
    "num_hidden_layers", "hidden_size", "num_attention_heads", "vocab_size",
    "src_vocab_size", "tgt_vocab_size", "id2label", "label2id", "_num_labels",
    "num_labels", "classif_dropout", "classifier_dropout", "problem_type",
    "task_specific_params", "tokenizer_class", "output_past", "use_bfloat16",
    "return_dict", "torchscript", "chunk_size_feed_forward", "attn_implementation",
    "_attn_implementation", "_from_model_config", "pad_token_id", "eos_token_id",
    "bos_token_id", "decoder_start_token_id", "bad_words_ids", "renormalize_logits",
    "force_bos_token_to_be_generated", "forced_eos_token_id",
)  # fmt: skip
_SEARCH = (
    "num_beams", "length_penalty", "early_stopping", "max_length",
    *REPETITION.values(),
)  # fmt: skip
# Options of generation, and the value that stands for none.
_NEUTRAL = {
    "temperature": 1.0,
    "top_k": 50,
    "top_p": 1.0,
    "typical_p": 1.0,
    "encoder_repetition_penalty": 1.0,
    "num_beam_groups": 1,
    "num_return_sequences": 1,
    "max_length": 20,  # nobody set it
}


def search_fields(options: Fields) -> dict[str, Any]:
    """Reads fields of `config.decode` from generation_config.json or older configs."""
    beam = options.size("num_beams") if options.get("num_beams") else 1
    alpha = options.get("length_penalty", 1.0)
    if not isinstance(alpha, int | float) or not 0 <= alpha < math.inf:
        raise options.error("length_penalty", "a number of at least 0")
    stops = {True: "first", False: "best", "never": "best"}
    stop = options.choice("early_stopping", stops, False)
    search = {"beam": beam, "alpha": float(alpha), "penalty": "length", "stop": stop}
    return search | {n: options.get(x, NO_CHANGE[n]) for n, x in REPETITION.items()}


def notes(folder: Folder) -> list[str]:
    """Lists what the original has besides, to be called after all has been read."""
    config, generation = folder.config, folder.generation
    remarks = layerdrop_notes(config)
    if (penalty := generation.get("repetition_penalty", 1)) != 1:
        remarks.append(
            f"repetition_penalty={penalty} changes logits here; the original's beam "
            "search changes log-probabilities, so some outputs differ"
        )
    for fields in dict.fromkeys((config, generation)):
        # Search options of a config count only without a generation_config.json.
        elsewhere = (*generation.values, *_SEARCH) if fields is not generation else ()
        for name in (*_INERT, *elsewhere):
            fields.get(name)
        for name, value in fields.unread().items():
            if value == _NEUTRAL.get(name):
                continue
            if name in ("max_length", "max_new_tokens"):
                remarks.append(
                    f"{name}={value} ended translations in the original; here, "
                    "extra_length does (translate --extra_length=N)"
                )
            else:
                remarks.append(
                    f"{fields.name} has {name}={json.dumps(value)}, which this import "
                    "does not know; it has no effect here"
                )
    return remarks


# ------------------- the weights, of which import and export use the same rules

SHARED, SOURCE, TARGET, HEAD = (
    "model.shared.weight",
    "model.encoder.embed_tokens.weight",
    "model.decoder.embed_tokens.weight",
    "lm_head.weight",
)
BIAS = "final_logits_bias"
POSITIONS = {
    side: f"model.{side}.embed_positions.weight" for side in ("encoder", "decoder")
}


def _tables(head: str) -> TableNames:
    return TableNames(SOURCE, TARGET, head, BIAS, POSITIONS, SHARED)


def weight_rules(config: ModelConfig, head: str = HEAD) -> list[TensorRule]:
    """The rules of a model; tied tables are stored once, under their first name."""
    return [
        *weights.table_rules(config, _tables(head), ROW),
        *weights.layer_rules(config, FAIRSEQ._replace(prefix="model.")),
    ]


def read_weights(
    tensors: weights.Tensors,
    config: ModelConfig,
    sizes: Sequence[int],
    name: str,
    head: str = HEAD,
) -> Parameters:
    """Reads the parameters of a model from its file."""
    tensors = dict(tensors)
    if config.tied == "none" and (shared := tensors.pop(SHARED, None)) is not None:
        # Before version 5, both sides shared it whatever the output layer did.
        tensors.setdefault(SOURCE, shared)
        tensors.setdefault(TARGET, shared)
    hint = "set tie_word_embeddings=false in config.json if they are not"
    weights.merge_copies(tensors, _tables(head), config.tied, name, hint)
    if config.output_bias:  # a file without it means zeros
        tensors.setdefault(BIAS, np.zeros((1, sizes[0]), np.float32))
    if config.positions == "sinusoid":
        _drop_sinusoids(tensors, config, name)
    return weights.read(
        weight_rules(config, head), tensors, build(config, *sizes), name
    )


def _is_sinusoids(table: np.ndarray, config: ModelConfig) -> bool:
    sinusoid = config.own_options(Sinusoid)
    # Rows before the first position, such as that of padding, are not used.
    return table.shape[1:] == (config.width,) and weights.is_sinusoids(
        table,
        sinusoid.sinusoid_layout,
        sinusoid.sinusoid_spacing,
        sinusoid.position_offset,
    )


def _drop_sinusoids(tensors: dict, config: ModelConfig, name: str) -> None:
    """Removes stored tables of sinusoids; raises UserError if they are not ours."""
    for stored in POSITIONS.values():
        for spelled in (stored, f"{stored}s"):  # fairseq's is `weights`
            if spelled in tensors and not _is_sinusoids(tensors.pop(spelled), config):
                raise UserError(
                    f"{name}: {spelled} is not the table of sinusoids that this class "
                    "computes; such positions cannot be imported"
                )


# Beside other logits, exp(-100) is 0 in float32. With -1e9, the loss of a model that is
# trained further would be that token's share of the label smoothing, and nothing else.
SILENT = -100.0


def silence(parameters: Parameters, tokens: Sequence[int] = ()) -> Parameters:
    """Gives tokens a logit of about `SILENT`, and no token a lower bias than that.

    The other probabilities then add up to 1, as where such a token does not exist.
    """
    embedding = dict(parameters["embedding"])
    bias = np.maximum(embedding["output_bias"], SILENT)
    bias[list(tokens)] = SILENT
    return {**parameters, "embedding": {**embedding, "output_bias": bias}}


# ------------------------------------------------------------ what all readers end in


def stored_languages(folder: Folder) -> tuple[str, str]:
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
    pair: tuple[str, str],
    *,
    head: str = HEAD,
    stored_positions: bool = False,
    silent: Sequence[int] = (),
) -> Imported:
    """Reads the weights and puts together what the parts of an import have found.

    `stored_positions`: the class adds a stored table of positions as it is. `silent`:
    tokens for `silence`.
    """
    path = request.path
    tensors = read_tensors(path)
    if stored_positions:
        usual = from_config_dict({"model": model}).model
        # Marian and Pegasus compute positions only if their files store none.
        stored = [tensors.get(name) for name in POSITIONS.values()]
        if not any(x is None or _is_sinusoids(x, usual) for x in stored):
            model = model | {"positions": "learned", "options": {}}
    config = imported_config(
        request,
        folder.config.name,
        model,
        vocabulary,
        pair,
        search_fields(folder.generation),
    )
    parameters = read_weights(tensors, config.model, vocabulary.sizes, str(path), head)
    if config.model.output_bias:
        parameters = silence(parameters, silent)
    # A target's language token begins every line, so an empty one has nothing else.
    target_prefix = vocabulary.encode([""])[0]
    peer = {
        "model": str(path.absolute()),
        "start": vocabulary.bos,
        "eos": vocabulary.eos,
        "pad": vocabulary.source.pad,
        "forced_bos": target_prefix[0] if target_prefix else None,
        "never": never_generated(vocabulary),
    }
    return Imported(config, vocabulary, parameters, peer, (*notes(folder),))


def class_format(
    name: str, model_type: str, read: Callable[[Request], Imported]
) -> ImportFormat:
    """The format of a class, whose folders name its `model_type`."""
    return ImportFormat(
        name, recognizer("model_type", model_type), read, peer="huggingface"
    )


def own_vocabulary(folder: Folder) -> Vocabulary | None:
    """The vocabulary of an export of ours, which stores our tokenizers as well."""
    target_path, source_path = (folder.path / name for name in TOKENIZER_FILES)
    if not target_path.is_file():
        return None
    vocabulary = load_vocabulary(
        target_path, source_path if source_path.is_file() else None
    )
    for field, token in (
        ("pad_token_id", vocabulary.pad),
        ("eos_token_id", vocabulary.eos),
        ("decoder_start_token_id", vocabulary.bos),
    ):
        if folder.merged().get(field) != token:
            raise folder.config.error(field, f"{token}, which {target_path.name} has")
    return vocabulary


def after_padding(config: Fields, size: int) -> dict[str, Any]:
    """The options of sinusoids whose positions are numbered from after padding."""
    padding = config.token("pad_token_id", size, 1)
    return {**TENSOR2TENSOR, "position_offset": padding + 1}


# Of old versions, which had these as options.
_PRE_NORM = {
    "normalize_before": True,
    "normalize_embedding": False,
    "add_final_layer_norm": True,
    "static_position_embeddings": True,
}


# -------------------- M2M100 and NLLB, which are one class with two tokenizers

# Their classes of tokenizers; "Fast" ones have the same files.
_TOKENIZERS = {"M2M100Tokenizer": m2m100_vocabulary, "NllbTokenizer": nllb_vocabulary}


def read_m2m100(request: Request) -> Imported:
    """Reads a folder; raises UserError for all that has no exact counterpart."""
    folder = open_folder(request.path)
    config = folder.config
    config.only(**_PRE_NORM)
    options = after_padding(config, config.size("vocab_size"))
    tied = "all" if config.flag("tie_word_embeddings", True) else "none"
    model = model_fields(config, scaled=True, norm="pre", tied=tied, options=options)
    pair = languages(request, stored_languages(folder), several=True)
    # NLLB's tokens are in the SentencePiece model alone.
    joined = (folder.path / "vocab.json").is_file()
    default = "M2M100Tokenizer" if joined else "NllbTokenizer"
    kind = folder.tokenizer.get("tokenizer_class", default).removesuffix("Fast")
    if kind not in _TOKENIZERS:
        raise folder.tokenizer.error("tokenizer_class", " or ".join(_TOKENIZERS))
    # True puts the language after the end.
    folder.tokenizer.only(legacy_behaviour=False)
    vocabulary = _TOKENIZERS[kind](request.path, folder.merged(), *pair)
    # The language of the target decides, whatever the folder was saved with.
    folder.generation.get("forced_bos_token_id")
    return finish(request, folder, model, vocabulary, pair)


M2M100 = class_format("M2M100 or NLLB of Hugging Face", "m2m_100", read_m2m100)


# ------------ Pegasus: summaries, and models of ours with normalization first


def read_pegasus(request: Request) -> Imported:
    """Reads a folder; raises UserError for all that has no exact counterpart."""
    folder = open_folder(request.path)
    config = folder.config
    config.only(**_PRE_NORM)
    folder.generation.only(forced_bos_token_id=None)
    config.size("vocab_size")
    model = model_fields(
        config,
        scaled=False,
        norm="pre",
        tied="all" if config.flag("tie_word_embeddings", True) else "none",
        output_bias=True,
        options={"sinusoid_layout": "half"},
    )
    # A summary has the language of its document.
    guessed = ("document", "summary")
    pair = languages(request, stored_languages(folder), guessed)
    vocabulary = own_vocabulary(folder) or pegasus_vocabulary(
        request.path, folder.merged()
    )
    return finish(request, folder, model, vocabulary, pair, stored_positions=True)


PEGASUS = class_format("Pegasus of Hugging Face", "pegasus", read_pegasus)
