"""Imports a published model: read, compared with the original, stored as a workdir.

The workdir has one checkpoint, of step 0, and `imported.json`: the files it came from,
what was compared, and the notes. The command is `import_command.py`.
"""

import dataclasses
from pathlib import Path
from typing import Any

import jax
from etils import epath

from t2t_jax import __version__
from t2t_jax import config as fields
from t2t_jax.data.text_files import file_hash
from t2t_jax.decoding.translator import Translator
from t2t_jax.extensions.decoding.saving import check_free, store
from t2t_jax.io.errors import UserError
from t2t_jax.io.messages import say, waiting
from t2t_jax.model.model import build
from t2t_jax.tools.bridges.checks import agreement, peer_process
from t2t_jax.tools.bridges.formats import (
    NO_CHANGE,
    Imported,
    ImportFormat,
    Request,
    find_format,
)
from t2t_jax.tools.bridges.table import IMPORTS
from t2t_jax.workdir import Workdir

STEP = 0  # of the checkpoint: no training has happened here


def import_model(
    model: Request | epath.PathLike,
    workdir: Workdir | epath.PathLike,
    name: str = "",
    **stated: Any,
) -> Translator:
    """Imports a published model into a new workdir, as the command `import` does.

    Args:
      model: a folder or a file; or a `Request`, which has all that `stated` has.
      name: of a format in `IMPORTS`; recognized by the files if empty.
      stated: what the files do not say: `source` and `target` (languages), `tokenizer`
        and `source_tokenizer` (files), `model` (a dict of fields of `config.model`).

    Raises:
      UserError: the workdir is in use, the model cannot be read exactly, or it does not
        compute what the original computes. Then nothing is written.
    """
    request = model if isinstance(model, Request) else Request(model, **stated)
    request, workdir = request.located(), Workdir.open(workdir)
    check_free(workdir)
    name, form = chosen_format(request.path, name)
    check_request(request, name, form)
    say(f"reading {request.path} as {form.name}")
    imported = form.read(request)
    config, vocabulary = imported.config, imported.vocabulary
    model = build(config.model, *vocabulary.sizes)
    translator = Translator(config, vocabulary, model, imported.parameters, (STEP,))
    compared = compare(translator, imported, form, request)
    facts = {
        "format": name,
        "files": _hashes(request),
        "t2t_jax": __version__,
        "compared": compared,
        "notes": [*imported.notes],
    }
    store(workdir, translator, config, facts)
    report(workdir, translator, imported)
    return translator


# File of an export that no format reads -> what the export is for.
ONE_WAY = {
    "model.bin": "CTranslate2",
    "parameters.npz": "StableHLO",
}


def chosen_format(path: Path, name: str) -> tuple[str, ImportFormat]:
    """The format of a path: the one that is named, or the first that recognizes it."""
    if not path.exists():
        raise UserError(f"--model={path} does not exist; want a folder or a file")
    if name:
        return name, find_format("format", name, IMPORTS)
    for name, form in IMPORTS.items():
        if form.recognize(path):
            return name, form
    workdir = Workdir(path)
    if workdir.has_run() and workdir.checkpoints.exists():
        raise UserError(
            f"--model={path} is a workdir already, which needs no import; use it as "
            f"--workdir={path}"
        )
    for file, export in ONE_WAY.items():
        if (path / file).is_file():
            raise UserError(
                f"--model={path} has {file}, as exports for {export} have, which are "
                "not read back; want an export with --format=safetensors or "
                "--format=huggingface, or the workdir that it was made from"
            )
    formats = ", ".join(f"{name} ({form.name})" for name, form in IMPORTS.items())
    raise UserError(
        f"--model={path} is not a model of a known format: {formats}. Give the folder "
        "with the model's config, weights and tokenizer, or name its --format"
    )


def check_request(request: Request, name: str, form: ImportFormat) -> None:
    """Refuses what the user says and the format does not read."""
    for field, value in request._asdict().items():
        if field != "path" and field not in form.reads and value:
            flag = f"config.model.{next(iter(value))}" if field == "model" else field
            raise UserError(
                f"--{flag} has no effect with --format={name}, whose files state it; "
                "leave it out"
            )


def compare(
    translator: Translator,
    imported: Imported,
    form: ImportFormat,
    request: Request,
) -> dict[str, Any]:
    """Compares logits and greedy translations with the original's, on random input."""
    if form.peer is None and form.checked:  # `read` has compared all values
        say(f"the values are those of the original: {form.checked}")
        return {"values": form.checked}
    if form.peer is None:
        return _not_compared(f"there is no library here that reads {form.name}")
    if missing := peer_process.missing_packages(form.peer):
        return _not_compared(
            f"{' and '.join(missing)} not installed; pip install 't2t_jax[peers]' and "
            "import again"
        )
    translator = agreement.float32(translator).with_options(
        extra_length=agreement.LONGEST, alpha=0.0, **NO_CHANGE
    )
    job = {"model": str(request.path.absolute()), **imported.peer}
    sources, _ = agreement.random_pairs(translator)
    limits = [len(source) + agreement.LONGEST for source in sources]
    # GPUs and TPUs would round the inputs of float32 products.
    exact = jax.default_matmul_precision("highest")
    with exact, waiting(f"comparing with {form.name}"):
        logits = agreement.check_logits(translator, form.peer, **job)
        greedy = agreement.check_greedy(translator, form.peer, sources, limits, **job)
    say(f"{logits}; {greedy}")
    if not (logits.agrees and greedy.agrees):
        raise UserError(
            f"the imported model does not compute what {request.path} does: {logits}; "
            f"{greedy}. Nothing was written. Please report this with the model's config"
        )
    return {"logits": logits._asdict(), "greedy": dataclasses.asdict(greedy)}


def _not_compared(reason: str) -> dict[str, Any]:
    say(f"warning: nothing was compared with the original: {reason}")
    return {"not_compared": reason}


def report(workdir: Workdir, translator: Translator, imported: Imported) -> None:
    """Says what was imported, and which fields differ from the paper's."""
    say(f"imported {translator!r} to {workdir}")
    unusual = [
        f"{name}={value!r}"
        for name, value in fields.unusual(imported.config).items()
        if name.startswith("model.")
    ]
    say(f"differs from the paper's base model: {', '.join(unusual) or 'in no field'}")
    for note in imported.notes:
        say(f"note: {note}")


def _hashes(request: Request) -> dict[str, str]:
    """The SHA-256 of each file of a model: of its folder, and the user's tokenizers."""
    path = request.path
    folder = path if path.is_dir() else path.absolute().parent
    files = {file.name: file for file in sorted(folder.iterdir()) if file.is_file()}
    for tokenizer in (request.tokenizer, request.source_tokenizer):
        if tokenizer and tokenizer.absolute().parent != folder.absolute():
            files[str(tokenizer)] = tokenizer
    return {name: file_hash(file) for name, file in files.items()}
