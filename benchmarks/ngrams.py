"""Compares a language model with n-gram models of the same text and pieces.

    python -m benchmarks.ngrams --workdir=DIR --lmplz=FILE --orders=3,4,5

The n-gram models are KenLM's (github.com/kpu/kenlm; FILE is its program `lmplz`):
modified Kneser-Ney, interpolated. They are trained on the pieces that the run was
trained on, after cleaning, and score the run's test sets. No word is unknown to either
side, since both spell words in the same pieces; pieces that do not occur in training
share KenLM's mass of the unknown. With --pieces=N the n-gram models have a vocabulary
of their own, which bits per byte and perplexity per word allow for.
"""

import argparse
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from t2t_jax.config import Config
from t2t_jax.config import changed as with_changes
from t2t_jax.data import prepare
from t2t_jax.data.corpus import open_places
from t2t_jax.data.tokenizers.training import make_tokenizer
from t2t_jax.data.tokenizers.vocabulary import Vocabulary
from t2t_jax.evaluation.scores import stored_scores
from t2t_jax.io.errors import UserError
from t2t_jax.metrics import likelihoods
from t2t_jax.tasks.table import task_of
from t2t_jax.workdir import Workdir

BEGIN, END, UNKNOWN = "<s>", "</s>", "<unk>"


class BackOff:
    """A back-off model, as ARPA files hold it; words are strings.

    Attributes:
      order: the length of the longest n-grams.
    """

    def __init__(self, file: Path):
        # History -> next word -> probability; history -> weight of shorter histories.
        self._next: dict[tuple, dict[str, float]] = {}
        self._weights: dict[tuple, float] = {}
        self.order = 0
        with open(file, encoding="utf-8") as lines:
            for line in lines:
                # log10 of the probability, the words, and log10 of the weight, if any.
                log_prob, *rest = line.rstrip("\n").split("\t")
                if not rest:
                    continue
                *history, word = ngram = tuple(rest[0].split(" "))
                self.order = max(self.order, len(ngram))
                self._next.setdefault(tuple(history), {})[word] = 10 ** float(log_prob)
                if len(rest) > 1:
                    self._weights[ngram] = 10 ** float(rest[1])

    def prob(self, history: tuple[str, ...], word: str) -> float:
        """Returns the probability of a word after a history."""
        history = history[len(history) - min(len(history), self.order - 1) :]
        weight = 1.0
        while (found := self._next.get(history, {}).get(word)) is None:
            if not history:  # a word that training text does not have
                return weight * self._next[()][UNKNOWN]
            weight *= self._weights.get(history, 1.0)
            history = history[1:]
        return weight * found

    def log_prob(self, words: Sequence[str]) -> float:
        """Returns the natural log-probability of a line and its end."""
        line = (BEGIN, *words, END)
        return sum(
            np.log(self.prob(line[max(0, i - self.order + 1) : i], line[i]))
            for i in range(1, len(line))
        )

    def sample(self, rng: np.random.Generator, longest: int = 200) -> list[str]:
        """Draws a line; one without an end is cut."""
        line = [BEGIN]
        while line[-1] != END and len(line) <= longest:
            line.append(self._draw(tuple(line[-self.order + 1 :]), rng))
        return line[1 : -1 if line[-1] == END else None]

    def _draw(self, history: tuple[str, ...], rng: np.random.Generator) -> str:
        known = self._next.get(history, {})
        if not history:
            known = {w: p for w, p in known.items() if w not in (BEGIN, UNKNOWN)}
        if not history or rng.random() < sum(known.values()):
            p = np.array([*known.values()])
            return [*known][rng.choice(len(p), p=p / p.sum())]
        # Shorter histories serve only the words that this one does not know.
        while (word := self._draw(history[1:], rng)) in known:
            pass
        return word


def train(
    lmplz: Path, lines: Sequence[Sequence[int]], order: int, pieces: int
) -> BackOff:
    """Trains a model on lines of token ids.

    Args:
      pieces: the size of the vocabulary; unknown pieces share the mass of one each.

    Raises:
      UserError: KenLM fails.
    """
    with tempfile.TemporaryDirectory() as folder:
        text, arpa = Path(folder) / "text", Path(folder) / "arpa"
        text.write_text("".join(" ".join(map(str, line)) + "\n" for line in lines))
        command = [lmplz, "-o", order, "-S", "1G", "-T", folder, "--vocab_pad", pieces]
        command += ["--discount_fallback", "--text", text, "--arpa", arpa]
        done = subprocess.run([*map(str, command)], capture_output=True, text=True)
        if done.returncode:
            raise UserError(f"{lmplz} fails: {done.stderr.strip()[-500:]}")
        return BackOff(arpa)


def training_lines(
    config: Config, pieces: int, folder: Workdir
) -> tuple[Vocabulary, list[list[int]]]:
    """Returns a vocabulary and the training text in its pieces, without EOS.

    Args:
      pieces: its size; 0 takes the vocabulary of the run.
    """
    task = task_of(config)
    vocabulary = folder.vocabulary()
    training = open_places(config.data.train, task.open, config.data.dir, weights=True)
    data = task.data()
    if pieces:
        data = with_changes(config, "data", vocab_size=pieces).data
        vocabulary = make_tokenizer(training, data, task.sides)
    pairs = prepare.prepared_pairs(training, vocabulary, task.data(), task)
    ends = np.flatnonzero(pairs.target.tokens == vocabulary.eos)
    # Blocks are joined again: the n-gram models have whole texts.
    texts = np.split(np.asarray(pairs.target.tokens), ends + 1)[:-1]
    return vocabulary, [text[:-1].tolist() for text in texts]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--workdir", required=True)
    parser.add_argument("--lmplz", type=Path, required=True)
    parser.add_argument("--orders", default="3,4,5")
    parser.add_argument("--pieces", type=int, default=0)
    given = parser.parse_args()
    workdir = Workdir.open(given.workdir)
    config = workdir.config()
    task = task_of(config)
    tests = open_places(config.data.test, task.open, config.data.dir)
    vocabulary, lines = training_lines(config, given.pieces, workdir)
    print(
        f"{len(lines):,} lines, {sum(map(len, lines)):,} pieces of {len(vocabulary):,}"
    )
    for order in map(int, given.orders.split(",")):
        model = train(given.lmplz, lines, order, len(vocabulary))
        for corpus in tests:
            pairs = [*corpus.pairs()]
            encoded = vocabulary.encode([text for _, text in pairs])
            answers = [
                likelihoods.answer(model.log_prob([*map(str, ids)]), len(ids) + 1)
                for ids in encoded
            ]
            scores = task.quick_scores(answers, pairs)
            show(f"{order}-gram", corpus.name, scores)
    for name, scores in stored_scores(workdir).items():
        show("the run", name, scores)


def show(system: str, name: str, scores: dict) -> None:
    """Prints a row of the table."""
    columns = "   ".join(f"{m} {scores[m]:.4g}" for m in likelihoods.LIKELIHOODS)
    print(f"{system:10} {name:20} {columns}")


if __name__ == "__main__":
    main()
