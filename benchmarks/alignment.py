"""Measures word alignments against gold links: alignment error rate (AER).

    python -m benchmarks.alignment --workdir=DIR --test=grammar:test
    python -m benchmarks.alignment --workdir=DIR --test=test_2016_flickr \\
        --gold=benchmarks/links_multi30k.json --eflomal=eflomal-align

Aligns words and signs of the test set's pairs, and prints for each aligner: the error
rate, precision (links that are possible) and recall (sure links that are found), in
percent (Och and Ney 2003). In brackets are 95% intervals: 1,000 bootstrap samples of
the pairs.

attention: `Translator.align_units`: the model reads both sides of a pair.
Aligner: IBM Model 1, from the model's training text and the test set, lower-cased;
    grow-diag joins both directions. Guided alignment learns such links.
eflomal: the same text, by a program that is not part of this project; grow-diag joins
    both directions. It draws at random, so its links vary from run to run.
"""

import itertools
import json
import re
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from absl import flags

from benchmarks import measuring, run
from benchmarks.gold_links import GoldLinks, gold_links
from t2t_jax.commands.flags import (
    ENSEMBLE,
    define_test_flag,
    define_workdir_flags,
    test_sets,
    workdirs_of,
)
from t2t_jax.data.corpus import Corpus, Pair, open_corpora
from t2t_jax.decoding.translator import Translator
from t2t_jax.evaluation.provenance import hashed
from t2t_jax.extensions.text.word_alignment import align_words, grow_diagonal
from t2t_jax.io.errors import UserError
from t2t_jax.io.messages import say
from t2t_jax.metrics.measures import Measure, percent
from t2t_jax.text.units import units

Links = set[tuple[int, int]]
Words = list[str]


def define_gold_flags():
    """Defines a workdir, a test set, and its gold links."""
    define_workdir_flags(ENSEMBLE)
    define_test_flag()
    measuring.define_flags(rounds=None)
    flags.DEFINE_integer("lines", 0, "Use only the first N pairs; 0 means all.")
    flags.DEFINE_string("gold", "", "File of gold links; grammar: sets have their own.")


def define_flags():
    define_gold_flags()
    flags.DEFINE_string("eflomal", "", "The program eflomal-align; empty skips it.")


def main(_):
    args = flags.FLAGS
    measuring.begin(args)
    translator = Translator.load(workdirs_of(args), args.checkpoint, args.dtype)
    say(repr(translator))
    config = translator.config
    corpus = test_sets(args, config)[0]
    pairs, gold = with_gold(corpus, args.gold)
    pairs, gold = pairs[: args.lines or None], gold[: args.lines or None]
    where = config.data.source, config.data.target, config.data.dir
    training = open_corpora(config.data.train, *where, weights=True)
    text = [(words(source), words(target)) for source, target in pairs]
    for source, target in itertools.chain(*(each.pairs() for each in training)):
        if source and target:
            text.append((words(source), words(target)))
    methods = {
        "attention": [{*each.links} for each in translator.align_units(pairs)],
        "Aligner": align_words(text, len(pairs)),
    }
    if args.eflomal:
        methods["eflomal"] = eflomal(args.eflomal, text, len(pairs))
    sure, possible = (sum(map(len, side)) for side in zip(*gold, strict=True))
    print(
        f"{len(pairs):,} pairs of {corpus.spec}, {sure:,} sure and {possible - sure:,} "
        "only possible links\n"
    )
    rows = [row(name, links, gold) for name, links in methods.items()]
    measuring.publish(rows, args.output, test=corpus.spec, gold=args.gold)


