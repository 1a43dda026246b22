"""Prepares a training text: `python -m t2t_jax prepare --config=...`.

Without further flags it does what training does first, and stops. In parts, on several
machines, the same bytes come out:

    t2t_jax prepare --config=... --stage=hash --part=I/N      for each I of 1..N
    t2t_jax prepare --config=... --merge=hash                 once
    t2t_jax prepare --config=... --stage=encode --part=I/N    for each I of 1..N
    t2t_jax prepare --config=... --merge                      once, where training runs

All stages take the same config. Each command may be repeated; --status says what is
missing.
"""

from absl import flags

from t2t_jax.commands.flags import define_config_flag
from t2t_jax.config import from_config_dict
from t2t_jax.data.prepare import CORPORA, prepared_pairs, report_lines
from t2t_jax.extensions.data.parts import STAGES
from t2t_jax.io.cache import cache_folder
from t2t_jax.io.errors import UserError
from t2t_jax.io.messages import say
from t2t_jax.io.parts import parse_part

PRESET = "tiny"


def define_flags():
    define_config_flag()
    flags.DEFINE_enum("stage", None, STAGES, "Do a part of this stage.")
    flags.DEFINE_string("part", None, "I/N: the I-th of N parts of --stage.")
    merge = flags.Flag(
        flags.EnumParser([*STAGES, "true", "false"]),
        flags.ArgumentSerializer(),
        "merge",
        None,
        "Join the parts of a stage: hash, or encode if no stage is named.",
    )
    merge.boolean = True  # so that --merge is enough
    flags.DEFINE_flag(merge)
    flags.DEFINE_boolean("status", False, "Say which parts and merges are missing.")
    flags.DEFINE_string(
        "folder",
        None,
        "Folder of the parts, which all machines see: on a disk that they share, or "
        "gs://BUCKET/FOLDER; by default `parts` in the cache folder (T2T_JAX_CACHE).",
    )
    flags.DEFINE_enum("runner", None, ["beam"], "Do all stages on Apache Beam.")
    flags.DEFINE_integer("parts", 64, "Number of parts for --runner.", lower_bound=1)
    flags.DEFINE_string(
        "beam_options", "", "Options of Beam's pipeline, such as '--runner=...'."
    )


def main(_):
    args = flags.FLAGS
    merge = {"true": "encode", "false": None}.get(args.merge, args.merge)
    modes = {
        "--stage": args.stage,
        "--merge": merge,
        "--status": args.status,
        "--runner": args.runner,
    }
    if len(modes := [flag for flag, value in modes.items() if value]) > 1:
        raise UserError(f"{' and '.join(modes)} are two things; give one of them")
    if bool(args.stage) != bool(args.part):
        lacking = "--part=I/N" if args.stage else f"--stage={' or '.join(STAGES)}"
        raise UserError(f"--stage and --part go together; add {lacking}")
    part = parse_part(args.part) if args.part else None
    config = from_config_dict(args.config)
    from t2t_jax.extensions.run.preparation import prepare_on_beam, text_of

    text = text_of(config, args.folder or str(cache_folder() / "parts"))
    task = text.examples

    def vocabulary():
        from t2t_jax.run.initialization import new_vocabulary  # imports JAX

        return new_vocabulary(task, text.corpora, config)

    lines, pairs = [], None
    if args.status:
        lines = text.status()
    elif args.stage:
        getattr(text, args.stage)(part)
    elif merge == "hash":
        text.merge_hashes(vocabulary)
    elif args.runner:
        pairs = prepare_on_beam(text, config, vocabulary, args.parts, args.beam_options)
    elif merge:
        pairs = text.merge()
    else:
        pairs = prepared_pairs(text.corpora, vocabulary(), text.config, task)
    if pairs is not None:
        lines = [*report_lines(pairs), f"prepared: {pairs.folder}"]
        table = pairs.folder / CORPORA
        if len(pairs.sizes) > 1 and table.exists():  # earlier versions wrote none
            lines = [*table.read_text(encoding="utf-8").splitlines(), *lines]
    for line in lines:
        say(line)
