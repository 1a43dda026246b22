"""Scores a workdir: `python -m t2t_jax.evaluate --workdir=DIR --test=PREFIX`.

JSON on standard output; the numbers that matter, for people, on standard error. With
`--baseline=FILE`, is it better than another system, or was that luck?
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
# What is told to people: the name of a score, and what it is.
TOLD = {
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
        "FILE of another system's translations of the set, a line for each line, to "
        "compare with by paired bootstrap resampling; of several sets one for each, "
        "with commas.",
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
    told = {}
    for corpus, baseline in zip(corpora, baselines, strict=True):
        told[corpus.name] = scores = score_set(translator, corpus, given.workdir)
        if not processes.is_first():
            continue
        _say_scores(corpus.name, scores)
        if baseline is not None:
            found = _against(baseline, scores, corpus, given.workdir, data.target)
            scores = scores | {"against_baseline": found}
            _say_difference(found)
        print(json.dumps(scores, indent=2, ensure_ascii=False), flush=True)
    for line in comparisons(told):
        say(line)


def _against(baseline, scores, corpus, workdir, target) -> dict:
    """The comparison with another system's translations of the same lines."""
    translations = read_translations(scores, corpus, workdir, target)
    references = [reference for _, reference in corpus.pairs()]
    with waiting("comparing with the baseline"):
        return paired_bootstrap(translations, baseline, references, target)


def _say_scores(name: str, scores: dict) -> None:
    say(f"{name}, {scores['lines']:,} lines, perplexity {scores['perplexity']:.3f}")
    for score, what in TOLD.items():
        number = f"{scores[score]:6.2f}"
        if interval := scores.get(f"{score}_interval"):
            number += f" ± {interval['half_width']:.2f}"
        signature = scores["signature" if score == "bleu" else f"{score}_signature"]
        say(f"  {score:11} {number:14}  {what:23}  {signature}")


def _say_difference(found: dict[str, dict]) -> None:
    for name in COMPARED:
        it = found[name]
        say(
            f"  {name:11} {it['score']:6.2f} against {it['baseline_score']:.2f}: "
            f"{it['difference']:+.2f}, p = {it['p_value']:.3f}"
        )
