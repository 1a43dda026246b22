"""Measures what a choice among several hypotheses is worth, and what it costs.

    python -m benchmarks.reranking --workdir=DIR --dev=PREFIX --test=PREFIX \
        [--reverse=DIR] [--lm=DIR] [--samples=32] [--nbest=12]

Prints a Markdown table of a test set: BLEU and chrF, their differences from beam search
with 95% intervals (paired bootstrap), and seconds a sentence without compilation, alone
and as a multiple of those of beam search. Rows are a beam as wide as the n-best lists
are long; minimum Bayes risk, over samples by either utility and over the n-best list;
and re-ranking by length, by the reverse model, by the language model, and by both, as
far as they are given.

Weights of re-ranking are chosen on the dev set, whose n-best lists are scored once: the
point of a small grid with the highest BLEU, of equals the smallest weights. With --test
left out, that is all: it prints --choose=... for each row, to translate with.
"""

import itertools
import time
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from absl import flags

from benchmarks import measuring, run
from t2t_jax.commands.flags import define_workdir_flags
from t2t_jax.data.corpus import open_specs
from t2t_jax.decoding.search_options import SearchRequest
from t2t_jax.decoding.translator import Translator
from t2t_jax.io.errors import UserError
from t2t_jax.io.messages import say
from t2t_jax.metrics import measures
from t2t_jax.metrics.text_measures import bleu_of, text_measures
from t2t_jax.tasks.table import task_of

REVERSE = 0.0, 0.1, 0.2, 0.5, 1.0, 2.0
LM = 0.0, 0.05, 0.1, 0.2, 0.5, 1.0
LENGTH = -0.2, 0.0, 0.2, 0.5, 1.0
# The arguments of `Translator.translate`, at their defaults.
SEARCH = SearchRequest(warn=False)
WARM = 64  # lines that compile before time is taken


class System(NamedTuple):
    """A row of the table: its name, how it chooses, and its beam; 0: the config's."""

    name: str
    choose: str
    beam: int = 0


def best_weights(
    terms: Sequence[np.ndarray],
    sums: Sequence[np.ndarray],
    grid: Sequence[tuple[float, float, float]],
) -> tuple[tuple[float, float, float], float]:
    """Finds the point of a grid whose choices have the highest BLEU.

    Args:
      terms: for each line [hypotheses, 4], as from `Reranking.terms`.
      sums: for each line [hypotheses, k], of the measure `bleu`.
      grid: weights of the reverse model, of the language model and of the length.

    Returns:
      The weights and their BLEU; of equals those with the smallest absolute sum.
    """
    scored = []
    for weights in grid:
        weights_k = np.array([1.0, *weights])
        selected = [
            sums_nk[int(np.argmax(np.round(terms_nk @ weights_k, 9)))]
            for terms_nk, sums_nk in zip(terms, sums, strict=True)
        ]
        bleu = float(bleu_of(np.sum(selected, axis=0)))
        scored.append((-round(bleu, 9), sum(map(abs, weights)), weights))
    score, _, weights = min(scored)
    return weights, -score


def tuned(translator: Translator, pairs, args) -> list[System]:
    """Chooses weights of re-ranking on the dev set, for each set of models."""
    models = [f"{n}={p}" for n in ("reverse", "lm") if (p := getattr(args, n))]
    options = [f"nbest={args.nbest}", *models, "length=1"]
    chooser = translator.with_choice("rerank:" + ",".join(options)).choice
    sources = [source for source, _ in pairs]
    candidates = chooser.candidates(translator, sources, SEARCH)
    terms = chooser.terms(translator, candidates, SEARCH)
    measure = text_measures(translator.config.data.target)["bleu"]
    sums = [
        measure.statistics([h.text for h in t.hypotheses], [pair] * len(t.hypotheses))
        for t, pair in zip(candidates, pairs, strict=True)
    ]
    untuned = bleu_of(np.sum([sums_nk[0] for sums_nk in sums], axis=0))
    say(f"dev, {len(pairs):,} lines: BLEU {untuned:.2f} as searched with nbest")
    systems, none = [], (0.0,)
    grids = {"length": (none, none)}
    if args.reverse:
        grids["reverse"] = REVERSE, none
    if args.lm:
        grids["language model"] = none, LM
    if args.reverse and args.lm:
        grids["reverse and language model"] = REVERSE, LM
    for name, (reverse, lm) in grids.items():
        grid = [*itertools.product(reverse, lm, LENGTH)]
        weights, bleu = best_weights(terms, sums, grid)
        say(f"dev: {name}: BLEU {bleu:.2f} with weights {weights}")
        choose = [f"nbest={args.nbest}", f"length={weights[2]:g}"]
        if weights[0]:
            choose += [f"reverse={args.reverse}", f"reverse_weight={weights[0]:g}"]
        if weights[1]:
            choose += [f"lm={args.lm}", f"lm_weight={weights[1]:g}"]
        if not any(weights):
            say(f"dev: {name}: no weight is better than the search; left out")
            continue
        systems.append(System(f"rerank: {name}", f"rerank:{','.join(choose)}"))
    return systems


