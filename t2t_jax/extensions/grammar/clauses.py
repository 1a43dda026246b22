"""The meaning of a clause, and how its words are written as a line.

A `Clause` is a meaning: who does what to whom, and when. `english` and `german`, in the
modules of these names, make a constituency tree of it in their language, whose leaves
are its words. So a sentence and its translation express the same clause.

While a sentence is put together its tree is made of plain `Node` tuples, because most
sentences are only needed as a line; `sentence_tree` makes a `Tree` of it.
"""

from dataclasses import dataclass, field
from typing import NamedTuple

from t2t_jax.extensions.grammar.lexicon import Adjective, Modal, Noun, Verb, be
from t2t_jax.extensions.grammar.trees import Tree

# A label, and the word or the nodes below it.
Node = tuple[str, "str | list[Node]"]
COMMA = (",", ",")

# English subject and object | German nominative, accusative, dative.
PRONOUNS = {
    "I": ("I me", "ich mich mir"),
    "he": ("he him", "er ihn ihm"),
    "she": ("she her", "sie sie ihr"),
    "we": ("we us", "wir uns uns"),
    "they": ("they them", "sie sie ihnen"),
    "who": ("who whom", "wer wen wem"),
    "what": ("what what", "was was -"),
    "this": ("this this", "das das -"),
}
# What a verb takes, in the labels of English and of German trees, by its frame.
FRAMES = {
    **dict.fromkeys(
        ("intransitive", "intransitive, no place", "swim"),
        ("intransitive", "intransitive"),
    ),
    **dict.fromkeys(("rest", "goal", "origin", "journey"), ("place", "place")),
    **dict.fromkeys(
        ("accusative", "accusative, for someone"), ("object", "accusative")
    ),
    "dative": ("object", "dative"),
    "ditransitive": ("objects", "both"),
    "ditransitive, to": ("to", "both"),
    "clause": ("clause", "clause"),
    "prepositional": ("object", "preposition"),
    "be": ("be", "be"),
}


class Phrase(NamedTuple):
    """A noun phrase: a noun with its companions, a name or a pronoun."""

    head: Noun | str  # a string is a name, or a key of PRONOUNS
    number: str = "singular"
    determiner: str = ""  # English; "" for a bare noun, or a numeral such as "two"
    numeral: str = ""  # the German numeral, if the determiner is one
    adjective: Adjective | None = None
    owner: Noun | str | None = None  # Anna's dog, the man's dog
    relative: "Clause | None" = None

    @property
    def person(self) -> str:
        """The verb form that it takes as a subject: first, third or plural."""
        if self.head == "I":
            return "first"
        plural = self.number == "plural" or self.head in ("we", "they")
        return "plural" if plural else "third"

    @property
    def pronoun(self) -> bool:
        """True if the phrase is a pronoun."""
        return self.head in PRONOUNS


class Adjunct(NamedTuple):
    """A phrase with its preposition: in the park, im Park."""

    english: str  # the preposition; "" if it belongs to the English verb
    german: str  # the preposition
    case: str  # the case that the German preposition governs
    phrase: Phrase
    contract: bool = True  # contracts with the article: in dem, im


@dataclass(slots=True)
class Clause:
    """A verb and everything that goes with it.

    In a relative clause or a question for a subject or object, `gap` names the role
    that the pronoun in front fills. That role gets no words of its own.
    """

    subject: Phrase | None
    verb: Verb = be
    tense: str = "present"  # present, past, perfect, future, modal, infinitive
    progressive: bool = False
    modal: Modal | None = None
    modal_past: bool = False
    negated: bool = False
    dative: Phrase | None = None
    accusative: Phrase | None = None
    complement: Adjunct | None = None  # the object of a verb's own preposition
    adjuncts: list[Adjunct] = field(default_factory=list)
    predicate: Adjective | Phrase | None = None  # with "to be": is old, is a hat
    very: bool = False  # before a predicate adjective
    adverb: tuple[str, str] | None = None  # English, German
    position: str = "end"  # of the adverb in English: front, middle, end
    gap: str = ""  # subject, accusative, dative, complement
    # The English and German words that open a question; ("", "") asks yes or no.
    question: tuple[str, str] | None = None
    # A clause after this one, with its English and German conjunction.
    dependent: "tuple[str, str, Clause] | None" = None


def time_phrase(
    adverb: tuple[str, str] | None, side: int, tags: dict[str, str], one_word: str
) -> list[Node]:
    """An adverb of time, if any, in English (side 0) or German: often, every day.

    `tags` are those of words that are not NN, `one_word` that of an adverb of one word.
    """
    if adverb is None:
        return []
    words = adverb[side].split()
    leaves = [(tags.get(word, "NN") + "-time", word) for word in words]
    if len(leaves) == 1:
        return [("ADVP-time", [(one_word, adverb[side])])]
    if leaves[0][0] in ("IN-time", "APPRART-time"):
        return [("PP-time", [leaves[0], ("NP-day", leaves[1:])])]
    return [("NP-time", leaves)]


def collect(nodes: list[Node], words: list[str]) -> None:
    """Appends the words below the nodes, with all their commas, to `words`."""
    for _, inner in nodes:
        if inner.__class__ is str:  # faster than isinstance, for the corpus is large
            words.append(inner)
        else:
            collect(inner, words)


def written(node: Node, end: str) -> str:
    """Writes the words of a tree as a line with a capital and an end such as ".".

    Where clauses end together their commas meet: one is kept, none before the end.
    """
    words = []
    collect(node[1], words)
    # Trees have two leaves where English writes one word: Anna 's, can not.
    line = " ".join(words).replace(" ,", ",").replace(" 's", "'s")
    line = line.replace("can not", "cannot")
    while ",," in line:
        line = line.replace(",,", ",")
    line = line.rstrip(", ") + end
    return line[0].upper() + line[1:]


def sentence_tree(node: Node, end: str) -> Tree:
    """The tree of a written sentence: with its end, its capital and one comma a place.

    Of commas that meet the last stays, which belongs to the larger constituent.
    """
    following = ""  # the word to the right of the one at hand

    def finished(node: Node) -> list[Tree]:
        nonlocal following
        label, inner = node
        if isinstance(inner, str):
            dropped = inner == "," and following in (",", end)
            following = inner
            return [] if dropped else [Tree(label, (inner,))]
        children = [tree for child in reversed(inner) for tree in finished(child)]
        return [Tree(label, tuple(reversed(children)))]

    label, children = node
    mark = ".-asks" if end == "?" else "."
    return capitalized(finished((label, [*children, (mark, end)]))[0])


def capitalized(tree: Tree | str) -> Tree | str:
    """The tree with a capital at the beginning of its first word."""
    if isinstance(tree, str):
        return tree[0].upper() + tree[1:]
    label, (first_child, *children) = tree
    return Tree(label, (capitalized(first_child), *children))
