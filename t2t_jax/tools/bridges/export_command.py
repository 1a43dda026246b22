"""Exports a run: `python -m t2t_jax export --workdir=DIR --to=FORMAT --output=PATH`.

The result is written under a temporary name, loaded in a process without t2t_jax, and
has to translate like ours before it gets the name PATH; agreement.json in it holds the
figures. If it does not, the files stay in PATH.failed and the exit status is 2.
"""

from pathlib import Path

from absl import flags

from t2t_jax.commands.flags import define_workdir_flags, read_config
from t2t_jax.io.errors import UserError
from t2t_jax.io.locations import is_local
from t2t_jax.sections import table_names
from t2t_jax.workdir import Workdir

OPTIONS = ("quantization", "beam", "alpha")


def define_flags():
    define_workdir_flags(dtype=False)
    string = flags.DEFINE_string
    formats = ", ".join(table_names("tools.bridges.table.EXPORTS"))
    string("to", None, f"The format: {formats} (docs/bridges.md).", required=True)
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
    args = flags.FLAGS
    if not args.output:
        raise UserError("--output is empty; name a new folder")
    if not is_local(args.output):
        raise UserError(f"--output={args.output}: want a folder of this machine")
    read_config(args)  # mistakes are reported before JAX is imported
    from t2t_jax.decoding.translator import Translator
    from t2t_jax.evaluation.scores import stored_scores
    from t2t_jax.tools.bridges.exporting import export

    translator = Translator.load(args.workdir, args.checkpoint)
    export(
        translator,
        args.to,
        Path(args.output).expanduser(),
        args.test,
        stored_scores(Workdir.open(args.workdir)),
        **{name: args[name].value for name in OPTIONS},
    )
