"""English: the constituency tree of a clause, whose leaves are its words.

Labels are Penn's. A sequence of verb forms is nested: (VP will (VP sleep)). Objects,
adjuncts and clauses that the verb takes are in the innermost VP. *to* and an infinitive
are an S: (VP wants (S (VP to (VP sleep)))). There are no traces. After a dash stand the
features that must fit together, which `Tree.plain` removes: the person of subject and
verb, the number of determiner and noun, the objects that a verb takes (its frame), and
"gap" where an object is said before the clause (*the hat that she bought*).
"""

from t2t_jax.extensions.grammar.clauses import (
    FRAMES,
    PRONOUNS,
    Clause,
    Node,
    Phrase,
    time_phrase,
)
from t2t_jax.extensions.grammar.lexicon import HARD, POSSESSIVES, Noun, be
from t2t_jax.extensions.grammar.trees import Label

# Determiners that are not DT.
TAGS = dict.fromkeys(POSSESSIVES, "PRP$")
TAGS |= {"many": "JJ"} | dict.fromkeys(HARD.numerals, "CD")
TIME_TAGS = {"every": "DT", "the": "DT", "last": "JJ", "next": "JJ", "Sundays": "NNPS"}
TIME_TAGS |= dict.fromkeys(("on", "in", "at"), "IN")
TIME_TAGS |= dict.fromkeys(("Monday", "Friday"), "NNP")


def english_phrase(phrase: Phrase, role: str = "object") -> Node:
    """A noun phrase with its relative clause; `role` selects he or him.

    A subject has its person in the label, with which the verb must agree.
    """
    head, mark = phrase.head, ""
    if role == "subject":
        mark = "-" + phrase.person
    label = Label("NP" + mark, phrase)
    if phrase.pronoun:
        word = PRONOUNS[head][0].split()[role != "subject"]
        tag = "DT-alone" if head == "this" else "PRP" + mark
        return label, [(tag, word)]
    if isinstance(head, str):
        return label, [("NNP", head)]
    if phrase.relative:
        core = "NP-" + phrase.number, english_core(phrase)
        return label, [core, english_relative(phrase)]
    return label, english_core(phrase)


def english_core(phrase: Phrase) -> list[Node]:
    """Determiner or owner, adjective and noun of a phrase."""
    head, singular = phrase.head, phrase.number == "singular"
    adjective = phrase.adjective and phrase.adjective.english
    noun = head.english if singular else head.english_plural
    article = ""  # "-a" or "-an" on the article and on the word after it
    if isinstance(phrase.owner, Noun):
        owner = [("DT-singular", "the"), ("NN", phrase.owner.english), ("POS", "'s")]
        nodes = [("NP-owner", owner)]
    elif phrase.owner:
        nodes = [("NP-owner", [("NNP", phrase.owner), ("POS", "'s")])]
    elif phrase.determiner == "a":
        word = "an" if (adjective or noun)[0] in "aeiou" else "a"
        article = "-" + word
        nodes = [("DT" + article, word)]
    elif phrase.determiner:
        tag = TAGS.get(phrase.determiner, "DT")
        if tag == "DT":
            tag = "DT-singular" if singular else "DT-plural"
        nodes = [(tag, phrase.determiner)]
    else:
        nodes = []
    if adjective:
        nodes.append(("JJ" + article, adjective))
        article = ""
    tag = "NNS" if not singular else "NN" if head.plural else "NN-mass"
    nodes.append((tag + article, noun))
    return nodes


def english_relative(phrase: Phrase) -> Node:
    """The relative clause of a phrase, with its pronoun."""
    clause = phrase.relative
    subject = clause.gap == "subject"
    role = "-subject" if subject else "-object"
    # People: who or whom. Things and animals: that.
    if "person" in phrase.head.groups:
        pronoun = "WP" + role, "who" if subject else "whom"
    else:
        pronoun = "WDT", "that"
    mark = "-" + phrase.person if subject else ""
    label = Label("SBAR" + mark, clause)
    return label, [("WHNP" + role, [pronoun]), english(clause)]


def english_verb(clause: Clause) -> tuple[list[Node], list[Node]]:
    """The auxiliary, and the other verb forms.

    *not* follows the auxiliary, and a question begins with it. So a simple verb gets a
    form of *do* if it is negated or asked.
    """
    verb, tense, forms = clause.verb, clause.tense, clause.verb.english
    frame = "-" + FRAMES[verb.frame][0]
    if verb.particle:
        frame += "-particle" if verb.particle_moves else "-preposition"
    person = clause.subject.person if clause.subject else "plural"
    third = person == "third"
    past = tense == "past"
    finite = "VBD" if past else "VBZ" if third else "VBP"
    base = "VB" + frame, forms["base"]
    # A question for the subject needs no *do*: "Who sleeps?".
    asks = clause.question is not None and clause.gap != "subject"
    needs_do = clause.negated or asks
    if tense == "infinitive":
        return [("TO", "to")], [base]
    if tense == "perfect":
        have = finite + "-have", "has" if third else "have"
        return [have], [("VBN" + frame, forms["participle"])]
    if tense == "future":
        return [("MD", "will")], [base]
    if tense == "modal":
        return english_modal(clause, finite, needs_do, base)
    if verb is be or clause.progressive:
        is_ = {"first": "was" if past else "am", "third": "was" if past else "is"}
        is_ = is_.get(person, "were" if past else "are")
        tag = f"{finite}-be-{person}"
        if verb is be:
            return [(tag, is_)], []
        return [(tag, is_)], [("VBG" + frame, forms["ing"])]
    if needs_do:
        do = "did" if past else "does" if third else "do"
        return [(finite + "-do", do)], [base]
    form = forms["past" if past else "third" if third else "base"]
    return [], [(finite + frame, form)]


