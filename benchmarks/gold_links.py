"""Gold links between units of the built-in corpus's sentences and their translations.

The trees of both languages are made of the same meaning, and the labels of their nodes
carry it. Words with the same role in the same clause or phrase are linked; a word's
role follows from its part of speech. No dictionary is involved.

Sure links join such words. A word may have two roles: *im* is *in the*, *cannot* is
*kann nicht*, *keinen* is *not a*, *to* is *um* and *zu*. *Did* is *hat* if German asks
in the Perfekt. A separable prefix or a particle without a counterpart belongs to its
verb: *calls* is both *ruft* and *an*. A comma is linked if both languages have it.

Possible links join a word without a counterpart and what it belongs to: *does*, *is*
(*sleeping*), *to* (after a modal) and *hat* (*Who bought*) and the verb or the modal;
the *to* of an object and the German dative; *'s* and the owner; *die* (*Tochter des
Lehrers*) and the daughter; *on* (*Sundays*) and *sonntags*. Where both languages say a
verb in two words, *gets* and *auf* are linked, too.
"""

import collections
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from t2t_jax.extensions.grammar.clauses import Adjunct, Clause
from t2t_jax.extensions.grammar.corpus import sentences
from t2t_jax.extensions.grammar.lexicon import be, entries
from t2t_jax.extensions.grammar.trees import Label, Tree
from t2t_jax.text.units import units

# Role : parts of speech, with one of their features where it decides.
ROLES = """
    head : NN NNS NNP NNPS NE PRP PPER PDS DT-alone RB-time ADV | adjective : JJ ADJA |
    determiner : DT PRP$ CD ART PIAT PPOSAT PDAT CARD | predicate : ADJD |
    verb : VB VBN VBG VBZ VBP VBD VVFIN VVPP VVINF VVIZU VAINF-be VAFIN-be |
    have : VBZ-have VBP-have VBD-have VBZ-do VBP-do VBD-do VAFIN-haben VAFIN-sein |
    modal : MD VB-want VBZ-want VBP-want VBD-want VMFIN VAFIN-werden |
    to : TO PTKZU KOUI | be : VBZ-be VBP-be VBD-be | not : RB PTKNEG |
    very : RB-very PTKIFG | preposition : IN APPR APPRART | particle : RP PTKVZ |
    conjunction : IN-clause KOUS CC KON | pronoun : WP WDT WRB PRELS PWS PWAV |
    mark : POS | end : ."""
ROLES = {label: role for role, labels in entries(ROLES) for label in labels.split()}


class GoldLinks(NamedTuple):
    """Links that an alignment must have, and those it may have, the sure among them."""

    sure: Sequence[tuple[int, int]]
    possible: Sequence[tuple[int, int]]


def gold_links(split: str, count: int | None = None) -> list[GoldLinks]:
    """Links English and German units of the sentences that `corpus.pairs` returns."""
    drawn = sentences(split, count=count)
    return [_links(sentence.tree("en"), sentence.tree("de")) for sentence in drawn]


def _links(english: Tree, german: Tree) -> GoldLinks:
    sure, possible = set(), set()
    sides = [list(_words(tree)) for tree in (english, german)]
    for own_side, other_side, order in ((*sides, 1), (*sides[::-1], -1)):
        units_of = collections.defaultdict(list)
        for numbers, keys, _ in other_side:
            for key in keys:
                units_of[key] += numbers
        for numbers, keys, owner_keys in own_side:
            partners = [n for key in keys for n in units_of[key]]
            owners = [n for key in owner_keys for n in units_of[key]]
            role = keys[0][1] if keys else ""
            if role == "particle" and not partners:
                partners = owners
            if role == "verb" or not partners:
                possible |= {(u, n)[::order] for u in numbers for n in owners}
            sure |= {(u, n)[::order] for u in numbers for n in partners}
    return GoldLinks(sorted(sure), sorted(sure | possible))


def _words(tree: Tree) -> Iterator[tuple[list[int], list, list]]:
    """Yields the numbers of each word's units, and its `_keys`."""
    count, previous = 0, ""
    for tag, text, *place in _leaves(tree, "", None, None):
        # "'s" has two units; "can not" is written as one word.
        added = 0 if (previous.lower(), text) == ("can", "not") else len(units(text))
        count, previous = count + added, text
        yield [*range(count - (added or 1), count)], *_keys(tag, text, *place)


def _leaves(tree: Tree, parent: str, meaning, clause: Clause | None) -> Iterator[tuple]:
    """Yields tag and text of each word, the label above it, its meaning, its clause."""
    if isinstance(tree.label, Label):
        meaning = tree.label.meaning
        clause = meaning if isinstance(meaning, Clause) else clause
    if tree.is_word:
        yield tree.label, tree.children[0], parent, meaning, clause
    else:
        for child in tree.children:
            yield from _leaves(child, tree.label, meaning, clause)


def _keys(label: str, text: str, parent: str, meaning, clause: Clause | None):
    """The keys of a word, and of those it belongs to: (identity of a meaning, role)."""
    tag, *features = label.split("-")
    if tag == ",":
        return [(id(meaning), tag)] * isinstance(label, Label), []
    names = [f"{tag}-{feature}" for feature in features]
    role = next((ROLES[name] for name in names if name in ROLES), ROLES.get(tag))
    key = id(meaning)
    if text == "many":
        role = "determiner"
    elif role == "be" and clause.verb is be:
        role = "verb"
    elif role == "adjective" and parent == "ADJP":
        role = "predicate"
    elif role == "preposition" and parent.startswith(("PP-object", "WHPP")):
        role, key = "particle", id(clause)
        if clause.verb.frame == "ditransitive, to":  # explains it to him: ihm
            return [], [(id(clause.dative), "head"), (key, "pronoun")]
    if parent.startswith(("NP-owner", "NP-genitive")):
        return [(key, f"owner {role}")], [(key, "owner head")]
    keys, owners = [(key, role)], [(key, "head")]
    if role == "verb":
        owners = [(key, "particle")] if clause.verb.prefix else []
    elif role in ("particle", "have", "be", "to"):
        owners = [(key, "verb")] + [(key, "modal")] * (role != "particle")
    if tag == "APPRART":  # im: in the
        noun = id(meaning.phrase) if isinstance(meaning, Adjunct) else key
        keys.append((noun, "determiner"))
    elif tag == "VVIZU":  # einzukaufen: to go shopping
        keys.append((key, "to"))
    elif tag == "PIAT" and text.lower().startswith("kein"):
        if getattr(meaning, "determiner", "no") != "no":  # not a
            keys.append((id(clause), "not"))
    return keys, owners
