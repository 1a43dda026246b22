"""The whole search as programs for CPU, NVIDIA GPU and TPU, through `jax.export`.

A program encodes the sources and runs beam search to its end. Its batch size is
symbolic. The width of its sources is fixed, because tables of positions and of the
length penalty are constants of that size; so there is a program for each bucket of
`decoding/batches.py`, for beam search and for greedy search. The parameters are inputs
of all of them, in one file of NumPy.

Shape suffixes: b batch rows, s source, n hypotheses, t target.
"""

import datetime
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import jaxlib
import numpy as np
from flax import nnx
from jax import Array, export

from t2t_jax.config import DecodeConfig
from t2t_jax.data.tokenizers.vocabulary import TOKENIZER_FILES, Vocabulary
from t2t_jax.decoding.batches import SHORTEST, bucket_for, longest_output
from t2t_jax.decoding.constraints import Constraints, Phrases
from t2t_jax.decoding.inputs import longest_source
from t2t_jax.decoding.search_options import beam_search_algorithm
from t2t_jax.decoding.translator import Translator
from t2t_jax.io.errors import UserError
from t2t_jax.model import kernels
from t2t_jax.model.architecture import step_logits
from t2t_jax.model.mask import Tokens
from t2t_jax.model.model import Model
from t2t_jax.search.beam import BeamSearch
from t2t_jax.search.rules import Rules
from t2t_jax.tools.bridges import weights
from t2t_jax.tools.bridges.checks.agreement import float32
from t2t_jax.tools.bridges.exports.card import origin, write_own
from t2t_jax.tools.bridges.formats import REPETITION, ExportFormat

FORMAT, VERSION = "t2t_jax-stablehlo", 1
ABOUT, PARAMETERS = "export.json", "parameters.npz"
PLATFORMS = ("cpu", "cuda", "tpu")
MONTHS = 6  # for which jax.export promises that newer versions load a program


def write(
    translator: Translator, folder: Path, options: dict[str, Any]
) -> dict[str, Any]:
    """Writes programs, parameters and tokenizers; returns the options of the search."""
    if not translator.model.has_source:
        raise UserError(
            f"config.model.kind={translator.config.model.kind!r} has no source, and "
            "the exported search begins with one; use such a model from its workdir, "
            "by translate or t2t_jax.Translator"
        )
    if not translator.model.generates:
        raise UserError(
            f"config.model.kind={translator.config.model.kind!r} does not generate "
            "text, so there is no search to export; want a kind with encode and step"
        )
    # bfloat16 is slow or missing on some of the platforms.
    search = {name: options[name] for name in ("beam", "alpha") if name in options}
    translator = float32(translator).with_options(**search)
    decode = translator.config.decode
    programs = _write_programs(translator, folder)
    flat = weights.flatten(translator.parameters)
    np.savez(folder / PARAMETERS, **{name: np.asarray(x) for name, x in flat.items()})
    about, use = _about(translator, programs), _use(translator)
    kind = "a search of t2t_jax as programs of JAX"
    write_own(translator, folder / ABOUT, about, kind, use, options)
    job: dict[str, Any] = {"search": _search_options(decode)}
    if not _has_text(translator.vocabulary):
        job["checks"] = ["greedy"]  # ids alone
    return job


def _has_text(vocabulary: Vocabulary) -> bool:
    """True if SentencePiece alone encodes and decodes text."""
    return not any(side.model.startswith(b"{") for side in vocabulary.sides)


def _search_options(decode: DecodeConfig) -> dict[str, Any]:
    names = "beam", "alpha", "penalty", "stop", *REPETITION
    return {name: getattr(decode, name) for name in names}


def _write_programs(translator: Translator, folder: Path) -> list[dict[str, Any]]:
    """Exports a program for each bucket, for the beam of `config.decode` and for 1.

    Returns the file of each, its beam, the width of its sources and the longest output.
    """
    config, model = translator.config, translator.model
    widths = [SHORTEST]
    while widths[-1] < bucket_for(longest_source(config, model)[0]):
        widths.append(2 * widths[-1])
    programs = []
    for beam in sorted({1, config.decode.beam}):
        for width in widths:
            target = longest_output(width, config.decode)
            name = f"beam_{beam}_source_{width}.jax_export"
            exported = export_search(translator, beam, width, target)
            (folder / name).write_bytes(exported.serialize())
            programs.append(
                {"file": name, "beam": beam, "source": width, "target": target}
            )
    return programs


