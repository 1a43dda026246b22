"""Exports a run: `python -m t2t_jax export --workdir=DIR --to=FORMAT --output=PATH`.

The result is loaded in a process without t2t_jax and has to translate like ours before
it gets the name PATH; agreement.json in it holds the figures. If it does not, the
files stay in PATH.failed and the exit status is 2.
"""

from pathlib import Path

from absl import flags

from t2t_jax.commands.flags import define_workdir_flags
from t2t_jax.decoding.translator import Translator
from t2t_jax.evaluation.scores import stored_scores
from t2t_jax.io.errors import UserError
from t2t_jax.io.locations import is_local
from t2t_jax.tools.bridges.exporting import export
from t2t_jax.tools.bridges.table import EXPORTS
from t2t_jax.workdir import Workdir

OPTIONS = ("quantization", "beam", "alpha")


def define_flags():
    define_workdir_flags(dtype=False)
    string = flags.DEFINE_string
    formats = "; ".join(f"{name}: {form.name}" for name, form in EXPORTS.items())
    string("to", None, f"The format. {formats}.", required=True)
    string("output", None, "The new folder.", required=True)
    string("quantization", None, "Type of the stored weights, such as int8 or float16.")
    flags.DEFINE_integer("beam", None, "Beam width, where the search is exported.")
    flags.DEFINE_float("alpha", None, "Exponent of the length penalty, likewise.")
    string(
        "test",
        "",
        "Text to compare translations on: PREFIX of two files, as for evaluate; by "
        "default the dev and test sets of the run.",
    )


def main(_):
    given = flags.FLAGS
    if not given.output:
        raise UserError("--output is empty; name a new folder")
    if not is_local(given.output):
        raise UserError(f"--output={given.output}: want a folder of this machine")
    translator = Translator.load(given.workdir, given.checkpoint)
    export(
        translator,
        given.to,
        Path(given.output).expanduser(),
        given.test,
        stored_scores(Workdir.open(given.workdir)),
        **{name: given[name].value for name in OPTIONS},
    )
