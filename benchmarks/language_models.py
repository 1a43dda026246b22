"""Compares a language model with n-gram models of the same text and tokens.

    python -m benchmarks.language_models --workdir=DIR [--lmplz=FILE] [--orders=3,4,5]
    python -m benchmarks.language_models --workdir=DIR --grammatical [--samples=500]

The n-gram models are KenLM's (github.com/kpu/kenlm; FILE is its program `lmplz`):
modified Kneser-Ney, interpolated. They are trained on the tokens that the run was
trained on, after cleaning, and score the run's test sets. No word is unknown to either
side, since both spell words in the same tokens; those that do not occur in training
share KenLM's mass of the unknown. With --pieces=N the n-gram models have a vocabulary
of their own, which bits per byte and perplexity per word allow for.

With --grammatical, for a run of configs/lm_tiny.py: sentences are sampled from nothing
at temperature 1, and a chart parser judges them by the rules of the training trees:
agreement, word order and what verbs take, not meaning. Next to them: real sentences
that training did not have (the most that is possible: the parser may lack a rule).
"""

import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from absl import flags

from benchmarks import measuring, run
from benchmarks.chart import grammatical
from t2t_jax.config import Config
from t2t_jax.config import changed as with_changes
from t2t_jax.data import prepare
from t2t_jax.data.corpus import open_specs
from t2t_jax.data.tokenizers.training import make_tokenizer
from t2t_jax.data.tokenizers.vocabulary import Vocabulary
from t2t_jax.decoding.translator import Translator
from t2t_jax.evaluation.scores import stored_scores
from t2t_jax.extensions.grammar import corpus as built_in
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
                log_prob, *fields = line.rstrip("\n").split("\t")
                if not fields:
                    continue
                *history, word = ngram = tuple(fields[0].split(" "))
                self.order = max(self.order, len(ngram))
                self._next.setdefault(tuple(history), {})[word] = 10 ** float(log_prob)
                if len(fields) > 1:
                    self._weights[ngram] = 10 ** float(fields[1])

    def prob(self, history: tuple[str, ...], word: str) -> float:
        """Returns the probability of a word after a history."""
        history = history[len(history) - min(len(history), self.order - 1) :]
        weight = 1.0
        while (probability := self._next.get(history, {}).get(word)) is None:
            if not history:  # a word that training text does not have
                return weight * self._next[()][UNKNOWN]
            weight *= self._weights.get(history, 1.0)
            history = history[1:]
        return weight * probability

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
        following = self._next.get(history, {})
        if not history:
            following = {
                w: p for w, p in following.items() if w not in (BEGIN, UNKNOWN)
            }
        if not history or rng.random() < sum(following.values()):
            p = np.array([*following.values()])
            return [*following][rng.choice(len(p), p=p / p.sum())]
        # Shorter histories serve only the words that this one does not know.
        while (word := self._draw(history[1:], rng)) in following:
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
        process = subprocess.run([*map(str, command)], capture_output=True, text=True)
        if process.returncode:
            raise UserError(f"{lmplz} fails: {process.stderr.strip()[-500:]}")
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
    training = open_specs(config.data.train, task.open, config.data.dir, weights=True)
    data = task.data()
    if pieces:
        data = with_changes(config, "data", vocab_size=pieces).data
        vocabulary = make_tokenizer(training, data, task.sides)
    pairs = prepare.prepared_pairs(training, vocabulary, task.data(), task)
    ends = np.flatnonzero(pairs.target.tokens == vocabulary.eos)
    # Blocks are joined again: the n-gram models have whole texts.
    texts = np.split(np.asarray(pairs.target.tokens), ends + 1)[:-1]
    return vocabulary, [text[:-1].tolist() for text in texts]


