"""Measures what becomes of placeholders and terms, and what each option costs.

    python -m benchmarks.preserving --part=placeholders --workdir=DIR --plain=DIR \\
        --test=PREFIX
    python -m benchmarks.preserving --part=terms --workdir=DIR --plain=DIR --test=PREFIX
    python -m benchmarks.preserving --part=speed --workdir=DIR --test=PREFIX

--workdir was trained with what is measured, --plain was not; --plain may be left out.

placeholders: of the lines that have placeholders, the share whose translation has each
    exactly once; lines that lack one (lost), or have one too often (repeated). All
    three look at the text alone. `reported` also counts lines in which a repeated
    symbol was taken out. `first search` demands nothing, `placeholders` searches again
    what lacks some, `off` shows placeholders to the model as they are. A second table
    has the share kept of each kind.
terms: the lexicon that `augment=terms` learns from has several translations of some
    words. Each of these words is a term; its target is the one, of those that at least
    two references have in a line with the word, that is rarest in the training text:
    what a model is not likely to write by itself. Lines are `used` if the reference has
    all targets of their terms, `other` if it lacks one, `none` if they have no term.
    `changed` counts lines whose text is not that of the same model without terms; for
    `none` it is 0.
speed: seconds to translate all lines with an option, and relative to no option. Of the
    lines that have nothing for an option to preserve, the number whose text or score is
    not the same to the bit; it is 0.

Rounds take turns, and medians count. 95% intervals are by bootstrap over lines.
"""

import re
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

import numpy as np
from absl import flags

from benchmarks import measuring, run
from benchmarks.markup import tagged
from t2t_jax.commands.flags import define_test_flag, define_workdir_flags
from t2t_jax.data.corpus import Corpus, Pair, open_corpora
from t2t_jax.data.tokenizers.vocabulary import parse_symbols
from t2t_jax.decoding.preserving import Report
from t2t_jax.decoding.results import Translation
from t2t_jax.decoding.translator import Translator
from t2t_jax.io.errors import UserError
from t2t_jax.io.messages import say
from t2t_jax.metrics.measures import Measure, percent, with_count
from t2t_jax.metrics.text_measures import text_measures
from t2t_jax.text.placeholders import MARKS, SYMBOLS, find, protect, restore
from t2t_jax.text.sentences import split
from t2t_jax.text.terms import OUTCOMES, Terms, check, learn_lexicon
from t2t_jax.text.units import units

SHARE = Measure("share in percent", None, percent)
LEAST = 2  # references that have a term's target


def scores(texts: Sequence[str], pairs: Sequence[Pair], language: str) -> dict:
    """Cells of BLEU and chrF."""
    cells, measures = {}, text_measures(language)
    for name, title in (("bleu", "BLEU"), ("chrf", "chrF")):
        statistics = measures[name].statistics(texts, pairs)
        cells |= measuring.with_interval(title, measures[name], statistics)
    return cells


def knows(translator: Translator, symbols: Sequence[str]) -> bool:
    """True if the model was trained with all these symbols."""
    return {*symbols} <= {*parse_symbols(translator.config.data.symbols)}


def timed(
    contenders: Mapping[str, Callable[[], list[Translation]]], rounds: int
) -> tuple[dict[str, list[Translation]], dict[str, float]]:
    """What each returns, and its seconds: the median of rounds after the first."""

    def seconds(work: Callable) -> float:
        began = time.monotonic()
        work()
        return time.monotonic() - began

    found = {name: work() for name, work in contenders.items()}  # it compiles
    clocks = {name: partial(seconds, work) for name, work in contenders.items()}
    return found, measuring.alternate(clocks, rounds)


# ------------------------------------------------------------------- placeholders