def export_search(
    translator: Translator, beam: int, width: int, max_length: int
) -> export.Exported:
    """Exports `search_function` for sources of one width and any number of rows."""
    vocabulary = translator.vocabulary
    options = translator.config.decode.override(beam=beam)
    algorithm = beam_search_algorithm(options, vocabulary)
    # Languages of the target, which every translation begins with.
    prefix = vocabulary.encode([""])[0]
    rules = Phrases(vocabulary).rules([Constraints((*prefix,))], 1, max_length)
    search = search_function(translator.model, algorithm, max_length, rules)
    (rows,) = export.symbolic_shape("rows")
    int_b = jax.ShapeDtypeStruct((rows,), jnp.int32)
    source_bs = jax.ShapeDtypeStruct((rows, width), jnp.int32)
    # Fused kernels are those of the exporting machine. Products are exact float32,
    # since GPUs and TPUs round the inputs of others to fewer bits.
    with kernels.disabled(), jax.default_matmul_precision("highest"):
        return export.export(jax.jit(search), platforms=PLATFORMS)(
            weights.flatten(translator.model.shapes), source_bs, int_b, int_b
        )


def search_function(
    model: Model, algorithm: BeamSearch, max_length: int, rules: Rules | None
) -> Callable[..., dict[str, Array]]:
    """Returns the function that is exported; `rules` are those of every sentence."""

    def search(
        parameters: dict[str, Array], source_bs: Array, length_b: Array, limit_b: Array
    ) -> dict[str, Array]:
        """Finds the best translation of each row; rows of length 0 have none.

        Args:
          parameters: by their flat names.
          source_bs: int32, ids with the end of sentence; anything after it.
          length_b: int32, the numbers of these ids.
          limit_b: int32, the longest outputs in tokens with the end.
        """
        module = nnx.merge(model.definition, weights.nest(parameters, model.shapes))
        rows, width = source_bs.shape
        position_bs = jnp.broadcast_to(jnp.arange(width), source_bs.shape)
        # An empty row has one token too, so that attention has a key.
        segment_bs = position_bs < jnp.maximum(length_b, 1)[:, None]
        source = Tokens(segment_bs.astype(jnp.int32), position_bs)
        source_bs = jnp.where(segment_bs, source_bs, 0)
        memory = module.encode(source_bs, source)

        def step(cache, token_bn, position):
            return step_logits(module, memory, cache, token_bn, position)

        batch_rules = rules and rules._replace(
            prefix_bt=jnp.broadcast_to(rules.prefix_bt, (rows, max_length)),
            start_bc=jnp.broadcast_to(
                rules.start_bc, (rows, *rules.start_bc.shape[1:])
            ),
            **{
                name: jnp.asarray(getattr(rules, name))
                for name in ("next_sv", "refused_sv", "closer_sv", "distance_s")
            },
        )
        cache = module.initial_cache(memory, algorithm.rows, max_length)
        state = algorithm.start(cache, limit_b, batch_rules, max_length=max_length)
        state = algorithm.advance(step, state, 0, max_length, batch_rules, length_b > 0)
        result = algorithm.result(state, batch_rules)
        # The best hypothesis alone.
        return {
            "tokens": result.tokens_bnt[:, 0],
            "length": result.length_bn[:, 0],
            "score": result.score_bn[:, 0],
            "log_prob": result.log_prob_bn[:, 0],
            "ended": result.ended_bn[:, 0],
        }

    return search