def with_gold(corpus: Corpus, path: str) -> tuple[list[Pair], list[GoldLinks]]:
    """The pairs of a test set that have gold links, and these.

    Args:
      path: a file like `links_multi30k.json`; empty for a split of the grammar.
    """
    pairs = list(corpus.pairs())
    if not path:
        scheme, _, split = corpus.spec.partition(":")
        if scheme != "grammar":
            raise UserError(
                f"--test={corpus.spec} has no gold links; want --gold=FILE, or a split "
                "of the built-in corpus, such as --test=grammar:test"
            )
        return pairs, directed(gold_links(split), corpus.source == "en")
    stored = json.loads(Path(path).read_text(encoding="utf-8"))
    forwards = (corpus.source, corpus.target) == (stored["source"], stored["target"])
    for side, language in enumerate((corpus.source, corpus.target)):
        if hashed([pair[side] for pair in pairs]) != stored["sha256"].get(language):
            raise UserError(
                f"--gold={path} has links of the text with the SHA-256 "
                f"{stored['sha256']}, but the {language!r} side of {corpus.spec} is "
                f"another text; want {stored['set']}, unchanged"
            )
    gold = []
    for line in stored["lines"].values():
        links = re.findall(r"(\d+)([-p])(\d+)", line)
        possible = [(int(i), int(j)) for i, _, j in links]
        sure = [(int(i), int(j)) for i, sign, j in links if sign == "-"]
        gold.append(GoldLinks(sure, possible))
    return [pairs[int(n) - 1] for n in stored["lines"]], directed(gold, forwards)


def directed(gold: Sequence[GoldLinks], forwards: bool) -> list[GoldLinks]:
    """Gold links as (source unit, target unit), turned around unless `forwards`."""
    order = 1 if forwards else -1
    return [
        GoldLinks(*([link[::order] for link in links] for links in line))
        for line in gold
    ]


def words(line: str) -> Words:
    """The units of a line, in lower case."""
    return [line[begin:end].lower() for begin, end in units(line)]


def eflomal(
    program: str, text: Sequence[tuple[Words, Words]], count: int
) -> list[Links]:
    """Aligns the first pairs of a text by eflomal, run on all of it."""
    with tempfile.TemporaryDirectory() as folder:
        names = [Path(folder, name) for name in ("source", "target", "one", "other")]
        for side, file in enumerate(names[:2]):
            lines = (" ".join(pair[side]) + "\n" for pair in text)
            file.write_text("".join(lines), encoding="utf-8")
        options = zip("stfr", names, strict=True)
        command = [program, *(word for n, file in options for word in (f"-{n}", file))]
        try:
            subprocess.run(command, check=True, capture_output=True, text=True)
        except FileNotFoundError as error:
            raise UserError(
                f"--eflomal={program} is not a program; want the path of eflomal-align "
                "(python -m pip install eflomal, in an environment of its own)"
            ) from error
        except subprocess.CalledProcessError as error:
            raise UserError(f"--eflomal={program}: {error.stderr[-300:]}") from error
        sides = [parsed(file.read_text().split("\n")[:count]) for file in names[2:]]
    links = [set() for _ in range(count)]
    for pair, target, source in grow_diagonal(*sides).tolist():
        links[pair].add((source, target))
    return links


def parsed(lines: Sequence[str]) -> np.ndarray:
    """Reads links in Pharaoh's format, 0-0 1-2, as `grow_diagonal` takes them."""
    links = [
        (pair, int(target), int(source))
        for pair, line in enumerate(lines)
        for source, target in (link.split("-") for link in line.split())
    ]
    return np.array(links, np.int64).reshape(-1, 3)


def link_counts(links: Sequence[Links], gold: Sequence[GoldLinks]) -> np.ndarray:
    """Counts of each sentence, float64 [n, 4].

    The links, those of them that are possible, the sure links, those that are found.
    """
    counts = [
        (
            len(guess),
            len(guess & {*possible}),
            len(sure),
            len(guess & {*sure}),
        )
        for guess, (sure, possible) in zip(links, gold, strict=True)
    ]
    return np.array(counts, float).reshape(-1, 4)


# A score is 100 times the ratio of two sums of the counts (Och and Ney 2003).
ERRORS = np.array([[1, 1], [-1, 0], [1, 1], [-1, 0]])
MEASURES = {
    "aer": Measure("AER", link_counts, lambda c: percent(c @ ERRORS), False),
    "precision": Measure("precision", link_counts, lambda c: percent(c[..., [1, 0]])),
    "recall": Measure("recall", link_counts, lambda c: percent(c[..., [3, 2]])),
}


def row(name: str, links: Sequence[Links], gold: Sequence[GoldLinks]) -> dict:
    """The row of an aligner."""
    cells = {"aligner": name}
    for score, measure in MEASURES.items():
        counts_nk = measure.statistics(links, gold)
        cells |= measuring.with_interval(score, measure, counts_nk)
    return cells | {"links": sum(map(len, links))}


if __name__ == "__main__":
    run(main, define_flags)
