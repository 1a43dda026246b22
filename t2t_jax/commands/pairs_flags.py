"""`translate --pairs`: writes pairs of training text, for back-translation."""

from typing import TYPE_CHECKING

from absl import flags

from t2t_jax.extensions.run.synthetic_text import PairOptions
from t2t_jax.extensions.text.word_noise import parse_noise
from t2t_jax.io.errors import UserError

if TYPE_CHECKING:
    from t2t_jax.tasks.task import Task

OPTIONS = "noise", "noise_seed", "tag"  # they mean something with --pairs only
# Pairs are two lines of text: nothing else goes into their files.
REFUSED = {
    "output": "--pairs names the files itself",
    "scores": "a line of training text has no score",
    "alignments": "a line of training text has no alignment",
    "confidence": "a line of training text has no confidence",
    "min_confidence": "a line of training text has no mark",
}


def define_pairs_flags() -> None:
    """Defines --pairs, --noise, --noise_seed and --tag."""
    flags.DEFINE_string(
        "pairs",
        None,
        "PREFIX of pairs of training text to write, in place of --output: "
        "PREFIX.SOURCE has the lines of --input, PREFIX.TARGET their translations, "
        "with the languages of the workdir (back-translation).",
    )
    flags.DEFINE_string(
        "noise",
        "",
        "With --pairs: noise on the words of translations, such as "
        "drop@0.1,blank@0.1,swap@3: shares dropped and replaced by <blank>, and how "
        "many places a word moves at most.",
    )
    flags.DEFINE_integer("noise_seed", 0, "With --pairs: seed of the noise.")
    flags.DEFINE_string(
        "tag",
        "",
        "With --pairs: a symbol to put before each translation, such as <bt>; name it "
        "in config.data.symbols of the training, too.",
    )


def check_pairs_flags(args: flags.FlagValues) -> None:
    """Checks that flags go with --pairs, or that none is given without it."""
    if args.pairs is None:
        for name in OPTIONS:
            if args[name].present:
                raise UserError(f"--{name}: an option of --pairs; add --pairs=PREFIX")
        return
    if not args.pairs or args.pairs.endswith("/"):
        raise UserError(
            f"--pairs={args.pairs!r} names no files; want a PREFIX such as bt, for "
            "bt.en and bt.de"
        )
    for name, reason in REFUSED.items():
        if args[name].present and args[name].value is not False:
            raise UserError(
                f"--{name} does not go with --pairs: {reason}; leave it out"
            )
    if args.nbest != 1:
        raise UserError(
            f"--nbest={args.nbest} does not go with --pairs, which writes one pair a "
            "line; for several samples of a line run it again with another --pairs and "
            "--seed"
        )
    if not args.input:
        raise UserError(
            "--pairs needs --input=FILE, the text to translate: its lines become one "
            "side of the pairs"
        )
    if args.noise_seed < 0:
        raise UserError(f"--noise_seed={args.noise_seed}; want 0 or more")


def pair_options(args: flags.FlagValues) -> PairOptions:
    """Reads --noise, --noise_seed and --tag."""
    return PairOptions(parse_noise(args.noise), args.noise_seed, args.tag)


def languages_of(task: "Task") -> tuple[str, str]:
    """Returns source and target of the task of a workdir."""
    from t2t_jax.tasks import translation

    if not isinstance(task, translation.Translation):
        raise UserError(
            "--pairs makes training text of translations; this workdir has "
            f"config.task.kind={task.config.task.kind!r}. Want a workdir of "
            "translation, or --task=de-en for a text-to-text model"
        )
    return task.config.data.source, task.config.data.target
