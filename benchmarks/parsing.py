"""Scores of parsers that are not learned: `python -m benchmarks.parsing`.

Prints for each test set the scores of trees that ignore the words. "majority": the most
frequent tree of the training sentences with as many words. "right": each word and all
after it are a constituent, with the most frequent label. A trained parser must beat
both; `evaluate --baseline` compares it with the files that --out writes.
"""

import collections
from collections.abc import Callable, Iterable
from pathlib import Path

from absl import flags

from benchmarks import run
from t2t_jax.config import Config, DataConfig, TaskConfig
from t2t_jax.data.corpus import Pair, open_places
from t2t_jax.grammar.trees import bracketed
from t2t_jax.tasks.linearised import repair, tokens
from t2t_jax.tasks.parsing import Parsing

# The number of words of a sentence -> a linearised tree.
Guess = Callable[[int], str]


def majority(pairs: Iterable[Pair]) -> Guess:
    """Returns the most frequent tree by length; of the nearest length if there is none.

    Of trees that are equally frequent it is the first.
    """
    counts = collections.defaultdict(collections.Counter)
    for sentence, line in pairs:
        counts[len(sentence.split())][line] += 1
    best = {length: trees.most_common(1)[0][0] for length, trees in counts.items()}
    return lambda length: best[min(best, key=lambda known: abs(known - length))]


def right_branching(pairs: Iterable[Pair]) -> Guess:
    """Returns trees in which every constituent is a word and a constituent."""
    labels = collections.Counter(
        token[1:] for _, line in pairs for token in tokens(line) if token[0] == "("
    )
    label = labels.most_common(1)[0][0]

    def guess(length: int) -> str:
        inner = max(length - 1, 1)
        return inner * f"({label}=XX" + (length > 1) * "=XX" + inner * f"){label}"

    return guess


def define_flags():
    flags.DEFINE_string("train", "grammar:trees", "Training treebanks.")
    flags.DEFINE_string("test", "grammar:trees/test,grammar:trees/unseen", "Test sets.")
    flags.DEFINE_string("language", "en", "Language of the built-in treebank.")
    flags.DEFINE_string("out", "", "A folder for the trees; empty writes none.")


def main(_):
    given = flags.FLAGS
    data = DataConfig(source="words", target=given.language)
    task = Parsing(Config(task=TaskConfig(kind="parsing"), data=data))
    pairs = [
        p for c in open_places(given.train, task.open, "", True) for p in c.pairs()
    ]
    guesses = {"majority": majority(pairs), "right": right_branching(pairs)}
    for corpus in open_places(given.test, task.open):
        examples = list(corpus.pairs())
        for name, guess in guesses.items():
            words = [sentence.split() for sentence, _ in examples]
            answers = [bracketed(repair(guess(len(w)), w)) for w in words]
            scores = task.quick_scores(answers, examples)
            print(f"{corpus.name:16} {name:9} {task.row(scores, corpus)}")
            if given.out:
                file = Path(given.out, f"{corpus.name}.{name}.trees")
                file.write_text("".join(f"{line}\n" for line in answers), "utf-8")


if __name__ == "__main__":
    run(main, define_flags)
