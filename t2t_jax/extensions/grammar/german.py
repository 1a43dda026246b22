"""German: the constituency tree of a clause, whose leaves are its words.

German has the rules that a model must learn. The finite verb comes first, second or
last, and other verb forms or the separable prefix close the clause. Articles,
adjectives and relative pronouns agree in gender, number and case.

Phrases have Penn's labels, words the tags of STTS (ART, ADJA, NN, VVFIN, PTKVZ ...),
punctuation Penn's. The finite verb is a child of S. What stands before a participle or
an infinitive is a VP with it, so verb forms that close a clause are where they stand:
(S er (VP den Hut gekauft) hat). A separable prefix is a child of S. A relative clause
is in its NP if it follows it at once, and else a child of the S or VP where it stands.
There are no traces.

After a dash stand the features that must fit together, which `Tree.plain` removes: case
or, for a subject, person; endings; the gender of a noun and the cases that its form
serves; what a verb takes; in a relative clause the role of its pronoun.
"""

import dataclasses
import functools

from t2t_jax.extensions.grammar.clauses import (
    COMMA,
    FRAMES,
    PRONOUNS,
    Adjunct,
    Clause,
    Node,
    Phrase,
    time_phrase,
)
from t2t_jax.extensions.grammar.lexicon import (
    HARD,
    POSSESSIVES,
    Noun,
    be,
    haben,
    werden,
)
from t2t_jax.extensions.grammar.trees import Label

CASES = ("nominative", "accusative", "dative", "genitive")

# Endings by case, in the order of CASES: each for masculine, feminine, neuter and
# plural; "-" is no ending.
ENDINGS = {
    "der": "der die das die | den die das die | dem der dem den | des der des der",
    # dieser Hund; and an adjective without an article before it: kalte Milch
    "strong": "er e es e | en e es e | em er em en",
    "ein": "- e - e | en e - e | em er em en",
    # an adjective after der and dieser: der kalte Saft
    "weak": "e e e en | en e e en | en en en en",
    # an adjective after ein, kein and mein: ein kalter Saft
    "mixed": "er e es en | en e es en | en en en en",
}
# English determiner: the German stem, its endings, and those of an adjective after it
# (the last two are keys of ENDINGS).
DETERMINERS = {
    "this": "dies strong weak",
    "these": "dies strong weak",
    "every": "jed strong weak",
    "all": "all strong weak",
    "a": "ein ein mixed",
    "no": "kein ein mixed",
    "my": "mein ein mixed",
    "his": "sein ein mixed",
    "her": "ihr ein mixed",
    "our": "unser ein mixed",
    "their": "ihr ein mixed",
    "many": "viel strong strong",
    "some": "einig strong strong",
}
CONTRACTIONS = {
    ("in", "dem"): "im",
    ("an", "dem"): "am",
    ("zu", "dem"): "zum",
    ("zu", "der"): "zur",
    ("von", "dem"): "vom",
    ("bei", "dem"): "beim",
    ("in", "das"): "ins",
}
# The tag of each determiner; a numeral is CARD, all others are PIAT.
TAGS = {"this": "PDAT", "these": "PDAT", "a": "ART"}
TAGS |= dict.fromkeys(POSSESSIVES, "PPOSAT")
TIME_TAGS = {"am": "APPRART", "im": "APPRART", "jeden": "PIAT"}
TIME_TAGS |= dict.fromkeys(("letzte", "letztes", "nächste"), "ADJA")


@functools.cache
def ending(table: str, gender: str, number: str, case: str) -> str:
    """The ending in one cell of `ENDINGS`."""
    column = 3 if number == "plural" else "mfn".index(gender)
    case_row = ENDINGS[table].split(" | ")[CASES.index(case)]
    return case_row.split()[column].strip("-")


def gender_of(phrase: Phrase) -> str:
    """The column of the tables of endings: m, f, n, or p for a plural."""
    return "p" if phrase.number == "plural" else phrase.head.gender


