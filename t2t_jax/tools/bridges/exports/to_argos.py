"""Export to Argos Translate and LibreTranslate: a package, `.argosmodel`.

A package is a zip archive of a folder with `metadata.json`, a CTranslate2 model in
`model/` and one `sentencepiece.model` of both languages.
"""

import json
import shutil
from pathlib import Path
from typing import Any

from t2t_jax.data.tokenizers.sentencepieces import lossless
from t2t_jax.decoding.translator import Translator
from t2t_jax.extensions.text.language_names import language_name
from t2t_jax.io.errors import UserError
from t2t_jax.text.languages import identify
from t2t_jax.tools.bridges.exports import to_ctranslate2
from t2t_jax.tools.bridges.exports.card import card, direction, translates, write_files
from t2t_jax.tools.bridges.formats import ExportFormat, repetition_fields

VERSION = "1.0"  # of the package
SEARCH = {"beam": 4, "alpha": 0.2}  # Argos Translate's own
LONGEST = 1_024  # tokens that it reads of a sentence, whatever the model says
# Its codes that are not those of ISO 639.
CODES = {("zh", "Hant"): "zt", ("pt", "BR"): "pb"}

_USE = """\
```python
from argostranslate import package, translate

package.install_from_path("{package}")
print(translate.translate("A sentence.", "{source}", "{target}"))
```

LibreTranslate, in its own environment, installs packages by the same call. Both split
text into sentences by a model of the source language, which they download at the first
translation; for a machine without network, put MiniSBD's into the package as
`{name}/minisbd/{source}.onnx`.
"""
_DIFFERENCES = (
    "Argos Translate searches with a beam of 4 and log-probabilities divided by "
    "length^0.2, and cuts translations at 256 tokens.",
    "It shows an underscore, and the sign U+2581, as a space.",
    "On a CPU it rounds weights to 8 bits, unless ARGOS_COMPUTE_TYPE=float32 is set; "
    "LibreTranslate takes them as they are stored.",
)


def write(
    translator: Translator, folder: Path, options: dict[str, Any]
) -> dict[str, Any]:
    """Writes the package and a README.md, which is in the package, too."""
    check(translator)
    data, vocabulary = translator.config.data, translator.vocabulary
    codes = [_code(language) for language in (data.source, data.target)]
    name = f"translate-{'_'.join(codes)}-{VERSION.replace('.', '_')}"
    content, package = folder / name, f"{name}.argosmodel"
    (content / "model").mkdir(parents=True)
    quantization = options.get("quantization") or "float32"
    to_ctranslate2.save(translator, content / "model", quantization, LONGEST + 2)
    metadata = {"package_version": VERSION, "argos_version": "1.11", "links": []}
    for end, code, language in zip(
        ("from", "to"), codes, (data.source, data.target), strict=True
    ):
        metadata |= {f"{end}_code": code, f"{end}_name": language_name(language)}
    use = _USE.format(package=package, name=name, source=codes[0], target=codes[1])
    heading = f"{direction(translator)}, for Argos Translate"
    differences = _DIFFERENCES
    if refused := repetition_fields(translator.config.decode):
        differences += (f"It does not avoid repetitions ({', '.join(refused)}).",)
    text = card(translator, heading, use, differences, options.get("scores"))
    write_files(folder, {"README.md": text.encode()})
    files = {
        "README.md": text.encode(),
        "metadata.json": json.dumps(metadata, indent=2).encode(),
        "sentencepiece.model": vocabulary.model,
    }
    write_files(content, files)
    archive = shutil.make_archive(str(content), "zip", folder, name)
    Path(archive).rename(folder / package)
    shutil.rmtree(content)
    return {"search": SEARCH}


def check(translator: Translator) -> None:
    """Raises UserError for a model that no package can hold."""
    config, vocabulary = translator.config, translator.vocabulary
    model, problem = config.model, ""
    if not translates(translator):
        problem = f"config.task.kind={config.task.kind!r}; want translation in one "
        problem += "direction, without tags in the text"
    elif model.positions == "learned" and model.max_positions < LONGEST + 2:
        problem = f"config.model.max_positions={model.max_positions}; Argos Translate "
        problem += f"reads sentences of up to {LONGEST:,} tokens"
    elif not vocabulary.joint:
        problem = "there are two vocabularies; a package has one sentencepiece.model"
    elif vocabulary.model.startswith(b"{") or not lossless(vocabulary.model):
        problem = f"{vocabulary.name} is not a SentencePiece model of t2t_jax, to "
        problem += "which Argos Translate could give text as it is"
    if problem:
        raise UserError(f"{problem}; --to=ctranslate2 holds such a model")


def _code(language: str) -> str:
    identity = identify(language)
    special = {"zh": identity.script, "pt": identity.region}.get(identity.code, "")
    return CODES.get((identity.code, special), identity.code)


EXPORT = ExportFormat("Argos Translate", write, "argos", options=("quantization",))