def _about(translator: Translator, programs: list[dict[str, Any]]) -> dict[str, Any]:
    vocabulary, today = translator.vocabulary, datetime.date.today()
    return {
        "format": FORMAT,
        "format_version": VERSION,
        "short_lived": (
            f"jax.export promises that versions of jax up to {MONTHS} months newer "
            "load these programs; after that, export again"
        ),
        "exported": today.isoformat(),
        "versions": {"jax": jax.__version__, "jaxlib": jaxlib.__version__},
        "platforms": [*PLATFORMS],
        **origin(translator),
        "search": _search_options(translator.config.decode),
        "extra_length": translator.config.decode.extra_length,
        "source": {
            "tokenizer": TOKENIZER_FILES[0 if vocabulary.joint else 1],
            "first": vocabulary.source.encode([""])[0],
            "eos": vocabulary.source.eos,
        },
        "target": {
            "tokenizer": TOKENIZER_FILES[0],
            "special": sorted({vocabulary.pad, vocabulary.bos, vocabulary.eos}),
        },
        "parameters": PARAMETERS,
        "programs": programs,
    }


# Of README.md: all that a translator needs.
LOADER = """\
import json, jax, jax.export, numpy as np, sentencepiece
about = json.load(open("export.json"))
parameters = jax.device_put(dict(np.load(about["parameters"])))
load = sentencepiece.SentencePieceProcessor
source, target = (load(about[side]["tokenizer"]) for side in ("source", "target"))
programs = [p for p in about["programs"] if p["beam"] == about["search"]["beam"]]
read = lambda file: jax.jit(jax.export.deserialize(open(file, "rb").read()).call)
searches = {p["source"]: read(p["file"]) for p in programs}
def translate(line):
    ids = about["source"]["first"] + source.encode(line)
    ids = ids[: max(searches) - 1] + [about["source"]["eos"]]
    width = min(width for width in searches if width >= len(ids))
    row = np.array([ids + [0] * (width - len(ids))], np.int32)
    length = np.array([len(ids)], np.int32)
    found = searches[width](parameters, row, length, length + about["extra_length"])
    tokens = found["tokens"][0, : found["length"][0]].tolist()
    return target.decode([i for i in tokens if i not in about["target"]["special"]])
"""

FILES = """\
**Short-lived**: jax.export promises that versions of jax up to {months} months newer
load these programs. Made with jax {jax} on {today}. After that, export again from the
workdir, or from an export to safetensors.

- `*.jax_export`: encoder and beam search as one program, for {platforms}.
  One for each width of the sources and each beam; each takes any number of rows.
  Beam 1 is greedy search. Options of the search:
  {search}.
  All platforms compute in float32, without rounding products to fewer bits.
- `{parameters}`: the parameters, an input of every program.
- `{about}`: shapes, versions, and what the model was made from.
- `{tokenizers}`: the tokenizers.

Inputs: the parameters by name; int32 ids with the end of sentence [rows, width]; the
number of ids of each row; the most tokens of its translation, end included. Outputs, of
the best translation of each row: `tokens` [rows, longest], `length`, `log_prob`,
`score` (log_prob / length penalty), `ended` (False if it reached the limit).

"""

OF_TEXT = """\
A program is compiled when the first line of its width comes. U+2581, U+F8FE and U+F8FD
have a meaning of their own in tokenizers trained by t2t_jax: they may change.

```python
{loader}print(translate("A line of text."))
```
"""

OF_IDS = """\
`{tokenizers}` is a tokenizer of t2t_jax that SentencePiece does not read. Encode and
decode with `t2t_jax.data.tokenizers.vocabulary.Vocabulary`, or with the original
model's tokenizer.
"""


def _use(translator: Translator) -> str:
    vocabulary = translator.vocabulary
    options = _search_options(translator.config.decode)
    text = FILES + (OF_TEXT if _has_text(vocabulary) else OF_IDS)
    return text.format(
        months=MONTHS,
        jax=jax.__version__,
        today=datetime.date.today(),
        platforms=", ".join(PLATFORMS),
        search=", ".join(f"{name} {value}" for name, value in options.items()),
        parameters=PARAMETERS,
        about=ABOUT,
        tokenizers="`, `".join(TOKENIZER_FILES[: len(vocabulary.sides)]),
        loader=LOADER,
    )


EXPORT = ExportFormat(
    "the search as programs of JAX for CPU, GPU and TPU",
    write,
    "stablehlo",
    options=("beam", "alpha"),
)
