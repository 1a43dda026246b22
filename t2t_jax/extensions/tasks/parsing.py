"""Constituency parsing as translation into a linearised tree (section 6.3).

The source is a sentence, its words separated by spaces as in the treebank. The target
is its tree without the words (Vinyals et al. 2015): a string of tokens without spaces,
in which `(NP` opens a constituent, `)NP` closes it, and each word is one terminal
`=TAG`, because the words are known:

    (S (NP (DT the) (NN dog)) (VP (VBZ barks)) (. !))
    (S(NP=XX=XX)NP(VP=XX)VP=.)S

Tags are not scored, so all are XX, as in that paper. But punctuation is a full stop:
the scores leave it out, and need nothing but a line and its sentence. No label contains
the signs ( ) =, so tokens need no spaces between them, and each can be one token of the
vocabulary.

An answer is a bracketed tree over the words of the sentence, and a tab and `repaired`
if the model's output was not intact.
"""

import collections
import dataclasses
import functools
import hashlib
import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from t2t_jax.config import Config
from t2t_jax.data.corpus import Corpus, Pair
from t2t_jax.data.tokenizers.training import make_tokenizer
from t2t_jax.data.tokenizers.vocabulary import Vocabulary
from t2t_jax.decoding.results import Translation
from t2t_jax.extensions.grammar.trees import Tree, bracketed, parse_bracketed
from t2t_jax.extensions.tasks.treebank import (
    DEEPEST,
    ROOT,
    TRACE,
    cleaned,
    open_treebank,
    split_words,
)
from t2t_jax.io.errors import UserError
from t2t_jax.metrics import brackets
from t2t_jax.metrics.brackets import PUNCTUATION, Counts
from t2t_jax.metrics.measures import Measure, percent
from t2t_jax.sections import field
from t2t_jax.tasks.task import Task

if TYPE_CHECKING:
    from t2t_jax.decoding.translator import Translator

REPAIRED = "\trepaired"
WORD, STOP = "XX", "."
_tokens = re.compile(r"([()=])([^()=\s]*)").findall

# Section 23 of the Wall Street Journal: its sentences, and the SHA-256 of the first.
WSJ_23 = (
    2_416,
    "c43960f4c56236fcf137630cdd011b4e193e8f4ab2283bf0f8ec9d0ce6c067d0",
)


def answer(output: str, sentence: str) -> str:
    """Makes the answer to a sentence from the output of a model."""
    output = output.strip()
    tree = repair(output, split_words(sentence))
    return bracketed(tree) + (REPAIRED if linearise(tree) != output else "")


def tree_text(output: str, sentence: str) -> str:
    """Makes a tree of the output of a model; nothing of a line without words."""
    if not (words := split_words(sentence)):
        return ""
    return bracketed(repair(output.strip(), words))


def read_answer(line: str) -> Tree:
    """Reads the tree of an answer, or of another system's output."""
    if (tree := cleaned(parse_bracketed(line.removesuffix(REPAIRED)))) is None:
        raise UserError(f"{line!r} has traces but no words")
    return tree


@functools.lru_cache(1 << 13)  # every measure asks for them
def _statistics(line: str, pair: Pair) -> tuple[float, ...]:
    """The `Counts` of an answer, whether it was repaired, and 1."""
    sentence, target = pair
    reference = repair(target, split_words(sentence))
    counts = brackets.count(read_answer(line), reference)
    return *counts, line.endswith(REPAIRED), 1


def statistics(answers: Sequence[str], pairs: Sequence[Pair]) -> np.ndarray:
    """Returns the numbers that scores follow from, float64 [examples, numbers].

    Raises UserError, with its line, if an answer is not a tree over the sentence's
    words.
    """
    rows = []
    for number, (line, pair) in enumerate(zip(answers, pairs, strict=True), 1):
        try:
            rows.append(_statistics(line, tuple(pair)))
        except ValueError as e:
            raise UserError(f"answer {number:,}: {e}") from None
    return np.array(rows, np.float64).reshape(len(rows), len(Counts._fields) + 2)


