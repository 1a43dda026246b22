"""Scores of parsers that are no neural networks: `python -m benchmarks.parsing`.

Prints the scores of three parsers for each test set. "majority": the most frequent tree
of the training sentences with as many words. "right": each word and all after it are a
constituent, with the most frequent label. "pcfg": the most probable tree by the rules
of the training trees (`chart.py`); if there is none, a flat one. The first two
ignore the words. `evaluate --baseline` compares a model with the files of --out.
"""

import collections
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from absl import flags

from benchmarks import measuring, run
from benchmarks.chart import Chart
from t2t_jax.config import Config, DataConfig, TaskConfig
from t2t_jax.data.corpus import Pair, open_specs
from t2t_jax.extensions.grammar.trees import Tree, bracketed, parse_bracketed
from t2t_jax.extensions.tasks.parsing import Parsing, repair, tokens
from t2t_jax.extensions.tasks.treebank import open_treebank, split_words

Parser = Callable[[Sequence[str]], Tree]


def majority(pairs: Iterable[Pair]) -> Parser:
    """Returns the most frequent tree by length; of the nearest length if there is none.

    Of trees that are equally frequent it is the first.
    """
    counts = collections.defaultdict(collections.Counter)
    for sentence, line in pairs:
        counts[len(sentence.split())][line] += 1
    best = {length: lines.most_common(1)[0][0] for length, lines in counts.items()}

    def parse(words: Sequence[str]) -> Tree:
        return repair(best[min(best, key=lambda n: abs(n - len(words)))], words)

    return parse


def right_branching(pairs: Iterable[Pair]) -> Parser:
    """Returns trees in which every constituent is a word and a constituent."""
    labels = collections.Counter(
        token[1:] for _, line in pairs for token in tokens(line) if token[0] == "("
    )
    label = labels.most_common(1)[0][0]

    def parse(words: Sequence[str]) -> Tree:
        # The last constituent has two words, and is closed as all are.
        return repair(max(len(words) - 1, 1) * f"({label}=XX" + "=XX", words)

    return parse


def pcfg(trees: Iterable[Tree]) -> Parser:
    """Returns the most probable tree, or a flat one."""
    chart = Chart(trees)
    return lambda words: chart.parse(words) or repair("", words)


def define_flags():
    measuring.define_flags(rounds=None)
    flags.DEFINE_string("train", "grammar:trees", "Training treebanks.")
    flags.DEFINE_string("test", "grammar:trees/test,grammar:trees/unseen", "Test sets.")
    flags.DEFINE_string("language", "en", "Language of the built-in treebank.")
    flags.DEFINE_string("out", "", "A folder for the trees; empty writes none.")


def main(_):
    args = flags.FLAGS
    measuring.begin(args)
    data = DataConfig(source="words", target=args.language)
    task = Parsing(Config(task=TaskConfig(kind="parsing"), data=data))
    corpora = open_specs(args.train, task.open, weights=True)
    pairs = [pair for corpus in corpora for pair in corpus.pairs()]
    # The grammar needs the tags of the words, which the task's lines do not have.
    tagged = [
        open_treebank(corpus.spec, args.language, bracketed) for corpus in corpora
    ]
    parsers = {
        "majority": majority(pairs),
        "right": right_branching(pairs),
        "pcfg": pcfg(
            parse_bracketed(line) for corpus in tagged for _, line in corpus.pairs()
        ),
    }
    rows = []
    for corpus in open_specs(args.test, task.open):
        examples = list(corpus.pairs())
        for name, parse in parsers.items():
            answers = [bracketed(parse(split_words(words))) for words, _ in examples]
            scores = task.quick_scores(answers, examples)
            rows.append({"set": corpus.name, "parser": name, **_numbers(scores)})
            if args.out:
                file = Path(args.out, f"{corpus.name}.{name}.trees")
                file.write_text("".join(f"{line}\n" for line in answers), "utf-8")
    measuring.publish(rows, args.output)


def _numbers(scores: dict) -> dict[str, float]:
    return {name: x for name, x in scores.items() if isinstance(x, int | float)}


if __name__ == "__main__":
    run(main, define_flags)