def english_modal(clause: Clause, finite: str, needs_do: bool, base: Node):
    """Conjugates a modal verb, followed by the base form of the verb after it."""
    modal, third = clause.modal.english, finite == "VBZ"
    words = modal["past" if clause.modal_past else "third" if third else "others"]
    to_infinitive = [("TO", "to"), base]
    if clause.modal_past and clause.modal.do:
        finite = "VBD"
    if clause.modal.do and needs_do:
        do = "did" if clause.modal_past else "does" if third else "do"
        return [(finite + "-do", do)], [("VB-want", modal["others"][0]), *to_infinitive]
    if clause.modal.do:
        return [], [(finite + "-want", words[0]), *to_infinitive]
    if words == ("had", "to"):
        return [("VBD-want", "had")], to_infinitive
    if len(words) > 1:  # would like to
        return [("MD-would", words[0])], [("VB-want", words[1]), *to_infinitive]
    return [("MD", words[0])], [base]


def english_objects(clause: Clause) -> list[Node]:
    """The particle or preposition after the verb, and its objects."""
    verb, gap = clause.verb, clause.gap
    dative = clause.dative and gap != "dative" and english_phrase(clause.dative)
    accusative = None
    if clause.accusative and gap != "accusative":
        accusative = english_phrase(clause.accusative)
    objects = [phrase for phrase in (dative, accusative) if phrase]
    if verb.frame == "ditransitive, to":
        if not (dative or gap == "dative"):
            return objects
        recipient = [("IN", "to"), dative] if dative else [("IN", "to")]
        recipient = "PP-object" if dative else "PP-object-gap", recipient
        return [accusative, recipient] if accusative else [recipient]
    if clause.complement and gap != "complement":
        objects.append(english_phrase(clause.complement.phrase))
    if not verb.particle:
        return objects
    if not verb.particle_moves:  # look for, wait for
        label = "PP-object" if objects else "PP-object-gap"
        return [(label, [("IN", verb.particle), *objects])]
    particle = "PRT", [("RP", verb.particle)]
    # "He picks her up", but "he picks up the aunt".
    if accusative and clause.accusative.pronoun:
        return [*objects, particle]
    return [particle, *objects]


def verb_phrase(forms: list[Node], inner: list[Node], mark: str) -> list[Node]:
    """Nests verb phrases: each form and what follows it, the innermost with `inner`."""
    for tag, word in reversed(forms):
        inner = [(f"VP-{tag.partition('-')[0]}{mark}", [(tag, word), *inner])]
        if tag == "TO":
            inner = [("S-to" + mark, inner)]
    return inner


def english(clause: Clause) -> Node:
    """The tree of a clause, without the conjunction or pronoun before it."""
    gap, asks = clause.gap, clause.question is not None
    mark = "-gap" if gap and gap != "subject" else ""
    auxiliary, forms = english_verb(clause)
    adverb = time_phrase(clause.adverb, 0, TIME_TAGS, "RB-time")
    middle = adverb if clause.position == "middle" else []
    inner = english_objects(clause)
    if clause.verb is be and clause.predicate:
        if isinstance(clause.predicate, Phrase):
            # As its subject, it shows its number: This is a hat.
            inner.append(english_phrase(clause.predicate, "subject"))
        else:
            very = [("RB-very", "very")] * clause.very
            inner.append(("ADJP", [*very, ("JJ", clause.predicate.english)]))
    for adjunct in clause.adjuncts:
        phrase = english_phrase(adjunct.phrase)
        label = Label("PP", adjunct)
        inner.append((label, [("IN", adjunct.english), phrase]))
    inner += adverb if clause.position == "end" else []
    if clause.dependent:
        conjunction, _, dependent = clause.dependent
        tree = english(dependent)
        inner.append(english_dependent(conjunction, tree) if conjunction else tree)
    negation = [("RB", "not")] if clause.negated else []
    if clause.tense == "infinitive":
        ((label, inner),) = verb_phrase([*auxiliary, *forms], inner, mark)
        return Label(label, clause), inner
    if asks and gap != "subject":
        subject = english_phrase(clause.subject, "subject")
        # The auxiliary of a question agrees with the subject after it.
        inner = verb_phrase(forms, inner, mark)
        inner = [*auxiliary, subject, *negation, *middle, *inner]
        return english_question(clause, (Label("SQ" + mark, clause), inner))
    label, before_verb = "VP-" + clause.subject.person + mark, []
    if auxiliary:
        inner = [*auxiliary, *negation, *middle, *verb_phrase(forms, inner, mark)]
    else:
        inner, before_verb = [forms[0], *verb_phrase(forms[1:], inner, mark)], middle
    if gap == "subject":
        # Only a verb phrase: the subject is the pronoun before the clause.
        mark = f"S{'Q' * asks}-{clause.subject.person}"
        tree = Label(mark, clause), [*before_verb, (label, inner)]
        return english_question(clause, tree) if asks else tree
    front = adverb if clause.position == "front" else []
    subject = english_phrase(clause.subject, "subject")
    return Label("S" + mark, clause), [*front, subject, *before_verb, (label, inner)]


def english_question(clause: Clause, tree: Node) -> Node:
    """A question with the word that opens it, if any."""
    word = clause.question[0]
    if not word:
        return tree
    if word in ("why", "when"):
        return Label("SBARQ", clause), [("WHADVP", [("WRB", word)]), tree]
    role = "-subject" if clause.gap == "subject" else "-object"
    return Label("SBARQ", clause), [("WHNP" + role, [("WP" + role, word)]), tree]


def english_dependent(conjunction: str, tree: Node) -> Node:
    """A dependent clause with its conjunction."""
    return Label("SBAR", tree[0].meaning), [("IN-clause", conjunction), tree]
