"""Measures what becomes of placeholders and terms, and what each option costs.

    python -m benchmarks.preserving --part=terms --workdir=DIR --plain=DIR --test=PREFIX

The model of --workdir was trained with placeholders or terms, that of --plain was not.

placeholders: of lines that have some, the share whose translation has each exactly
    once; lines that lack one (lost), or have one too often (repeated), by the text
    alone. `reported` also counts lines where a repeated symbol was taken out. `first
    search` demands nothing, `on` searches again for what is lost, `off` shows the
    model placeholders as they are. Another table has the share kept of each kind.
terms: words with several translations in the lexicon of `augment=terms`. The target is
    the rarest in training text of those that at least two references have in a line
    with the word: not what a model writes anyway. The reference of a `used` line has
    all targets, that of an `other` one not; a line of `none` has no term. `changed`:
    lines with another text than this model's without terms; 0 for `none`.
speed: seconds for all lines, and relative to no option. Of the lines with nothing to
    preserve, those whose text or score is not the same to the bit: 0.

Rounds are in turns, medians count. 95% intervals are by bootstrap over lines (of a
share: over those that count), and have no width if all lines agree.
"""

import itertools
import re
import tempfile
import time
from collections import Counter, defaultdict
from functools import partial
from pathlib import Path

import numpy as np
from absl import flags

from benchmarks import measuring, run
from benchmarks.markup import tagged
from t2t_jax.commands.flags import define_test_flag, define_workdir_flags
from t2t_jax.data.corpus import open_corpora
from t2t_jax.data.tokenizers.vocabulary import parse_symbols
from t2t_jax.decoding.translator import Translator
from t2t_jax.extensions.decoding.preserving import Report
from t2t_jax.extensions.text.placeholders import find, protect, restore
from t2t_jax.extensions.text.sentences import split
from t2t_jax.extensions.text.terms import OUTCOMES, Terms, check, learn_lexicon
from t2t_jax.io.errors import UserError
from t2t_jax.metrics.measures import Measure, percent
from t2t_jax.metrics.text_measures import text_measures
from t2t_jax.text.units import MARKS, SYMBOLS

words = re.compile(r"\w+").findall


def share(name, counts):
    """Cells of a share in percent, from what each line has, and of how many."""
    some_nk = np.array([counted for counted in counts if counted[1]], np.float64)
    if not len(some_nk):
        return {name: None, f"{name} interval": None}
    return measuring.with_interval(name, Measure(name, None, percent), some_nk)


def scores(texts, pairs, language):
    """Cells of BLEU and chrF."""
    cells, measures = {}, text_measures(language)
    for name, title in (("bleu", "BLEU"), ("chrf", "chrF")):
        statistics_nk = measures[name].statistics(texts, pairs)
        cells |= measuring.with_interval(title, measures[name], statistics_nk)
    return cells


def timed(contenders, rounds):
    """Returns each contender's result, and its median seconds in later rounds."""

    def seconds(work):
        began = time.monotonic()
        work()
        return time.monotonic() - began

    results = {name: work() for name, work in contenders.items()}  # it compiles
    clocks = {name: partial(seconds, work) for name, work in contenders.items()}
    return results, measuring.alternate(clocks, rounds)


def knows(model, symbols):
    return {*symbols} <= {*parse_symbols(model.config.data.symbols)}


