"""Imports a published model: `python -m t2t_jax import --model=PATH --workdir=DIR`.

PATH is a folder as it is published, or a file. The result is a workdir: translate,
score, evaluate, or start training from it with --config=finetune:DIR.
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
from t2t_jax.tools.bridges.formats import Request
from t2t_jax.tools.bridges.importing import import_model
from t2t_jax.tools.bridges.table import IMPORTS
from t2t_jax.workdir import Workdir


def define_flags():
    string = flags.DEFINE_string
    string("model", None, "The model: a folder or a file.", required=True)
    string("workdir", None, "The new workdir.", required=True)
    string(
        "format",
        "",
        f"The format of the model, if its files do not tell: {', '.join(IMPORTS)}.",
    )
    string("source", "", "The language to translate from, as the model names it.")
    string("target", "", "The language to translate into.")
    string("tokenizer", None, "SentencePiece model, for a format without a tokenizer.")
    string("source_tokenizer", None, "The same of the source, if it has its own.")
    config_flags.DEFINE_config_dict(
        "config",
        fields.to_config_dict(fields.Config()),
        "Fields of the model that its files do not tell, such as "
        "--config.model.heads=8.",
    )


def main(_):
    given = flags.FLAGS
    for name in ("model", "workdir"):
        if not given[name].value:
            raise UserError(f"--{name} is empty; name a folder")
    if not is_local(given.model):
        raise UserError(
            f"--model={given.model}: want a folder of this machine; copy it"
        )
    request = Request(
        Path(given.model).expanduser(),
        given.source,
        given.target,
        *(
            Path(given[name].value).expanduser() if given[name].value else None
            for name in ("tokenizer", "source_tokenizer")
        ),
        _model_fields(given.config),
    )
    import_model(request, Workdir(given.workdir), given.format)


def _model_fields(config: ml_collections.ConfigDict) -> dict[str, Any]:
    """The fields of `config.model` on the command line."""
    given = {}
    for field in given_fields(sys.argv[1:]):
        section, _, name = field.partition(".")
        if section != "model" or "." in name:
            raise UserError(
                f"--config.{field} is not read by import; only fields of config.model "
                "that the model's files do not tell are"
            )
        given[name] = config.model[name]
    return given
