"""README.md of an export to CTranslate2: how to translate, and its provenance."""

import json
from typing import Any

from t2t_jax.data.tokenizers.vocabulary import Vocabulary
from t2t_jax.decoding.translator import Translator
from t2t_jax.tools.bridges.exported_files import direction
from t2t_jax.workdir import TOKENIZERS


def readme(translator: Translator, peer: dict[str, Any]) -> str:
    """Returns the text.

    Args:
      peer: as `to_ctranslate2.write` returns it.
    """
    decode = translator.config.decode
    arguments = {
        "beam_size": decode.beam,
        "length_penalty": 0.0 if decode.penalty == "none" else decode.alpha,
        # Ours searches on while a better hypothesis is possible; with twice as many
        # finished ones as usual, hardly any translation differs.
        "patience": 2 if decode.stop == "best" else 1,
        "max_input_length": peer["max_input_length"],
        "max_decoding_length": f"max(map(len, sources)) + {decode.extra_length + 1}",
        "min_decoding_length": 0,
    }
    if peer["target_prefix"]:
        prefix = json.dumps([peer["target_prefix"]], ensure_ascii=False)
        arguments["target_prefix"] = f"{prefix} * len(sources)"
    return _README.format(
        direction=direction(translator),
        quantization=peer["quantization"],
        tokenizer=_tokenizer_code(translator.vocabulary, peer["tokenizer"]),
        arguments="".join(f"    {name}={x},\n" for name, x in arguments.items()),
        prefix=_PREFIX if peer["target_prefix"] else "",
        penalty=decode.penalty,
        provenance=json.dumps(translator.provenance(), indent=2),
    )


def _tokenizer_code(vocabulary: Vocabulary, described: dict[str, Any] | None) -> str:
    """Python code that defines `encode(line)` and `decode(pieces)`.

    Args:
      described: as `tokenizer_files` describes the vocabulary.
    """
    if described is None:
        of_target, of_source = TOKENIZERS
        source = f'Vocabulary.load("{of_source}")'
        if vocabulary.joint:
            source = "target.source"
        return _OURS.format(of_target=of_target, source=source)
    return _PIECES.format(described=json.dumps(described, ensure_ascii=False))


_README = """\
# {direction}, for CTranslate2

Weights: {quantization}. Needs `pip install ctranslate2 sentencepiece`. In a script in
this folder, run there, with `lines` of text:

```python
{tokenizer}
import ctranslate2

translator = ctranslate2.Translator(".")
sources = [encode(line) for line in lines]
results = translator.translate_batch(
    sources,
{arguments})
print(*(decode(result.hypotheses[0]) for result in results), sep="\\n")
```

- CTranslate2 adds the end of the source itself (`add_source_eos`).
{prefix}- Padding, beginning and tokens that the model must not generate have a bias of
  -60,000, so that no search finds them.
- CTranslate2 divides log-probabilities by length^`length_penalty`; the model was
  searched with the penalty `{penalty}`, so lengths may differ a little.
- `return_attention=True` returns the attention to the source of the layer that aligns
  words best, averaged over its heads.
- t2t_jax translates a line without a visible character as an empty line.

## Provenance

Written by t2t_jax.

```json
{provenance}
```
"""
_PREFIX = """\
- Every translation begins with the tokens of `target_prefix`, which name the language.
  `decode` leaves them out.
"""
_PIECES = """\
from pieces import Pieces  # pieces.py is in this folder

text = Pieces(".", {described})
encode, decode = text.encode, text.decode
"""
_OURS = """\
from t2t_jax.data.tokenizers.vocabulary import Vocabulary

# Byte-pair codes and Moses; needs t2t_jax.
target = Vocabulary.load("{of_target}")
source = {source}
ids = {{target.piece(i): i for i in range(len(target))}}
encode = source.pieces

def decode(pieces):
    return target.decode([[ids[piece] for piece in pieces]])[0]
"""
