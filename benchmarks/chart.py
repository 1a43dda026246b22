"""A chart parser whose context-free grammar is read off a treebank.

Over the rules of the training trees of the built-in corpus, with the features of their
labels, it judges whether a line could be a sentence of it: agreement, word order and
what verbs take are checked, meaning is not.

Its rules are those of the trees, each with its relative frequency; it is exact (CKY),
without pruning. It finds the most probable tree of a sentence, or that there is none.

Rules are kept as a trie of their right sides, so that rules which begin alike share
their work: an *item* is a node of the trie with the words that it covers.
"""

import collections
import functools
import itertools
import math
import re
from collections.abc import Iterable, Sequence

from t2t_jax.extensions.grammar import corpus
from t2t_jax.extensions.grammar.trees import Tree

# What a constituent or an item is made of: its log probability, and how to rebuild it.
Entry = tuple[float, tuple]


class Chart:
    """A probabilistic context-free grammar, and its chart parser.

    The first word of a sentence may be a word of the treebank with a capital.

    Args:
      trees: The treebank. If labels have features (NP-third), rules are stricter.
    """

    def __init__(self, trees: Iterable[Tree]):
        rules, words, roots = _counts(trees)
        labels = collections.Counter()
        for (label, _), count in itertools.chain(rules.items(), words.items()):
            labels[label] += count
        sentences = sum(roots.values())
        self._roots = {x: math.log(n / sentences) for x, n in roots.items()}
        self._lexicon = collections.defaultdict(dict)  # word -> {tag: log probability}
        for (tag, word), count in words.items():
            self._lexicon[word][tag] = math.log(count / labels[tag])
        # By a label: rules with it alone on their right side, [(left side, log p)].
        self._unary = collections.defaultdict(list)
        # By an item: {label of the next constituent: the item with it}; by an item: the
        # rules whose right side is complete with it. Item 0 has no constituent yet.
        self._next: list[dict[str, int]] = [{}]
        self._complete: list[list[tuple[str, float]]] = [[]]
        for (label, children), count in rules.items():
            self._add(label, children, math.log(count / labels[label]))

    def _add(self, label: str, children: tuple[str, ...], log_p: float) -> None:
        """Adds a rule."""
        if len(children) == 1:
            self._unary[children[0]].append((label, log_p))
            return
        item = 0
        for child in children:
            if child not in self._next[item]:
                self._next[item][child] = len(self._next)
                self._next.append({})
                self._complete.append([])
            item = self._next[item][child]
        self._complete[item].append((label, log_p))

    def recognizes(self, words: Sequence[str]) -> bool:
        """True if the grammar has a tree for the words."""
        constituents = self._constituents(words)
        return bool(constituents) and not self._roots.keys().isdisjoint(
            constituents[0, len(words)]
        )

    def parse(self, words: Sequence[str]) -> Tree | None:
        """The most probable tree of the words; None if the grammar has none."""
        constituents = self._constituents(words)
        if not constituents:
            return None
        complete = constituents[0, len(words)]
        roots = [x for x in self._roots if x in complete]
        if not roots:
            return None
        root = max(roots, key=lambda label: complete[label][0] + self._roots[label])
        return _with_words(_rebuilt(root, complete[root]), iter(words))

    def _tags(self, words: Sequence[str], place: int) -> dict[str, float]:
        """The tags of a word with their log probabilities."""
        word = words[place]
        tags = dict(self._lexicon.get(word, {}))
        if place == 0:
            for tag, log_p in self._lexicon.get(_lower(word), {}).items():
                tags[tag] = max(log_p, tags.get(tag, log_p))
        return tags

    def _constituents(self, words: Sequence[str]):
        """All constituents: {(first word, word after): {label: entry}}.

        It is empty if a word is unknown.
        """
        constituents: dict[tuple[int, int], dict[str, Entry]] = {}
        # By their first word: [(word after, its items)], of one constituent or more.
        items: list[list[tuple[int, dict[int, Entry]]]] = [[] for _ in words]
        for end in range(1, len(words) + 1):
            tags = self._tags(words, end - 1)
            if not tags:
                return {}
            for start in range(end - 1, -1, -1):
                entries: dict[int, Entry] = {}
                for middle, left in items[start]:
                    self._extend(left, constituents[middle, end], entries)
                cell: dict[str, Entry] = {}
                if start == end - 1:
                    cell = {tag: (log_p, ()) for tag, log_p in tags.items()}
                for item, (log_p, parts) in entries.items():
                    for label, rule in self._complete[item]:
                        if label not in cell or cell[label][0] < log_p + rule:
                            cell[label] = log_p + rule, parts
                self._close(cell)
                constituents[start, end] = cell
                for label, (log_p, _) in cell.items():
                    if label in self._next[0]:
                        entry = cell[label]
                        entries[self._next[0][label]] = log_p, ((label, entry),)
                items[start].append((end, entries))
        return constituents

    def _extend(self, left: dict, right: dict, entries: dict) -> None:
        """Adds the items that consist of an item and the constituent after it."""
        for item, (log_p, parts) in left.items():
            following = self._next[item]
            smaller, larger = (
                (right, following)
                if len(right) < len(following)
                else (following, right)
            )
            for label in smaller:
                if label not in larger:
                    continue
                entry, longer = right[label], following[label]
                total = log_p + entry[0]
                if longer not in entries or entries[longer][0] < total:
                    entries[longer] = total, (*parts, (label, entry))

    def _close(self, cell: dict[str, Entry]) -> None:
        """Applies rules with one label on the right, until none makes a better entry.

        It ends in spite of cycles, since a rule never makes an entry more probable.
        """
        waiting = list(cell)
        while waiting:
            label = waiting.pop()
            entry = cell[label]
            for parent, log_p in self._unary.get(label, ()):
                total = entry[0] + log_p
                if parent not in cell or cell[parent][0] < total:
                    cell[parent] = total, ((label, entry),)
                    waiting.append(parent)