def of_placeholders(args, models: Mapping[str, Translator]) -> tuple[list, dict]:
    """Rows of each model and way, and tables of kinds."""
    corpus, pairs = measuring.test_pairs(args, models["trained"].config)
    pairs = [pair for pair in pairs if find(pair[0])]
    if not pairs:
        raise UserError(f"--test={args.test} has no line with a placeholder; want some")
    sources = [source for source, _ in pairs]
    rows, kinds = [], []

    def add(model: str, way: str, texts: Sequence[str], reported: int, again: int = 0):
        name = {"model": model, "way": way}
        cells, of_kinds = kept(texts, sources)
        more = {"reported": reported, "searched again": again}
        rows.append(name | cells | more | scores(texts, pairs, corpus.target))
        kinds.extend(name | of_kind for of_kind in of_kinds)

    for model, translator in models.items():
        symbols = SYMBOLS if knows(translator, SYMBOLS) else ()
        protected = [protect(source, symbols) for source in sources]
        searched = translator.translate([each.text for each in protected], warn=False)
        restored = [*map(restore, map(str, searched), protected)]
        wrong = sum(bool(each.missing or each.repeated) for each in restored)
        add(model, "first search", [each.text for each in restored], wrong)
        report = Report()
        both = translator.translate(
            sources, placeholders=True, report=report, warn=False
        )
        again = report.placeholders["searched again"]
        add(model, "placeholders", [*map(str, both)], len({*report.lost}), again)
        if symbols:  # else it is the first search
            texts = [*map(str, translator.translate(sources, warn=False))]
            add(model, "off", texts, 0)
    add("reference", "", [target for _, target in pairs], 0)
    print(*measuring.markdown(kinds), "", sep="\n")
    return rows, {"kinds": kinds}


def kept(texts: Sequence[str], sources: Sequence[str]) -> tuple[dict, list[dict]]:
    """Cells of what texts keep of the placeholders of their sources; rows by kind."""
    asked, lost, states = [], [], []
    for text, source in zip(texts, sources, strict=True):
        kind_of = {source[p.begin : p.end]: p.kind for p in find(source)}
        spelled = restore(text, protect(source, ()))
        asked.append(Counter(p.kind for p in find(source)))
        lost.append(Counter(kind_of[each] for each in spelled.missing))
        states.append((bool(spelled.missing), bool(spelled.repeated)))
    exact = with_count([not any(state) for state in states])
    cells = {"lines": len(texts), "asked": sum(map(Counter.total, asked))}
    cells |= measuring.with_interval("exactly once, %", SHARE, exact)
    cells["lost"], cells["repeated"] = map(sum, zip(*states, strict=True))
    of_kinds = []
    for kind, number in sum(asked, Counter()).most_common():
        counts = [
            (a[kind] - b[kind], a[kind]) for a, b in zip(asked, lost, strict=True)
        ]
        share = measuring.with_interval("kept, %", SHARE, np.array(counts, np.float64))
        of_kinds.append({"kind": kind, "asked": number} | share)
    return cells, of_kinds


# -------------------------------------------------------------------------- terms


def glossary(args, translator: Translator, corpus: Corpus) -> Terms:
    """The terms of --glossary; makes that file if it is not there."""
    if args.glossary and Path(args.glossary).exists():
        return Terms(args.glossary, "glossary")
    data = translator.config.data
    training = open_corpora(data.train, data.source, data.target, data.dir, True)
    pairs = [pair for each in training for pair in each.pairs()]
    lexicon = learn_lexicon(pairs)
    often = Counter(word for _, target in pairs for word in words(target))
    together = Counter(
        (word, translation)
        for source, target in corpus.pairs()
        for word in {*words(source)}
        for translation in {*words(target)}.intersection(lexicon.get(word, ()))
    )
    choices = defaultdict(list)
    for (word, translation), number in together.items():
        if len(lexicon[word]) > 1 and number >= LEAST:
            choices[word].append((often[translation], translation))
    lines = [f"{word}\t{min(found)[1]}\n" for word, found in sorted(choices.items())]
    with tempfile.TemporaryDirectory() as folder:
        file = Path(args.glossary or Path(folder, "terms.tsv"))
        file.write_text("".join(lines), encoding="utf-8")
        return Terms(str(file), "glossary")


def words(line: str) -> list[str]:
    return [line[begin:end] for begin, end in units(line)]


