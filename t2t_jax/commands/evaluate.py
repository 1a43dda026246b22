"""Scores a trained run: `python -m t2t_jax evaluate --workdir=DIR --test=PREFIX`.

Prints the main scores on standard error. All scores are JSON: in the workdir, and on
standard output with --json or if that is not a terminal. --baseline=FILE compares with
another system and tests for significance. --damage=all also scores damaged copies of
the test sets: typos, capitals, codes, ... Scores and answers are kept in the workdir;
those of an ensemble (--workdir=A,B) in A/ensembles/HASH, apart from A's own.
"""

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from absl import flags
from etils import epath

from t2t_jax.commands.flags import (
    ENSEMBLE,
    define_choice_flag,
    define_references_flag,
    define_search_flags,
    define_test_flag,
    define_weights_flag,
    define_workdir_flags,
    load_translator,
    read_config,
    search_flags,
    test_sets,
    workdirs_of,
)
from t2t_jax.data.corpus import Corpus, distinct
from t2t_jax.data.text_files import read_lines
from t2t_jax.extensions.text.damage import DAMAGES, EVERY
from t2t_jax.io.errors import UserError
from t2t_jax.io.locations import split_names
from t2t_jax.io.messages import say, waiting
from t2t_jax.parallel import processes
from t2t_jax.workdir import Workdir

if TYPE_CHECKING:
    from t2t_jax.tasks.task import Task

DISTRIBUTED = True


def define_flags():
    define_workdir_flags(ENSEMBLE)
    define_weights_flag()
    define_search_flags()
    define_choice_flag()
    define_test_flag()
    define_references_flag()
    flags.DEFINE_string(
        "baseline",
        None,
        "FILE with another system's answers, one line for each line of the test "
        "set, to compare with by paired bootstrap resampling; for several sets one "
        "file each, separated by commas.",
    )
    flags.DEFINE_string(
        "damage",
        None,
        f"Also score damaged copies of the test sets: '{EVERY}', or some of "
        f"{', '.join(DAMAGES)}, separated by commas.",
    )

    flags.DEFINE_boolean(
        "json",
        None,
        "Print all scores as JSON on standard output; by default unless it is a "
        "terminal.",
    )


def main(_):
    args = flags.FLAGS
    print_json = args.json
    if print_json is None:
        print_json = not sys.stdout.isatty()
    workdir = workdirs_of(args)
    search = search_flags(args)
    config = read_config(args)
    with processes.fail_together("opening the test sets"):
        corpora = test_sets(args, config)
    from t2t_jax.tasks.table import task_of

    if args.references is not None:
        if args.damage is not None:
            raise UserError(
                "--damage does not go with --references: it may change the reference "
                "of a line, and would not change others; leave one out"
            )
        from t2t_jax.extensions.evaluation.references import with_references

        corpora = with_references(corpora, args.references, task_of(config))
    # Mistakes above are reported before JAX is imported, ...
    from t2t_jax.decoding.choosing import parse_choice
    from t2t_jax.evaluation.scores import (
        SCORES,
        comparisons,
        results_folder,
        score_set,
        scores_and_answers,
    )
    from t2t_jax.extensions.evaluation.robustness import (
        check_damageable,
        damaged,
        damages_named,
        score_damaged,
        table,
    )

    if args.choose is not None:
        parse_choice(args.choose)  # ... and this one before models are loaded
    translator = load_translator(args)
    task = task_of(translator.config)
    named = [*search, *(["choose"] if args.choose is not None else [])]
    if named and not task.searches:
        raise UserError(
            f"{', '.join(f'--{name}' for name in named)}: an option of a search, and "
            f"config.task.kind={task.config.task.kind!r} is scored without one; leave "
            "it out"
        )
    translator.config.decode.override("--", **search)
    translator = translator.with_options(**search)
    if args.choose is not None:
        translator = translator.with_choice(args.choose)
    with processes.fail_together("opening the test sets"):
        corpora = distinct(corpora)
        damages = damages_named(args.damage) if args.damage is not None else []
        if damages:
            check_damageable(translator, corpora)
            copies = [damaged(corpus, name) for corpus in corpora for name in damages]
            distinct([*corpora, *copies])
        baselines = [None] * len(corpora)
        if args.baseline is not None and processes.is_first():
            baselines = read_baselines(args.baseline, corpora)
    all_scores = {}
    for corpus, baseline in zip(corpora, baselines, strict=True):
        if baseline is None:
            scores = score_set(translator, corpus, workdir)
        else:
            scores, answers = scores_and_answers(translator, corpus, workdir)
        all_scores[corpus.name] = scores
        if not processes.is_first():  # scoring needs all processes, printing only one
            continue
        _say_scores(task.of(corpus), corpus, scores)
        if baseline is not None:
            with waiting("comparing with the baseline"):
                result = task.of(corpus).compare(
                    answers, baseline, task.of(corpus).examples(corpus), corpus
                )
            scores = scores | {"against_baseline": result}
            _say_difference(task.of(corpus), result)
        if print_json:
            _print_json(scores)
    for corpus in corpora if damages else ():
        rows, damaged_scores = score_damaged(translator, corpus, workdir, damages)
        all_scores |= {scores["name"]: scores for scores in damaged_scores}
        if processes.is_first():
            for scores in damaged_scores if print_json else ():
                _print_json(scores)
            for line in (f"{corpus.name}, damaged", *table(rows)):
                say(line)
    if not processes.is_first():
        return
    for line in comparisons(all_scores):
        say(line)
    folder = results_folder(translator, workdir)
    if not print_json and _are_stored(all_scores, folder):
        say(f"all scores: {folder / SCORES}/*.json; --json prints them")


