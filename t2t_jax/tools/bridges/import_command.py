"""Imports a published model: `python -m t2t_jax import --model=PATH --workdir=DIR`.

PATH is a folder as it is published, or a file. The model is read, compared with the
original and stored as an ordinary workdir: translate, score, evaluate, or start
training from it with --config=finetune:DIR. It has one checkpoint, of step 0, and
`imported.json`: the files it came from, what was compared, and the notes.
"""

import sys
from pathlib import Path
from typing import Any

import ml_collections
from absl import flags
from ml_collections import config_flags

from t2t_jax import config as fields
from t2t_jax.commands.config_files import given_fields
from t2t_jax.io.errors import UserError
from t2t_jax.io.locations import is_local
from t2t_jax.sections import table_names
from t2t_jax.workdir import Workdir


def define_flags():
    string = flags.DEFINE_string
    formats = ", ".join(table_names("tools.bridges.table.IMPORTS"))
    string("model", None, "The model: a folder or a file.", required=True)
    string("workdir", None, "The new workdir.", required=True)
    string(
        "format", "", f"The format of the model, if its files do not state: {formats}."
    )
    string("source", "", "The language to translate from, as the model names it.")
    string("target", "", "The language to translate into.")
    string("tokenizer", None, "SentencePiece model, for a format without a tokenizer.")
    string("source_tokenizer", None, "The same of the source, if it has its own.")
    config_flags.DEFINE_config_dict(
        "config",
        fields.defaults(),
        "Fields of the model that its files do not state, such as "
        "--config.model.heads=8.",
    )


def main(_):
    args = flags.FLAGS
    for name in ("model", "workdir"):
        if not args[name].value:
            raise UserError(f"--{name} is empty; name a folder")
    if not is_local(args.model):
        raise UserError(f"--model={args.model}: want a folder of this machine; copy it")
    model = Path(args.model).expanduser()
    if not model.exists():
        raise UserError(f"--model={model} does not exist; want a folder or a file")
    # Mistakes above are reported before JAX is imported.
    from t2t_jax.parallel.process_setup import set_up_process
    from t2t_jax.tools.bridges.formats import ImportRequest
    from t2t_jax.tools.bridges.importing import import_model

    set_up_process()
    request = ImportRequest(
        model,
        args.source,
        args.target,
        *(
            Path(args[name].value).expanduser() if args[name].value else None
            for name in ("tokenizer", "source_tokenizer")
        ),
        _model_fields(args.config),
    )
    import_model(request, Workdir(args.workdir), args.format)


def _model_fields(config: ml_collections.ConfigDict) -> dict[str, Any]:
    """The fields of `config.model` on the command line."""
    values = {}
    for field in given_fields(sys.argv[1:]):
        section, _, name = field.partition(".")
        if section != "model" or "." in name:
            raise UserError(
                f"--config.{field} is not read by import; only fields of config.model "
                "that the model's files do not state are"
            )
        values[name] = config.model[name]
    return values