def german_determiner(phrase: Phrase, case: str) -> tuple[list[Node], str]:
    """The inflected determiner, and the key of the endings of an adjective after it."""
    gender, number = phrase.head.gender, phrase.number
    if isinstance(phrase.owner, Noun) or phrase.determiner == "the":
        article = ending("der", gender, number, case)
        return [("ART-" + article, article)], "weak"
    if phrase.owner:  # Annas kleiner Hund
        return [("NP-owner", [("NE-owner", phrase.owner + "s")])], "strong"
    if phrase.numeral or not phrase.determiner:
        return [("CARD", phrase.numeral)] if phrase.numeral else [], "strong"
    stem, table, adjective = DETERMINERS[phrase.determiner].split()
    suffix = ending(table, gender, number, case)
    tag = TAGS.get(phrase.determiner, "PIAT")
    return [(f"{tag}-{adjective}-{suffix}", stem + suffix)], adjective


def german_noun(noun: Noun, number: str, case: str) -> Node:
    """A noun; its tag names the gender, and the cases that the form serves: n, a, d."""
    form = noun.german(number, case)
    if number == "plural":
        cases = "nad" if noun.plural[-1] in "ns" else "d" if case == "dative" else "na"
        return "NN-p-" + cases, form
    if noun.weak:
        cases = "n" if case == "nominative" else "ad"
    else:
        cases = "nad" if noun.plural else "mass"
    return f"NN-{noun.gender}-{cases}", form


def german_phrase(phrase: Phrase, case: str, negated: bool = False) -> Node:
    """A phrase in a case, without its relative clause; negated, with *kein*."""
    head, label = phrase.head, Label("NP-" + case, phrase)
    if phrase.pronoun:
        word = PRONOUNS[head][1].split()[CASES.index(case)]
        mark = phrase.person if case == "nominative" else case
        tag = "PDS" if head == "this" else "PPER"
        return label, [(f"{tag}-{mark}", word)]
    if isinstance(head, str):
        return label, [("NE", HARD.cities.get(head, head))]
    determined = phrase._replace(determiner="no") if negated else phrase
    nodes, table = german_determiner(determined, case)
    if phrase.adjective:
        suffix = ending(table, head.gender, phrase.number, case)
        nodes.append(("ADJA-" + suffix, phrase.adjective.stem + suffix))
    nodes.append(german_noun(head, phrase.number, case))
    if isinstance(phrase.owner, Noun):  # die Tochter des Lehrers
        article = ending("der", phrase.owner.gender, "singular", "genitive")
        noun = f"NN-{phrase.owner.gender}-g", phrase.owner.genitive
        nodes.append(("NP-genitive", [("ART-" + article, article), noun]))
    return label, nodes


def german_relative(phrase: Phrase) -> list[Node]:
    """The relative clause of a phrase with its commas: , den der Mann sieht ,"""
    # The pronoun takes gender and number from its noun, the case from its own clause.
    clause, head = phrase.relative, phrase.head
    adjunct = clause.complement if clause.gap == "complement" else None
    case = adjunct.case if adjunct else clause.gap.replace("subject", "nominative")
    pronoun = ending("der", head.gender, phrase.number, case)
    # Like the article, but for this form.
    if (case, phrase.number) == ("dative", "plural"):
        pronoun = "denen"
    gender = gender_of(phrase)
    node = f"WHNP-{gender}-{case}", [(f"PRELS-{gender}-{case}", pronoun)]
    if adjunct:
        preposition = "APPR-" + adjunct.case, adjunct.german
        node = "WHPP-" + gender, [preposition, node]
    label = Label("SBAR-" + gender, clause)
    return [COMMA, (label, [node, german(clause, "last")]), COMMA]


def with_relative(phrase: Phrase, node: Node) -> Node:
    """A phrase, an NP or in a PP, and the relative clause that follows it at once."""
    label, nodes = node
    if phrase.relative is None:
        return node
    if label.startswith("PP"):
        return label, [nodes[0], with_relative(phrase, nodes[1])]
    core = f"{label}-{gender_of(phrase)}", nodes
    return label, [core, *german_relative(phrase)]