def answer(
    translator: Translator, choose: str, sources: Sequence[str]
) -> tuple[list[str], float]:
    """Translates with a choice; returns texts and seconds a sentence."""
    chooser = translator.with_choice(choose)
    # The longest and the shortest lines compile all programs there are.
    by_length = sorted(sources, key=len)
    chooser.translate([*by_length[:: max(1, len(sources) // WARM)], by_length[-1]])
    began = time.monotonic()
    translations = chooser.translate(sources, warn=False)
    seconds = (time.monotonic() - began) / len(sources)
    return [str(translation) for translation in translations], seconds


def columns(row: dict, baseline: dict) -> dict:
    """The columns of a row; others are compared with the first one."""
    cells = {"choice": row["name"]}
    for name, title in (("bleu", "BLEU"), ("chrf", "chrF")):
        measured = row[name]
        low, high = measured["low"], measured["high"]
        compared = f"{measured['difference']:+.2f} [{low:+.2f}, {high:+.2f}]"
        cells[title] = measured["score"]
        cells[f"{title}: difference, 95%"] = "" if row is baseline else compared
    seconds = row["seconds"]
    return {**cells, "seconds": seconds, "cost": seconds / baseline["seconds"]}


def define_flags():
    define_workdir_flags()
    measuring.define_flags(rounds=None)
    flags.DEFINE_string("dev", None, "Set on which weights are chosen.")
    flags.DEFINE_string("test", None, "Set that is scored.")
    flags.DEFINE_string("reverse", None, "Workdir of the reverse model.")
    flags.DEFINE_string("lm", None, "Workdir of a language model of the target.")
    flags.DEFINE_integer("samples", 32, "Samples of minimum Bayes risk.")
    flags.DEFINE_integer("nbest", 12, "Hypotheses of the n-best lists.")
    flags.DEFINE_integer("lines", 0, "Use only the first N lines of sets; 0: all.")


def main(_):
    args = flags.FLAGS
    measuring.begin(args)
    if not (args.dev or args.test):
        raise UserError(
            "want --dev=PREFIX to choose weights on, --test=PREFIX to score, or both"
        )
    translator = Translator.load(args.workdir, args.checkpoint, args.dtype)
    say(repr(translator))
    opener = task_of(translator.config).open

    def pairs_of(specs: str) -> list[tuple[str, str]]:
        return list(open_specs(specs, opener)[0].pairs())[: args.lines or None]

    nbest = f"mbr:candidates=beam,nbest={args.nbest}"
    drawn = f"mbr:samples={args.samples}"
    systems = [
        System("beam search", "probability"),
        System(f"beam of {args.nbest}", "probability", args.nbest),
        System(f"mbr, {args.samples} samples, chrF", f"{drawn},utility=chrf"),
        System(f"mbr, {args.samples} samples, BLEU", f"{drawn},utility=bleu"),
        System(f"mbr, {args.nbest}-best, chrF", f"{nbest},utility=chrf"),
    ]
    if args.dev:
        systems += tuned(translator, pairs_of(args.dev), args)
    if args.test:
        pairs = pairs_of(args.test)
        sources = [source for source, _ in pairs]
        target_measures = text_measures(translator.config.data.target)
        scored = {name: target_measures[name] for name in ("bleu", "chrf")}
        rows: list[dict] = []
        baseline: list[str] = []
        for name, choose, beam in systems:
            searching = translator.with_options(beam=beam) if beam else translator
            texts, seconds = answer(searching, choose, sources)
            baseline = baseline or texts
            compared = measures.compared(scored, texts, baseline, pairs)
            rows.append({"name": name, "seconds": seconds, **compared})
            say(f"{name}: BLEU {compared['bleu']['score']:.2f}, {seconds:.3f} s")
        print(f"{len(pairs):,} lines of {args.test}\n")
        table = [columns(row, rows[0]) for row in rows]
        measuring.publish(table, args.output)
    for name, choose, beam in systems:
        print(f"{name}: --choose={choose}" + f" --beam={beam}" * bool(beam))


if __name__ == "__main__":
    run(main, define_flags)