def placeholder_rows(args, models, corpus, pairs):
    pairs, rows, kinds = [pair for pair in pairs if find(pair[0])], [], []
    if not pairs:
        raise UserError(f"--test={args.test} has no placeholder; want lines with some")
    sources, references = zip(*pairs, strict=True)

    def add(name, condition, texts, reported=None, repeats=None):
        texts, row = [*map(str, texts)], {"model": name, "way": condition}
        cells, kind_rows = kept(texts, sources)
        cells |= {"reported": reported, "searched again": repeats}
        rows.append(row | cells | scores(texts, pairs, corpus.target))
        kinds.extend(row | kind_row for kind_row in kind_rows)

    for name, model in models.items():
        symbols, report = SYMBOLS if knows(model, SYMBOLS) else (), Report()
        protected = [protect(source, symbols) for source in sources]
        first_search = model.translate([text.text for text in protected], warn=False)
        restored = [*map(restore, map(str, first_search), protected)]
        wrong = sum(bool(text.missing or text.repeated) for text in restored)
        add(name, "first search", [text.text for text in restored], wrong)
        placed = model.translate(sources, placeholders=True, report=report, warn=False)
        repeats = report.placeholders["searched again"]
        add(name, "on", placed, len({*report.lost}), repeats)
        if symbols:  # without them the first search is the same
            add(name, "off", model.translate(sources, warn=False))
    add("reference", "", references)
    print(*measuring.markdown(kinds), "", sep="\n")
    return rows, {"kinds": kinds}


def kept(texts, sources):
    """Cells of what texts keep of the placeholders of their sources; rows of kinds."""
    counts, wrong = defaultdict(list), []
    for text, source in zip(texts, sources, strict=True):
        kind_of = {source[p.begin : p.end]: p.kind for p in find(source)}
        spelled = restore(text, protect(source, ()))
        lost = Counter(kind_of[errors] for errors in spelled.missing)
        for kind, totals in Counter(p.kind for p in find(source)).items():
            counts[kind].append((totals - lost[kind], totals))
        wrong.append((bool(spelled.missing), bool(spelled.repeated)))
    totals = {kind: sum(n for _, n in pairs) for kind, pairs in counts.items()}
    cells = {"lines": len(texts), "asked": sum(totals.values())}
    cells |= share("exactly once, %", [(not any(errors), 1) for errors in wrong])
    cells["lost"], cells["repeated"] = map(sum, zip(*wrong, strict=True))
    return cells, [
        {"kind": kind, "asked": totals[kind]} | share("kept, %", counts[kind])
        for kind in sorted(totals, key=totals.get, reverse=True)
    ]


def glossary(args, model, corpus):
    """The terms of --glossary; makes that file if it is not there."""
    with tempfile.TemporaryDirectory() as folder:
        file, data = Path(args.glossary or Path(folder, "terms")), model.config.data
        if not file.exists():
            training = open_corpora(
                data.train, data.source, data.target, data.dir, True
            )
            pairs = [pair for part in training for pair in part.pairs()]
            often = Counter(word for _, target in pairs for word in words(target))
            lexicon = learn_lexicon(pairs)
            lexicon = {k: {*words} for k, words in lexicon.items() if len(words) > 1}
            lines = Counter(
                (word, translation)
                for source, target in corpus.pairs()
                for word in {*words(source)}
                for translation in lexicon.get(word, set()).intersection(words(target))
            )
            used = [term for term in lines if lines[term] > 1]
            # The last one of a word counts: the rarest.
            rarest = dict(sorted(used, key=lambda term: (-often[term[1]], term)))
            text = (f"{word}\t{target}\n" for word, target in sorted(rarest.items()))
            file.write_text("".join(text), encoding="utf-8")
        return Terms(str(file), "glossary")


def term_rows(args, models, corpus, pairs):
    sources, rows = [source for source, _ in pairs], []
    sorts = {"used": [], "other": [], "none": [], "all": [*range(len(pairs))]}
    terms = glossary(args, models["trained"], corpus)
    matches = [*map(terms.matches, sources)]
    for row, (line_matches, (_, target)) in enumerate(zip(matches, pairs, strict=True)):
        used = all(term.outcome == "exact" for term in check(line_matches, target))
        sorts["none" if not line_matches else "used" if used else "other"].append(row)
    options = {mode: {"terms": terms, "term_mode": mode} for mode in ("soft", "hard")}
    arms = {
        (name, mode): partial(model.translate, sources, warn=False, **option)
        for name, model in models.items()
        for mode, option in {**options, "none": {}}.items()
        if (name, mode) != ("plain", "soft")
    }
    results, seconds = timed(arms, args.rounds)
    texts = {arm: [*map(str, translations)] for arm, translations in results.items()}
    filled = [(sort, numbers) for sort, numbers in sorts.items() if numbers]
    for (name, mode), (sort, numbers) in itertools.product(arms, filled):
        outputs, none = ([texts[name, m][n] for n in numbers] for m in (mode, "none"))
        counts = [
            Counter(term.outcome for term in check(matches[n], text))
            for n, text in zip(numbers, outputs, strict=True)
        ]
        total = sum(counts, Counter())
        cells = {"model": name, "mode": mode, "sort": sort, "lines": len(numbers)}
        cells |= {"asked": total.total()} | {key: total[key] for key in OUTCOMES}
        cells |= share("exact, %", [(term["exact"], term.total()) for term in counts])
        cells["changed"] = sum(map(str.__ne__, outputs, none))
        cells |= scores(outputs, [pairs[n] for n in numbers], corpus.target)
        cells["lines/s"] = len(outputs) / seconds[name, mode] if sort == "all" else None
        rows.append(cells)
    return rows, {"terms": terms.count}