def german_adjunct(adjunct: Adjunct, label: str = "PP") -> Node:
    """The preposition and its phrase, contracted with the article if possible."""
    preposition, case, label = adjunct.german, adjunct.case, Label(label, adjunct)
    phrase = german_phrase(adjunct.phrase, case)
    article = phrase[1][0][1]
    contracted = CONTRACTIONS.get((preposition, article)) if adjunct.contract else None
    if contracted:
        phrase = Label("NP-" + article, adjunct.phrase), phrase[1][1:]
        return label, [("APPRART-" + article, contracted), phrase]
    return label, [("APPR-" + case, preposition), phrase]


def german_verb(clause: Clause) -> tuple[Node, list[Node]]:
    """The finite verb, and the words that close the clause.

    Those are the separable prefix, the participle or the infinitive.
    """
    verb, tense = clause.verb, clause.tense
    frame = "-" + FRAMES[verb.frame][1]
    person = clause.subject.person if clause.subject else "plural"
    past, mark = ("pasts", person) if person == "plural" else ("past", "singular")
    main = "VA" if verb is be else "VV"
    infinitive = main + "INF" + frame, verb.german["infinitive"]
    if tense == "past" and clause.question is not None:
        # German asks about the past in the Perfekt, except for "war" and "hatte".
        if verb is not be and verb.german["infinitive"] != "haben":
            tense = "perfect"
    if tense == "infinitive":
        *zu, word = verb.german["zu"].split()
        if zu:
            return ("", ""), [("PTKZU", "zu"), infinitive]
        return ("", ""), [("VVIZU" + frame, word)]
    if tense == "perfect":
        sein = {name: be.german[name] for name in haben}  # the same persons
        auxiliary = sein if verb.auxiliary == "sein" else haben
        tag = f"-{verb.auxiliary}{frame}", verb.german["participle"]
        finite = f"VAFIN-{person}-{verb.auxiliary}", auxiliary[person]
        return finite, [("VVPP" + tag[0], tag[1])]
    if tense == "future":
        return (f"VAFIN-{person}-werden", werden[person]), [infinitive]
    if tense == "modal":
        present = "plural" if person == "plural" else "third"
        name = past if clause.modal_past else present
        # ich kann, er kann: one form
        return ("VMFIN-" + mark, clause.modal.german[name]), [infinitive]
    if tense != "past":
        mark = person
    prefix = [("PTKVZ", verb.prefix)] if verb.prefix else []
    frame += "-prefix" if prefix else ""
    form = verb.german[past if tense == "past" else person]
    return (f"{main}FIN-{mark}{frame}", form), prefix


def german_middle(clause: Clause) -> tuple[list[Node], Phrase | None, bool]:
    """The words between the finite verb and the end of the clause.

    Its order: pronouns, time, dative before accusative, *nicht*, and at last the words
    closest to the verb. *kein* negates an indefinite object, *nicht* everything else.

    Returns:
      The nodes; the last phrase that may have a relative clause, which follows the
      verb forms that close the clause; and True if the last node is that phrase.
    """
    roles = {"dative": clause.dative, "accusative": clause.accusative}
    objects = [(p, case) for case, p in roles.items() if p and case != clause.gap]
    nodes = [german_phrase(p, case) for p, case in objects if p.pronoun]
    nodes += time_phrase(clause.adverb, 1, TIME_TAGS, "ADV")
    negate, last_phrase, ends = clause.negated, None, 0
    # negate: no word has negated it yet; ends: the number of nodes up to `last_phrase`
    for phrase, case in objects:
        if not phrase.pronoun:
            indefinite = phrase.determiner in ("", "a") and not phrase.owner
            kein = negate and indefinite and isinstance(phrase.head, Noun)
            nodes.append(german_phrase(phrase, case, kein))
            negate = negate and not kein
            last_phrase, ends = phrase, len(nodes)
    predicate = clause.predicate
    kein = negate and isinstance(predicate, Phrase) and predicate.determiner == "a"
    negate = negate and not kein
    nodes += [("PTKNEG", "nicht")] if negate else []
    if clause.complement and clause.gap != "complement":
        nodes.append(german_adjunct(clause.complement, "PP-object"))
        last_phrase, ends = clause.complement.phrase, len(nodes)
    for adjunct in clause.adjuncts:
        nodes.append(german_adjunct(adjunct))
    if isinstance(predicate, Phrase):
        nodes.append(german_phrase(predicate, "nominative", kein))
        last_phrase, ends = predicate, len(nodes)
    elif predicate:
        very = [("PTKIFG", "sehr")] * clause.very
        nodes.append(("ADJP", [*very, ("ADJD", predicate.german)]))
    return nodes, last_phrase, ends == len(nodes)