def _measure(
    description: str,
    score: Callable[[Counts], np.ndarray],
    higher_is_better: bool = True,
) -> Measure:
    """A measure that follows from the counts of brackets."""

    def score_sums(sums: np.ndarray) -> np.ndarray:
        return score(Counts(*np.moveaxis(sums[..., :-2], -1, 0)))

    return Measure(description, statistics, score_sums, higher_is_better)


class Parsing(Task):
    """Constituency parsing; scored by labeled brackets, as EVALB does."""

    @dataclasses.dataclass(frozen=True)
    class Options:
        """`tags`: the model writes the tag of each word, not XX."""

        tags: bool = field(False)

    unused = ("alignments",)
    measures: ClassVar[dict[str, Measure]] = {
        "f1": _measure("labelled bracketing F1, as EVALB's", brackets.f1),
        "precision": _measure("labelled precision, %", brackets.precision),
        "recall": _measure("labelled recall, %", brackets.recall),
        "complete_match": _measure(
            "sentences without a wrong bracket, %", brackets.complete_match
        ),
        "crossing": _measure(
            "crossing brackets of a sentence", brackets.crossing, False
        ),
        "repaired": Measure(
            "outputs that were no tree of the sentence, %",
            statistics,
            lambda sums: percent(sums[..., -2:]),
            higher_is_better=False,
        ),
        "tagging_accuracy": _measure(
            "words with the right tag, %", brackets.tagging_accuracy
        ),
    }

    def __init__(self, config: Config):
        if not config.task.own_options(Parsing).tags:
            self.measures = dict(self.measures)
            del self.measures["tagging_accuracy"]
        super().__init__(config)

    def linearise(self, tree: Tree) -> str:
        """Writes a tree of the treebank as the target of an example."""
        return linearise(tree if self.options.tags else without_tags(tree))

    def open(self, spec: str, folder: str = "") -> Corpus:
        """Opens a treebank; see `treebank.py`."""
        language = self.config.data.target
        return open_treebank(spec, language, self.linearise, folder)

    def vocabulary(
        self, corpora: Sequence[Corpus], inherited: Vocabulary | None = None
    ) -> Vocabulary:
        """Loads or trains the tokenizer; in a new one, tokens of a tree are whole.

        Without a joint vocabulary, the target's tokens are learned as those of text.
        """
        data = self.data()
        if inherited or data.tokenizer or not data.joint_vocabulary:
            return super().vocabulary(corpora, inherited)
        counts: collections.Counter[str] = collections.Counter()
        for corpus in corpora:
            for _, target in corpus.pairs():
                counts.update(tokens(target))
        # A comma separates symbols; the tag of a comma is learned.
        tree_tokens = sorted(token for token in counts if "," not in token)
        named = filter(None, [data.symbols, *tree_tokens])
        data = dataclasses.replace(data, symbols=",".join(named))
        return make_tokenizer(corpora, data, sides=(0,))

    def respond(
        self,
        translator: "Translator",
        lines: Sequence[str],
        search: Callable[..., list[Translation]],
        nbest: int = 1,
        first_line: int = 1,
    ) -> list[Translation]:
        """Parses sentences whose words are separated by spaces; writes their trees."""
        translations = super().respond(translator, lines, search, nbest, first_line)
        return [
            dataclasses.replace(
                translation,
                hypotheses=tuple(
                    dataclasses.replace(h, text=tree_text(h.text, translation.source))
                    for h in translation.hypotheses
                ),
            )
            for translation in translations
        ]

    def answers(
        self, translator: "Translator", pairs: Sequence[Pair], warn: bool = True
    ) -> list[str]:
        """Parses the sentences; what is not a tree of its sentence is repaired."""
        outputs = super().answers(translator, pairs, warn)
        return [
            answer(output, sentence)
            for output, (sentence, _) in zip(outputs, pairs, strict=True)
        ]

    def example(self, answer: str, pair: Pair) -> list[str]:
        """Formats an answer between its sentence and the reference, as trees."""
        sentence, target = pair
        reference = bracketed(repair(target, split_words(sentence)))
        return super().example(answer, (sentence, reference))

    def compare_with(self, corpus: Corpus) -> str:
        """Says with which published results scores compare."""
        if corpus.spec.startswith("grammar:"):
            return (
                "synthetic trees of the built-in grammar, without published numbers; "
                "compare only with runs on the same split and version"
            )
        sentences = [sentence for sentence, _ in corpus.pairs()]
        first_sha256 = hashlib.sha256(sentences[0].encode()).hexdigest()
        if (len(sentences), first_sha256) == WSJ_23:
            return (
                "section 23 of the Wall Street Journal [identified by its number of "
                "sentences and its first one]: f1 is comparable with Vaswani et al. "
                "2017, Table 4 (WSJ only 91.3, semi-supervised 92.7)"
            )
        return (
            "no published number is known for these trees; compare only with parsers "
            f"scored on these {len(sentences):,} sentences, by EVALB with COLLINS.prm "
            "and the tags of the treebank"
        )


