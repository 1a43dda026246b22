"""Scores a trained run: `python -m t2t_jax.evaluate --workdir=DIR --test=PREFIX`.

Prints all scores as JSON on standard output, and the main ones for people on standard
error. --baseline=FILE compares with another system and tests for significance.
"""

import json

from absl import flags

from t2t_jax.commands.flags import (
    define_search_flags,
    define_test_flag,
    define_workdir_flags,
    test_sets,
)
from t2t_jax.decoding.translator import Translator
from t2t_jax.evaluation.baselines import read_baselines
from t2t_jax.evaluation.scores import (
    comparisons,
    distinct,
    read_translations,
    score_set,
)
from t2t_jax.metrics.significance import COMPARED, paired_bootstrap
from t2t_jax.parallel import processes
from t2t_jax.terminal.messages import say
from t2t_jax.terminal.progress import waiting

DISTRIBUTED = True
SEARCH = "beam", "alpha", "penalty", "stop"
# The scores that are printed for people: name -> description.
PRINTED = {
    "bleu": "sacreBLEU of plain text",
    "bleu_paper": "tokenized, cased",
    "bleu_lc_tok": "tokenized, lower-cased",
    "chrf": "chrF2",
    "ter": "TER, less is better",
}


def define_flags():
    define_workdir_flags()
    define_search_flags()
    define_test_flag()
    flags.DEFINE_string(
        "baseline",
        None,
        "FILE with another system's translations, one line for each line of the test "
        "set, to compare with by paired bootstrap resampling; for several sets one "
        "file each, separated by commas.",
    )


def main(_):
    given = flags.FLAGS
    translator = Translator.load(given.workdir, given.checkpoint, given.dtype)
    search = {name: getattr(given, name) for name in SEARCH}
    translator = translator.with_options(
        **{name: value for name, value in search.items() if value is not None}
    )
    data = translator.config.data
    with processes.fail_together("opening the test sets"):
        corpora = distinct(test_sets(given, data))
        baselines = [None] * len(corpora)
        if given.baseline is not None and processes.is_first():
            baselines = read_baselines(given.baseline, corpora)
    all_scores = {}
    for corpus, baseline in zip(corpora, baselines, strict=True):
        all_scores[corpus.name] = scores = score_set(translator, corpus, given.workdir)
        if not processes.is_first():  # score_set needs all processes, printing only one
            continue
        _say_scores(corpus.name, scores)
        if baseline is not None:
            result = _compare(baseline, scores, corpus, given.workdir, data.target)
            scores = scores | {"against_baseline": result}
            _say_difference(result)
        print(json.dumps(scores, indent=2, ensure_ascii=False), flush=True)
    for line in comparisons(all_scores):
        say(line)


def _compare(baseline, scores, corpus, workdir, target) -> dict:
    """Compares the run with another system's translations of the same lines."""
    translations = read_translations(scores, corpus, workdir, target)
    references = [reference for _, reference in corpus.pairs()]
    with waiting("comparing with the baseline"):
        return paired_bootstrap(translations, baseline, references, target)


def _say_scores(name: str, scores: dict) -> None:
    say(f"{name}, {scores['lines']:,} lines, perplexity {scores['perplexity']:.3f}")
    for score, description in PRINTED.items():
        number = f"{scores[score]:6.2f}"
        if interval := scores.get(f"{score}_interval"):
            number += f" ± {interval['half_width']:.2f}"
        signature = scores["signature" if score == "bleu" else f"{score}_signature"]
        say(f"  {score:11} {number:14}  {description:23}  {signature}")


def _say_difference(comparison: dict[str, dict]) -> None:
    for name in COMPARED:
        row = comparison[name]
        say(
            f"  {name:11} {row['score']:6.2f} against {row['baseline_score']:.2f}: "
            f"{row['difference']:+.2f}, p = {row['p_value']:.3f}"
        )