def german(clause: Clause, order: str) -> Node:
    """The tree of a clause.

    Args:
      clause: The clause.
      order: The place of the finite verb: "first" (questions), "second" (statements) or
        "last" (dependent clauses). An adverb in front of a statement sends the subject
        behind the verb: *Heute kauft der Mann ein Buch*.
    """
    asks = clause.question is not None
    finite, closing = german_verb(clause)
    front, without_front = [], clause
    if order == "second" and clause.position == "front" and clause.adverb:
        front = time_phrase(clause.adverb, 1, TIME_TAGS, "ADV")
        without_front = dataclasses.replace(
            clause, adverb=None
        )  # not in the middle again
    middle, last_phrase, ends = german_middle(without_front)
    trailing = []
    if last_phrase and last_phrase.relative:
        if ends and not closing and order != "last":
            middle[-1] = with_relative(last_phrase, middle[-1])
        else:
            trailing = german_relative(last_phrase)
    if clause.dependent:
        _, conjunction, dependent = clause.dependent
        tree = german_dependent(conjunction, german(dependent, "last"))
        trailing = [*trailing, COMMA, tree, COMMA]
    subject = german_subject(clause)
    mark = german_mark(clause, order)
    prefix = closing and closing[0][0] == "PTKVZ"
    if order == "last":
        if prefix:  # joins its finite verb again: "dass er anruft"
            closing, finite = [], (finite[0], closing[0][1] + finite[1])
        return Label("S" + mark, clause), [
            *subject,
            *german_verb_phrase(middle, closing, []),
            *([finite] if finite[1] else []),
            *trailing,
        ]
    if prefix:
        predicate = [*middle, *closing, *trailing]
    else:
        predicate = german_verb_phrase(middle, closing, trailing)
    if asks:
        tree = Label("SQ" + mark, clause), [finite, *subject, *predicate]
        return german_question(clause, tree)
    if order == "second" and not front:
        return Label("S", clause), [*subject, finite, *predicate]
    return Label("S", clause), [*front, finite, *subject, *predicate]


def german_verb_phrase(middle, closing, trailing) -> list[Node]:
    """The nodes of a clause behind its finite verb, in a VP if verb forms close it."""
    if not closing:
        return [*middle, *trailing]
    # What the finite verb selects: an infinitive, or the participle with its auxiliary.
    tag = closing[-1][0].split("-")
    label = f"VP-{tag[1]}" if tag[0] == "VVPP" else f"VP-{tag[0][2:]}"
    return [(label, [*middle, *closing, *trailing])]


def german_subject(clause: Clause) -> list[Node]:
    """The subject, unless a pronoun before the clause stands for it."""
    phrase = clause.subject
    if not phrase or clause.gap == "subject":
        return []
    node = with_relative(phrase, german_phrase(phrase, "nominative"))
    return [(Label("NP-" + phrase.person, phrase), node[1])]


def german_mark(clause: Clause, order: str) -> str:
    """The feature of an S or SQ: what stands before it, or that its verb is last."""
    if clause.gap:
        return "-" + (clause.subject.person if clause.gap == "subject" else clause.gap)
    if clause.tense == "infinitive":
        return "-zu"
    return "-last" if order == "last" else ""


def german_question(clause: Clause, tree: Node) -> Node:
    """A question with the word that opens it, if any."""
    word = clause.question[1]
    if not word:
        return tree
    if word in ("warum", "wann"):
        return Label("SBARQ", clause), [("WHADVP", [("PWAV", word)]), tree]
    case = clause.gap.replace("subject", "nominative")
    return Label("SBARQ", clause), [("WHNP-" + case, [("PWS-" + case, word)]), tree]


def german_dependent(conjunction: str, tree: Node) -> Node:
    """A dependent clause with its conjunction."""
    tag = "KOUI" if conjunction == "um" else "KOUS"
    return Label("SBAR", tree[0].meaning), [(tag, conjunction), tree]