def of_terms(args, models: Mapping[str, Translator]) -> tuple[list, dict]:
    """Rows of each model, mode and sort of lines."""
    corpus, pairs = measuring.test_pairs(args, models["trained"].config)
    sources = [source for source, _ in pairs]
    terms = glossary(args, models["trained"], corpus)
    matches = [*map(terms.matches, sources)]
    sorts = {"used": [], "other": [], "none": [], "all": [*range(len(pairs))]}
    for row, ((_, reference), of_line) in enumerate(zip(pairs, matches, strict=True)):
        has_all = all(each.outcome == "exact" for each in check(of_line, reference))
        sorts["none" if not of_line else "used" if has_all else "other"].append(row)
    arms = {
        (model, mode or "none"): partial(
            translator.translate,
            sources,
            warn=False,
            **({"terms": terms, "term_mode": mode} if mode else {}),
        )
        for model, translator in models.items()
        for mode in (("soft", "hard", "") if model == "trained" else ("hard", ""))
    }
    found, seconds = timed(arms, args.rounds)
    rows = []
    for (model, mode), translations in found.items():
        texts, without = [*map(str, translations)], [*map(str, found[model, "none"])]
        counts = [
            Counter(each.outcome for each in check(of_line, text))
            for of_line, text in zip(matches, texts, strict=True)
        ]
        for sort, chosen in sorts.items():
            if not chosen:
                continue
            total = sum((counts[row] for row in chosen), Counter())
            cells = {"model": model, "terms": mode, "sort": sort, "lines": len(chosen)}
            cells |= {"asked": total.total()} | {name: total[name] for name in OUTCOMES}
            exact = [(counts[row]["exact"], counts[row].total()) for row in chosen]
            exact = np.array(exact, np.float64)
            cells |= measuring.with_interval("exact, %", SHARE, exact)
            cells["changed"] = sum(texts[row] != without[row] for row in chosen)
            of_sort = [texts[row] for row in chosen], [pairs[row] for row in chosen]
            cells |= scores(*of_sort, corpus.target)
            speed = len(pairs) / seconds[model, mode] if sort == "all" else None
            rows.append(cells | {"lines/s": speed})
    return rows, {"terms": terms.count}


# -------------------------------------------------------------------------- speed


def of_speed(args, models: Mapping[str, Translator]) -> tuple[list, dict]:
    """Rows of each option."""
    translator = models["trained"]
    corpus, pairs = measuring.test_pairs(args, translator.config)
    sources = [source for source, _ in pairs]
    tags = [tagged(s, np.random.default_rng(n)).text for n, s in enumerate(sources)]
    terms = glossary(args, translator, corpus)
    modes = "check", "hard", *(("soft",) if knows(translator, MARKS) else ())
    every = {"placeholders": True, "terms": terms, "markup": "html"}
    every["split"] = "sentences"
    options = {
        "nothing": {},
        "placeholders": {"placeholders": True},
        **{f"terms, {mode}": {"terms": terms, "term_mode": mode} for mode in modes},
        "markup": {"markup": "html"},
        "split": {"split": "sentences"},
        "everything": every,
    }
    of_tags = {"markup, lines with tags": options["markup"]}
    of_tags["everything, lines with tags"] = every
    contenders = {
        name: partial(translator.translate, lines, warn=False, **option)
        for lines, each in ((sources, options), (tags, of_tags))
        for name, option in each.items()
    }
    found, seconds = timed(contenders, args.rounds)
    has = {
        "placeholders": find,
        "terms": terms.matches,
        "markup": re.compile("[<&]").search,
        "split": lambda line: len(split(line, corpus.source)) > 1,
    }
    rows = []
    for name in contenders:
        row = {"option": name, "seconds": seconds[name]}
        row["relative"] = seconds[name] / seconds["nothing"]
        row |= dict.fromkeys(("nothing to preserve", "other text", "other score"))
        if name in options:
            tests = [has[key] for key in options[name] if key in has]
            same = [n for n, s in enumerate(sources) if not any(t(s) for t in tests)]
            both = [(found[name][n], found["nothing"][n]) for n in same]
            row["nothing to preserve"] = len(same)
            row["other text"] = sum(a.text != b.text for a, b in both)
            row["other score"] = sum(a.score != b.score for a, b in both)
        rows.append(row)
    return rows, {"lines": len(sources), "terms": terms.count}


PARTS = {"placeholders": of_placeholders, "terms": of_terms, "speed": of_speed}


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
    named = {"trained": args.workdir, "plain": args.plain}
    if args.part == "speed":
        del named["plain"]
    models = {
        name: Translator.load(workdir, args.checkpoint, args.dtype)
        for name, workdir in named.items()
        if workdir
    }
    for name, translator in models.items():
        say(f"{name}: {translator!r}")
    rows, measured = PARTS[args.part](args, models)
    measuring.publish(rows, args.output, test=args.test, **measured)


if __name__ == "__main__":
    run(main, define_flags)