def linearise(tree: Tree) -> str:
    """Writes a tree as a line, without its words."""
    if tree.is_word:
        return f"={_signless(tree.label)}"
    inside, label = "".join(map(linearise, tree.children)), _signless(tree.label)
    return f"({label}{inside}){label}"


def _signless(label: str) -> str:
    """Replaces what would be read as another token, such as the tag of an =."""
    return label.replace("=", "~")


def tokens(linearised: str) -> list[str]:
    """Splits a line into its tokens; drops what is not a token."""
    return [sign + label for sign, label in _tokens(linearised)]


def without_tags(tree: Tree) -> Tree:
    """Replaces the tags of words by XX, and those of punctuation by a full stop."""
    if tree.is_word:
        return Tree(STOP if tree.label in PUNCTUATION else WORD, tree.children)
    return Tree(tree.label, tuple(map(without_tags, tree.children)))


def repair(linearised: str, words: Sequence[str]) -> Tree:
    """Makes a tree over exactly these words from any string.

    From left to right, a closing bracket ends the innermost open constituent with its
    label, and those inside it; without a label it ends the innermost one. It is ignored
    if there is none. At the end all are closed. Terminals beyond the number of words
    are ignored. Words beyond the number of terminals become the last children of the
    root. Constituents without a word are dropped. Several trees, or words outside a
    tree, become children of a root without meaning (TOP, which is not scored).

    The tree of an intact line is the one that was linearised. So a line was intact if
    `linearise` gives it back.

    Args:
      linearised: the output of a model.
      words: of the sentence; at least one.
    """
    top: list = []
    open_nodes: list[tuple[str, list]] = [(ROOT, top)]
    words_left = iter(words)

    def close():
        label, children = open_nodes.pop()
        if children:
            open_nodes[-1][1].append(Tree(label, tuple(children)))

    for sign, label in _tokens(linearised):
        if sign == "(":
            if len(open_nodes) <= DEEPEST:
                open_nodes.append((label or WORD, []))
        elif sign == "=":
            if (word := next(words_left, None)) is not None:
                tag = WORD if label in ("", TRACE) else label
                open_nodes[-1][1].append(Tree(tag, (word,)))
        else:
            labels = [opened for opened, _ in open_nodes]
            if not label or label in labels[1:]:
                while len(open_nodes) > 1:
                    opened, _ = open_nodes[-1]
                    close()
                    if label in ("", opened):
                        break
    while len(open_nodes) > 1:
        close()
    left_over = tuple(Tree(WORD, (word,)) for word in words_left)
    if len(top) == 1 and not top[0].is_word:
        return Tree(top[0].label, top[0].children + left_over)
    return Tree(ROOT, (*top, *left_over))