def shares(lines: Sequence[str], training: set[str], language: str) -> dict[str, float]:
    """Shares of lines that are grammatical, in the training text, and new."""
    accepted = [grammatical(line, language) for line in lines]
    return {
        "grammatical": np.mean(accepted),
        "in training text": np.mean([line in training for line in lines]),
        "grammatical and new": np.mean(
            [
                ok and line not in training
                for ok, line in zip(accepted, lines, strict=True)
            ]
        ),
        "distinct": len({*lines}) / len(lines),
    }


def likelihood_rows(
    workdir: Workdir, models: dict[str, BackOff], vocabulary: Vocabulary
) -> list[dict]:
    """Rows of the n-gram models' likelihoods of the test sets, and of the run's."""
    config = workdir.config()
    task, rows = task_of(config), []
    tests = open_specs(config.data.test, task.open, config.data.dir)
    for name, model in models.items():
        for corpus in tests:
            pairs = [*corpus.pairs()]
            encoded = vocabulary.encode([text for _, text in pairs])
            answers = [
                likelihoods.answer(model.log_prob([*map(str, ids)]), len(ids) + 1)
                for ids in encoded
            ]
            scores = task.quick_scores(answers, pairs)
            rows.append({"model": name, "set": corpus.name} | _likelihoods(scores))
    for name, scores in stored_scores(workdir).items():
        rows.append({"model": "the run", "set": name} | _likelihoods(scores))
    return rows


def _likelihoods(scores: dict) -> dict[str, float]:
    return {name: scores[name] for name in likelihoods.LIKELIHOODS}


def grammatical_rows(
    workdir: Workdir, models: dict[str, BackOff], vocabulary: Vocabulary, args
) -> list[dict]:
    """Rows of the shares of sampled sentences that the built-in grammar accepts."""
    language = workdir.config().data.target
    side = ("en", "de").index(language)
    training = {pair[side] for pair in built_in.pairs("train")}
    translator = Translator.load(args.workdir)
    sampled = translator.sample([""] * args.samples, seed=args.seed, warn=False)
    systems = {
        "the run": [str(text) for text in sampled],
        "unseen sentences": [pair[side] for pair in built_in.pairs("unseen")],
    }
    for name, model in models.items():
        rng = np.random.default_rng(args.seed)
        drawn = [[*map(int, model.sample(rng))] for _ in range(args.samples)]
        systems[name] = vocabulary.decode(drawn)
    for name, lines in systems.items():
        refused = [line for line in lines if not grammatical(line, language)]
        print("".join(f"{name}, refused: {line}\n" for line in refused[:3]), end="")
    return [
        {"model": name, **shares(lines, training, language)}
        for name, lines in systems.items()
    ]


def define_flags():
    measuring.define_flags(rounds=None)
    flags.DEFINE_string("workdir", None, "Workdir of a language model.", required=True)
    flags.DEFINE_string("lmplz", None, "KenLM's program; without it, the run alone.")
    flags.DEFINE_list("orders", ["3", "4", "5"], "Orders of the n-gram models.")
    flags.DEFINE_integer("pieces", 0, "Their vocabulary; 0 takes the run's.")
    flags.DEFINE_boolean("grammatical", False, "Judge sampled sentences.")
    flags.DEFINE_integer("samples", 500, "Sentences that are sampled.")
    flags.DEFINE_integer("seed", 0, "Seed of the samples.")


def main(_):
    args = flags.FLAGS
    measuring.begin(args)
    workdir = Workdir.open(args.workdir)
    vocabulary, models = None, {}
    if args.lmplz:
        vocabulary, lines = training_lines(workdir.config(), args.pieces, workdir)
        tokens = sum(map(len, lines))
        print(f"{len(lines):,} lines, {tokens:,} tokens of {len(vocabulary):,}")
        for order in map(int, args.orders):
            model = train(Path(args.lmplz), lines, order, len(vocabulary))
            models[f"{order}-gram"] = model
    if args.grammatical:
        rows = grammatical_rows(workdir, models, vocabulary, args)
    else:
        rows = likelihood_rows(workdir, models, vocabulary)
    measuring.publish(rows, args.output)


if __name__ == "__main__":
    run(main, define_flags)
