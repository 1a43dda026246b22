"""Examines a text before training: `python -m t2t_jax doctor --config.data.train=...`.

Takes the config flags of `main`, and reads its training text, and its dev and test sets
to find overlaps. Finds repeated, misaligned, swapped, copied and damaged pairs, wrong
languages, unusual lengths; with --workdir also pairs that a trained model finds
improbable. Changes nothing; --fix=PREFIX writes what is kept, and what is not and why.
"""

import json
from pathlib import Path

from absl import flags

from t2t_jax.commands.flags import define_config_flag
from t2t_jax.config import from_config_dict
from t2t_jax.data.corpus import check_files, heaviest_first, open_specs, scheme_of
from t2t_jax.extensions.data.parts import part_of_text
from t2t_jax.io.errors import UserError
from t2t_jax.io.locations import join_names, split_names
from t2t_jax.io.messages import printable, say
from t2t_jax.io.output_files import check_page, write_file
from t2t_jax.io.parts import parse_part, part_of
from t2t_jax.tasks.table import task_of
from t2t_jax.text.languages import identify
from t2t_jax.tools.doctor import rules
from t2t_jax.tools.doctor.examination import EXAMPLES as KEPT
from t2t_jax.tools.doctor.examination import Examination, ExaminationOptions
from t2t_jax.tools.doctor.findings import EXAMPLES, findings, findings_page, report
from t2t_jax.tools.doctor.fixing import check_prefix, write_fix
from t2t_jax.tools.doctor.overlap import ReferenceSet

PRESET = "tiny"


def define_flags():
    define_config_flag()
    flags.DEFINE_string(
        "workdir",
        None,
        "A trained run, whose cross-entropy of each pair is judged, too: a folder or "
        "gs://BUCKET/FOLDER.",
    )
    flags.DEFINE_string(
        "reverse",
        None,
        "With --workdir: a run of the other direction, for dual cross-entropy.",
    )
    flags.DEFINE_string(
        "contrast",
        None,
        "With --workdir: a run on other text, whose cross-entropy is subtracted.",
    )
    flags.DEFINE_string(
        "part",
        None,
        "I/N: examine the I-th of N parts of the text by itself; --fix then writes "
        "PREFIX.I-of-N, and --config.data.train='PREFIX.*' trains on all.",
    )
    flags.DEFINE_string("html", None, "Write a page to this FILE.html.")
    flags.DEFINE_string(
        "fix",
        None,
        "Write the pairs that are kept to PREFIX.SOURCE and PREFIX.TARGET, and the "
        "others with reasons to PREFIX.removed.tsv.",
    )
    flags.DEFINE_string(
        "drop",
        "",
        "Changes to the rules whose pairs --fix removes: 'numbers' adds a rule, "
        "'-duplicate' takes one away, 'none' takes all away; separated by commas.",
    )
    flags.DEFINE_multi_string(
        "limit", [], "Changes a threshold, such as ratio.z=8; the report lists them"
    )
    flags.DEFINE_boolean(
        "pieces",
        False,
        "Count tokens although there is no tokenizer yet: trains it as `main` would, "
        "which then finds it.",
    )
    flags.DEFINE_integer(
        "examples",
        EXAMPLES,
        f"Pairs printed for each rule, at most {KEPT}.",
        lower_bound=0,
        upper_bound=KEPT,
    )
    flags.DEFINE_boolean("json", False, "Print a JSON object, for programs.")


def main(_):
    run(flags.FLAGS)


def run(args) -> None:
    """Examines the text of `args.config`; the other attributes are the flags."""
    config = from_config_dict(args.config)
    data = config.data
    languages = data.source, data.target
    if config.task.kind != "translation":
        raise UserError(
            f"config.task.kind={config.task.kind!r}: the doctor examines pairs of two "
            "languages; want config.task.kind=translation"
        )
    part = parse_part(args.part) if args.part else (1, 1)
    if args.fix:
        args.fix = str(part_of(Path(args.fix).expanduser(), part))
    limits, drops = rules.with_limits(args.limit), rules.dropping(args.drop)
    _check_outputs(args, languages)
    task = task_of(config)
    written = open_specs(data.train, task.open, data.dir, weights=True)
    corpora = heaviest_first(written)
    if not corpora:
        raise UserError(
            f"config.data.train={data.train!r} names no text; give "
            "--config.data.train=PREFIX, for PREFIX.en and PREFIX.de"
        )
    check_files(corpora)
    references = [
        ReferenceSet(corpus.spec, [*corpus.pairs()])
        for specs in (data.dev, data.test)
        for corpus in open_specs(_sets_of_languages(specs, data), task.open, data.dir)
    ]
    scores = None
    if args.workdir:
        from t2t_jax.tools.doctor.model_scores import ModelScores

        scores = ModelScores(args.workdir, args.reverse, args.contrast, languages)
    vocabulary = _vocabulary(args, task, corpora, scores)
    if args.part and not (corpora := part_of_text(corpora, part)):
        raise UserError(f"--part={args.part}: the text has too few pairs")
    options = ExaminationOptions(limits, frozenset(drops), vocabulary, scores)
    examination = Examination(corpora, references, options)
    content = findings(examination, languages)
    if args.json:
        print(json.dumps(content, indent=1, ensure_ascii=False))
    else:
        print(printable("\n".join(report(content, args.examples))))
    if args.html:
        write_file(Path(args.html).expanduser(), findings_page(content).encode())
    if args.fix:
        _fix(examination, Path(args.fix).expanduser(), languages)


def _sets_of_languages(specs: str, data) -> str:
    """Leaves out built-in sets, which the preset names, for text of other languages."""
    if {identify(c).code for c in (data.source, data.target)} == {"en", "de"}:
        return specs
    named = split_names(specs)
    usable = [place for place in named if scheme_of(place) != "grammar"]
    if left_out := [place for place in named if place not in usable]:
        say(
            f"not compared with {', '.join(left_out)}, which are English-German; name "
            "your own sets by --config.data.dev=PREFIX and --config.data.test=PREFIX"
        )
    return join_names(usable)


def _check_outputs(args, languages) -> None:
    """Refuses, before anything is read, what could not be written at the end."""
    for flag in ("reverse", "contrast"):
        if getattr(args, flag) and not args.workdir:
            raise UserError(
                f"--{flag} compares with a run; name that one by --workdir, too"
            )
    if args.fix == "":
        raise UserError("--fix is empty; want the PREFIX of the files to write")
    if args.fix:
        check_prefix(Path(args.fix).expanduser(), languages)
    if args.html is not None:
        check_page("html", Path(args.html).expanduser())


def _vocabulary(args, task, corpora, scores):
    """The tokenizer whose tokens are counted: the run's, the config's, or a new one."""
    if scores:
        return scores.model.vocabulary
    if args.pieces:
        return task.vocabulary(corpora)  # cached for `main`
    data = task.data()
    exists = data.tokenizer and (data.joint_vocabulary or data.source_tokenizer)
    return task.vocabulary(corpora) if exists else None


def _fix(examination: Examination, prefix: Path, languages) -> None:
    kept_count, removed_count = write_fix(examination, prefix, languages)
    say(
        f"{kept_count:,} pairs kept in {prefix}.{languages[0]} and .{languages[1]}, "
        f"{removed_count:,} removed to {prefix}.removed.tsv; train with "
        f"--config.data.train={prefix}"
    )
    if weighted := ", ".join(c.spec for c in examination.corpora if c.weight != 1):
        say(f"warning: {prefix} has no weights; those of {weighted} are gone")