def read_baselines(files: str, corpora: list[Corpus]) -> list[list[str]]:
    """Reads another system's answers, one file per test set, in the order of the sets.

    The names of text files, plain or `.gz`, are separated by commas; each file has one
    line for each line of its set.

    Raises:
      UserError: the number of files differs from the number of sets; a file does not
        exist, is not UTF-8 or differs in length from its set; a set is too long for a
        bootstrap.
    """
    names = split_names(files)
    if len(names) != len(corpora):
        sets = ", ".join(corpus.name for corpus in corpora)
        raise UserError(
            f"--baseline={files!r} names {len(names)} files for {len(corpora)} test "
            f"sets ({sets}); want one file per set, in this order, separated by commas"
        )
    files = [Path(name).expanduser() for name in names]
    return [*map(_read_baseline, files, corpora)]


def _read_baseline(file: Path, corpus: Corpus) -> list[str]:
    from t2t_jax.metrics.measures import LONGEST

    if not file.is_file():
        raise UserError(
            f"--baseline: {file} is not a file; want another system's answers to "
            f"{corpus.name}, one line for each example of the set"
        )
    lines, expected = list(read_lines(file)), sum(1 for _ in corpus.pairs())
    if len(lines) != expected:
        raise UserError(
            f"--baseline: {file} has {len(lines):,} lines, but {corpus.spec} has "
            f"{expected:,}; want an answer to each example, in the same order"
        )
    if expected > LONGEST:
        raise UserError(
            f"--baseline: {corpus.spec} has {expected:,} lines, but the bootstrap "
            f"takes at most {LONGEST:,}; use a part of the set"
        )
    return lines


def _are_stored(all_scores: dict[str, dict], folder: epath.Path) -> bool:
    """False in a read-only workdir, which may hold other, earlier scores."""
    from t2t_jax.evaluation.scores import stored_scores

    stored = stored_scores(Workdir.open(folder))
    read = json.loads(json.dumps(all_scores))  # as they are stored: lists for tuples
    return all(read[name].items() <= stored.get(name, {}).items() for name in read)


def _print_json(scores: dict) -> None:
    print(json.dumps(scores, indent=2, ensure_ascii=False), flush=True)


def _say_scores(task: "Task", corpus: Corpus, scores: dict) -> None:
    perplexity = scores.get("perplexity")
    end = f", perplexity {perplexity:.3f}" if perplexity is not None else ""
    printed = task.printed_of(corpus)
    end = "" if "perplexity" in printed else end
    say(f"{corpus.name}, {scores['lines']:,} lines{end}")
    width = max(11, *map(len, printed))
    for score, description in printed.items():
        if score not in scores:
            say(f"  {score:{width}} {'-':>6}          {description}")
            continue
        digits = _digits(task, score)
        number = f"{scores[score]:6.{digits}f}"
        if interval := scores.get(f"{score}_interval"):
            number += f" ± {interval['half_width']:.{digits}f}"
        key = "signature" if score == "bleu" else f"{score}_signature"
        row = f"  {score:{width}} {number:14}  {description:23}  {scores.get(key, '')}"
        say(row.rstrip())


def _say_difference(task: "Task", comparison: dict[str, dict]) -> None:
    width = max(11, *map(len, comparison))
    for name, row in comparison.items():
        digits = _digits(task, name)
        say(
            f"  {name:{width}} {row['score']:6.{digits}f} against "
            f"{row['baseline_score']:.{digits}f}: {row['difference']:+.{digits}f} "
            f"[{row['low']:+.{digits}f}, {row['high']:+.{digits}f}], "
            f"p = {row['p_value']:.3f}"
        )


def _digits(task: "Task", score: str) -> int:
    return task.measures[score].digits if score in task.measures else 2
