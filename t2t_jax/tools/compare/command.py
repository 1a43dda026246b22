"""Compares systems on a test set: which is better, and where.

python -m t2t_jax compare A B [C ...] --test=PREFIX [--html=FILE] [--json]

A system is a workdir, WORKDIR@CHECKPOINT, or a text file with a line for each line of
the test set; NAME=PLACE names it. The others are compared with the first, the baseline.
Workdirs reuse translations that evaluate has stored, if they are current, or translate
and store as evaluate does.

--runs compares two workdirs as runs: where their config, data and parameters part.
"""

import json
from pathlib import Path

from absl import flags

from t2t_jax.commands.flags import (
    define_checkpoint_flag,
    define_references_flag,
    define_search_flags,
    define_test_flag,
    search_flags,
)
from t2t_jax.io.errors import UserError
from t2t_jax.io.messages import printable
from t2t_jax.io.output_files import check_page
from t2t_jax.tools.compare.comparison import compare

WORDS = "SYSTEM"  # the arguments that are not flags


def define_flags():
    define_test_flag(required=False)
    define_references_flag()
    define_checkpoint_flag()
    define_search_flags()
    flags.DEFINE_string(
        "train",
        None,
        "Training text, for words by frequency and for signs of hallucination: a "
        "PREFIX, or several separated by commas; by default the first workdir's.",
    )
    flags.DEFINE_string(
        "direction",
        None,
        "Languages such as en-de, if no system is a workdir: the test set is PREFIX.en "
        "and PREFIX.de.",
    )
    flags.DEFINE_string(
        "comet",
        None,
        "Also score with this COMET model, a .ckpt file on this disk; needs the "
        "package comet.",
    )
    flags.DEFINE_string(
        "new",
        None,
        "The sets of --test that are of the domain on which a run was fine-tuned; by "
        "default those that its config tests. The others show what it has forgotten.",
    )
    flags.DEFINE_string(
        "html", None, "Page to write. An earlier file of this name is kept."
    )
    flags.DEFINE_bool(
        "json", False, "Print everything as JSON, in place of the summary."
    )
    flags.DEFINE_bool(
        "runs", False, "Compare two workdirs as runs, rather than their translations."
    )


def main(argv):
    args = flags.FLAGS
    if args.runs:
        from t2t_jax.parallel.process_setup import set_up_process
        from t2t_jax.tools.compare.runs import main_report

        set_up_process()
        main_report(argv[1:], args.json)
        return
    if args.test is None:
        raise UserError("no test set is given; want --test=PREFIX")
    output = None if args.html is None else Path(args.html).expanduser()
    if output is not None:
        check_page("html", output)
    comparison = compare(
        argv[1:],
        args.test,
        direction=args.direction,
        train=args.train,
        checkpoint=args.checkpoint,
        comet=args.comet,
        new=args.new,
        references=args.references or (),
        **search_flags(args),
    )
    if args.json:
        print(json.dumps({"sets": comparison.sets}, indent=1, ensure_ascii=False))
    else:
        print(printable(str(comparison)))
    if output is not None:
        comparison.save(output)
