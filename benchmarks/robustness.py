"""Compares models on damaged text: a table of BLEU, damage by workdir, as Markdown.

    python -m benchmarks.robustness --workdir=runs/plain,runs/augmented --test=PREFIX

With --augment it first fine-tunes the first workdir, once for each --augment, on the
text of that workdir (or --train), and adds the new runs to the table. Fine-tuning
changes BLEU by itself, so include the run without augmentation, which is --augment= :

    python -m benchmarks.robustness --workdir=runs/plain --test=PREFIX --to=runs/more \\
        --augment= --augment=typos,case,punctuation,white_space,copy --steps=1000

A cell is the BLEU of the damaged set, its difference from that of the undamaged one in
the same column, and the share of codes that are copied, where text has codes. Scores
are stored in each workdir, so a second call is quick.
"""

from collections.abc import Mapping
from pathlib import Path

from absl import flags
from ml_collections import ConfigDict

from benchmarks import measuring, run
from t2t_jax import load_config, train
from t2t_jax.commands.flags import define_test_flag, define_workdir_flags, test_sets
from t2t_jax.data.tokenizers.vocabulary import parse_symbols
from t2t_jax.decoding.translator import Translator
from t2t_jax.extensions.data.variation import text_variation_of
from t2t_jax.extensions.evaluation.robustness import (
    UNDAMAGED,
    Row,
    check_damageable,
    damages_named,
    score_damaged,
)
from t2t_jax.io.errors import UserError
from t2t_jax.io.messages import say
from t2t_jax.workdir import Workdir


def define_flags():
    define_workdir_flags("Several, separated by commas, are columns of the table.")
    define_test_flag()
    measuring.define_flags(rounds=None)
    flags.DEFINE_string("damage", "all", "Names of DAMAGES, separated by commas.")
    flags.DEFINE_multi_string(
        "augment", [], "Fine-tune the first workdir with this config.data.augment"
    )
    flags.DEFINE_string("to", None, "Folder of the new workdirs, one a fine-tuning.")
    flags.DEFINE_string("train", None, "Text to fine-tune on; that of the workdir.")
    flags.DEFINE_integer("steps", 1_000, "Steps of each fine-tuning.")


def main(_):
    args = flags.FLAGS
    measuring.begin(args)
    damages = damages_named(args.damage)
    workdirs = [name for name in map(str.strip, args.workdir.split(",")) if name]
    if args.augment and not args.to:
        raise UserError("--augment trains new workdirs; want --to=FOLDER for them")
    configs = {  # all are checked before the first one trains
        f"{args.to}/{folder_of(augment)}": config_of(
            workdirs[0], augment, args.steps, args.train
        )
        for augment in args.augment
    }
    for workdir, config in configs.items():
        say(f"fine-tuning {workdir}, config.data.augment={config.data.augment!r}")
        train(config, workdir)
    rows: dict[str, dict[str, dict[str, Row]]] = {}  # by set, workdir and damage
    for workdir in [*workdirs, *configs]:
        translator = Translator.load(workdir, args.checkpoint, args.dtype)
        corpora = test_sets(args, translator.config)
        check_damageable(translator, corpora)
        for corpus in corpora:
            by_damage, _ = score_damaged(translator, corpus, workdir, damages)
            rows.setdefault(corpus.name, {})[workdir] = by_damage
    table = [row for name, set_rows in rows.items() for row in cells(name, set_rows)]
    measuring.publish(table, args.output)


def folder_of(augment: str) -> str:
    """Names the workdir of a fine-tuning: "typos@0.1,case" -> "typos@0.1-case"."""
    return "-".join(filter(None, map(str.strip, augment.split(",")))) or "plain"


def config_of(start: str, augment: str, steps: int, text: str | None) -> ConfigDict:
    """The config that fine-tunes a workdir with augmentation."""
    start_data = Workdir(start).config().data
    text_variation_of(augment, parse_symbols(start_data.symbols))
    data = {"train": text or start_data.train, "dir": "" if text else start_data.dir}
    return load_config(
        f"finetune:{Path(start)}",
        data=data | {"augment": augment},
        train={"steps": steps, "dev_lines": 0},
    )


def cells(name: str, columns: Mapping[str, Mapping[str, Row]]) -> list[dict]:
    """The rows of a set, one for each damage; a column is a workdir."""
    return [
        {"set": name, "damage": damage}
        | {workdir: _cell(damage, rows[damage]) for workdir, rows in columns.items()}
        for damage in next(iter(columns.values()))
    ]


def _cell(name: str, row: Row) -> str:
    cell = f"{row['bleu']:.1f}"
    if name != UNDAMAGED:
        cell += f" ({row['difference']:+.1f})"
    copied = row["copied"]
    return cell if copied is None else f"{cell}, {copied:.0%} copied"


if __name__ == "__main__":
    run(main, define_flags)