def _lower(word: str) -> str:
    """The word without its capital."""
    return word[:1].lower() + word[1:]


def _counts(trees: Iterable[Tree]):
    """Counts rules (label, labels of children), (tag, word) and labels of roots."""
    rules, words, roots = (collections.Counter() for _ in range(3))
    first_words = []
    for tree in trees:
        roots[tree.label] += 1
        is_first = True
        for node in tree.nodes():
            if not node.is_word:
                children = tuple(child.label for child in node.children)
                rules[node.label, children] += 1
            elif is_first:
                first_words.append((node.label, node.children[0]))
                is_first = False
            else:
                words[node.label, node.children[0]] += 1
    # The capital of a first word is not part of it, unless the word always has it.
    tagged_words = set(words)
    for tag, word in first_words:
        lower = _lower(word)
        words[tag, lower if (tag, lower) in tagged_words else word] += 1
    return rules, words, roots


def _rebuilt(label: str, entry: Entry) -> Tree:
    """The tree of an entry, without its words."""
    return Tree(label, tuple(_rebuilt(*part) for part in entry[1]))


def _with_words(tree: Tree, words) -> Tree:
    """The tree with the next words below its parts of speech."""
    if not tree.children:
        return Tree(tree.label, (next(words),))
    return Tree(tree.label, tuple(_with_words(x, words) for x in tree.children))


def tokenize(line: str) -> list[str]:
    """The words of a line as trees have them: sleeps . , Anna 's , can not."""
    return re.findall(r"'s|\w+|[^\w\s]", line.replace("cannot", "can not"))


@functools.cache
def chart(language: str) -> Chart:
    """The chart parser of the training trees in "en" or "de"."""
    trees = corpus.trees("train", language, features=True)
    return Chart(without_end(tree) for tree in trees)


def without_end(tree: Tree) -> Tree:
    """The tree with its end, "." or "?", above its first label instead of below.

    So clauses that are joined to a sentence have the rules of those that are one.
    """
    label, (*children, end) = tree
    return Tree("TOP", (Tree(label, tuple(children)), end))


def grammatical(line: str, language: str) -> bool:
    """True if the chart parser has a tree for the line."""
    return chart(language).recognizes(tokenize(line))
