"""Teaches a smaller model: `python -m t2t_jax distill --teacher=DIR --input=PREFIX`.

The teacher translates the source lines of a parallel text, and a student is trained on
its translations (Kim and Rush 2016), which are easier to learn than people's: they are
more alike. With --nbest=8 --by=chrf, the one of the 8 best that is nearest to the
reference is kept. After it was stopped or killed, the same command continues it.
"""

import sys

from absl import flags

from t2t_jax.commands.config_files import given_fields
from t2t_jax.commands.flags import define_config_flag, define_search_flags, search_flags
from t2t_jax.config import from_config_dict
from t2t_jax.extensions.run.synthetic_text import CHUNK, CRITERIA, Recipe
from t2t_jax.io.errors import UserError
from t2t_jax.io.locations import split_names
from t2t_jax.io.parts import parse_part

DISTRIBUTED = True
STAGES = ("translate", "train")


def default_config() -> str:
    """A student like its teacher, which is named on the command line."""
    for word, following in zip(sys.argv, [*sys.argv[1:], ""], strict=True):
        name, equals, value = word.lstrip("-").partition("=")
        if word.startswith("-") and name == "teacher":
            return f"student:{(value if equals else following).split(',')[0]}"
    return "tiny"  # the missing --teacher is reported when flags are parsed


def define_flags():
    define_config_flag()
    string, integer = flags.DEFINE_string, flags.DEFINE_integer
    string(
        "teacher",
        None,
        "Workdir of the teacher. Several, separated by commas, form an ensemble.",
        required=True,
    )
    string(
        "input",
        None,
        "Text to translate, relative to the current folder: PREFIX stands for "
        "PREFIX.en and PREFIX.de (or .gz); also tfds:NAME:SPLIT and grammar:SPLIT; "
        "commas separate several. Without --by=chrf or bleu, the source is enough.",
        required=True,
    )
    string(
        "workdir",
        None,
        "Where the student is stored: a new folder, or that of this command before.",
        required=True,
    )
    integer("nbest", 1, "Translations of each line that one is chosen of.")
    flags.DEFINE_enum(
        "by",
        None,
        [*CRITERIA],
        "Keeps the most probable translation, or the one nearest to the reference by a "
        "metric of sentences; by default chrf if --nbest is above 1.",
    )
    string(
        "mix",
        "",
        "Further training text, with weights: original@1 is the --input itself, read "
        "once an epoch.",
    )
    flags.DEFINE_boolean(
        "word_level",
        False,
        "The student also learns the teacher's probabilities of each token "
        "(config.train.loss=distillation).",
    )
    string("text", "", "PREFIX of the teacher's text; default: WORKDIR/distilled.")
    string("checkpoint", None, "The teacher's parameters, as for translate.")
    flags.DEFINE_enum(
        "dtype", None, ["float32", "bfloat16"], "The teacher's type of activations."
    )
    define_search_flags()
    string("part", None, "I/N: make only the I-th of N parts of the teacher's text.")
    flags.DEFINE_alias("shard", "part")
    flags.DEFINE_enum(
        "only", None, [*STAGES], "Stop when the text is complete, or begin with it."
    )
    integer("batch_size", CHUNK, "Lines sorted and translated together.", 1)


def main(_):
    args = flags.FLAGS
    teachers = split_names(args.teacher)
    if not teachers:
        raise UserError(f"--teacher={args.teacher!r} names no workdir")
    if not args.workdir:
        raise UserError("--workdir is empty; name a folder for the student")
    if "data.train" in given_fields(sys.argv):
        raise UserError(
            "--config.data.train: a student is trained on what its teacher makes of "
            "--input; for further text give --mix=NAME@WEIGHT"
        )
    part = (1, 1)
    if args.part is not None:
        part = parse_part(args.part)
        if args.only == "train":
            raise UserError("--part makes a part of the text; leave out --only=train")
    recipe = Recipe(args.nbest, args.by or "", search_flags(args))
    config = from_config_dict(args.config)
    from t2t_jax.extensions.run.distillation import distill
    from t2t_jax.parallel.process_setup import set_up_process

    set_up_process()
    distill(
        teachers,
        args.input,
        config,
        args.workdir,
        recipe=recipe,
        mix=args.mix,
        word_level=args.word_level,
        prefix=args.text,
        checkpoint=args.checkpoint,
        dtype=args.dtype,
        part=part,
        only=args.only or "",
        batch_size=args.batch_size,
    )