def speed_rows(args, models, corpus, pairs):
    model, sources = models["trained"], [source for source, _ in pairs]
    tags = [tagged(s, np.random.default_rng(n)).text for n, s in enumerate(sources)]
    terms, rows = glossary(args, model, corpus), []
    modes = ["check", "hard", "soft"][: 2 + knows(model, MARKS)]
    markup, sentences = {"markup": "html"}, {"split": "sentences"}
    every = {"placeholders": True, "terms": terms, **markup, **sentences}
    options = {
        "nothing": (sources, {}),
        "placeholders": (sources, {"placeholders": True}),
        **{f"terms, {m}": (sources, {"terms": terms, "term_mode": m}) for m in modes},
        "markup": (sources, markup),
        "split": (sources, sentences),
        "everything": (sources, every),
        "markup, lines with tags": (tags, markup),
        "everything, lines with tags": (tags, every),
    }
    works = {
        name: partial(model.translate, lines, warn=False, **option)
        for name, (lines, option) in options.items()
    }
    results, seconds = timed(works, args.rounds)
    has = {
        "placeholders": find,
        "terms": terms.matches,
        "markup": re.compile("[<&]").search,
        "split": lambda line: len([*split(line, corpus.source)]) > 1,
    }
    for name, (lines, option) in options.items():
        kinds = [has[key] for key in option if key in has]
        free = [
            n
            for n, line in enumerate(lines)
            if not any(find_kind(line) for find_kind in kinds)
        ]
        text_pairs = [(results[name][n], results["nothing"][n]) for n in free]
        cells = {"option": name, "seconds": seconds[name]}
        cells |= {
            "relative": seconds[name] / seconds["nothing"],
            "compared": len(text_pairs),
        }
        cells["other text"] = sum(a.text != b.text for a, b in text_pairs)
        cells["other score"] = sum(a.score != b.score for a, b in text_pairs)
        rows.append(cells)
    return rows, {"terms": terms.count}


PARTS = {"placeholders": placeholder_rows, "terms": term_rows, "speed": speed_rows}


def define_flags():
    define_workdir_flags()
    define_test_flag()
    measuring.define_flags(rounds=3)
    flags.DEFINE_enum("part", None, [*PARTS], "What is measured.", required=True)
    flags.DEFINE_string("plain", None, "Workdir of a model to compare with.")
    flags.DEFINE_string("glossary", None, "File of terms; made if it is not there.")
    flags.DEFINE_integer("lines", 0, "Use only the first N pairs; 0 means all.")


def main(_):
    args = flags.FLAGS
    measuring.begin(args)
    models = {
        name: Translator.load(workdir, args.checkpoint, args.dtype)
        for name, workdir in (("trained", args.workdir), ("plain", args.plain))
        if workdir
    }
    corpus, pairs = measuring.test_pairs(args, models["trained"].config)
    rows, measured = PARTS[args.part](args, models, corpus, pairs)
    measured |= {"test": corpus.spec, "lines": len(pairs)}
    measuring.publish(rows, args.output, **measured)


if __name__ == "__main__":
    run(main, define_flags)
