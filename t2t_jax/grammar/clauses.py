"""Clauses and phrases of the built-in corpus, and how each language says them.

A `Clause` is what is meant: who does what to whom, and when. `english` and `german`
put it into words, so a sentence and its translation are two readings of one clause. The
German reading is the one with the rules to learn: the finite verb comes first or last
and the other verb forms (or the separable prefix) close the clause behind everything
else; articles, adjectives and relative pronouns agree in gender, number and case.
"""

import functools
from dataclasses import dataclass, field
from typing import NamedTuple

from t2t_jax.grammar.lexicon import (
    CITIES,
    Adjective,
    Modal,
    Noun,
    Verb,
    be,
    haben,
    werden,
)

CASES = ("nominative", "accusative", "dative", "genitive")

# Endings by case; the columns are masculine, feminine, neuter and plural.
ENDINGS = {
    "der": {
        "nominative": "der die das die",
        "accusative": "den die das die",
        "dative": "dem der dem den",
        "genitive": "des der des der",
    },
    # dieser Hund; also the adjective that no article precedes: kalte Milch
    "strong": {
        "nominative": "er e es e",
        "accusative": "en e es e",
        "dative": "em er em en",
    },
    "ein": {
        "nominative": "- e - e",
        "accusative": "en e - e",
        "dative": "em er em en",
    },
    # after der and dieser
    "weak": {
        "nominative": "e e e en",
        "accusative": "en e e en",
        "dative": "en en en en",
    },
    # after ein, kein and mein
    "mixed": {
        "nominative": "er e es en",
        "accusative": "en e es en",
        "dative": "en en en en",
    },
}
# English determiner: German stem, its endings, the endings of the adjective after it.
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


class Phrase(NamedTuple):
    """A noun phrase: a noun with its companions, a name or a pronoun."""

    head: Noun | str  # a string is a name, or a key of PRONOUNS
    number: str = "singular"
    determiner: str = ""  # English; "" for bare nouns, a numeral pair for numbers
    numeral: str = ""  # German, where the determiner is a number
    adjective: Adjective | None = None
    owner: Noun | str | None = None  # Anna's dog, the man's dog
    relative: "Clause | None" = None

    @property
    def person(self) -> str:
        """The column of the verb that it takes as a subject: first, third, plural."""
        if self.head == "I":
            return "first"
        plural = self.number == "plural" or self.head in ("we", "they")
        return "plural" if plural else "third"

    @property
    def pronoun(self) -> bool:
        return self.head in PRONOUNS


class Adjunct(NamedTuple):
    """A phrase with its preposition: in the park, im Park."""

    english: str  # "" where the preposition belongs to the English verb
    german: str
    case: str
    phrase: Phrase
    contract: bool = True


@dataclass(slots=True)
class Clause:
    """A verb and its companions; a pronoun in front stands for that named by `gap`."""

    subject: Phrase | None
    verb: Verb = be
    tense: str = "present"  # present, past, perfect, future, modal, infinitive
    progressive: bool = False
    modal: Modal | None = None
    modal_past: bool = False
    negated: bool = False
    dative: Phrase | None = None
    accusative: Phrase | None = None
    complement: Adjunct | None = None  # what a verb's own preposition governs
    adjuncts: list[Adjunct] = field(default_factory=list)
    predicate: Adjective | Phrase | None = None
    very: bool = False
    adverb: tuple[str, str] | None = None
    position: str = "end"  # of the adverb in English: front, middle, end
    gap: str = ""  # subject, accusative, dative, complement
    question: tuple[str, str] | None = None  # ("", "") asks yes or no
    dependent: "tuple[str, str, Clause] | None" = None  # that, whether, in order to


# ---------------------------------------------------------------- English


def english_phrase(phrase: Phrase, role: str = "object") -> list[str]:
    head = phrase.head
    if phrase.pronoun:
        return [PRONOUNS[head][0].split()[role != "subject"]]
    if isinstance(head, str):
        return [head]
    if isinstance(phrase.owner, Noun):
        words = ["the", phrase.owner.english + "'s"]
    elif phrase.owner:
        words = [phrase.owner + "'s"]
    else:
        words = [phrase.determiner] if phrase.determiner else []
    if phrase.adjective:
        words.append(phrase.adjective.english)
    words.append(head.english if phrase.number == "singular" else head.english_plural)
    if words[0] == "a" and words[1][0] in "aeiou":
        words[0] = "an"
    if phrase.relative:
        person, gap = "person" in head.groups, phrase.relative.gap
        who = ("who" if gap == "subject" else "whom") if person else "that"
        words += [who, *english(phrase.relative)]
    return words


def english_verb(clause: Clause) -> tuple[list[str], list[str]]:
    """The auxiliary, which *not* follows and questions begin with, and the rest."""
    verb, tense, forms = clause.verb, clause.tense, clause.verb.english
    person = clause.subject.person if clause.subject else "plural"
    third = person == "third"
    past = tense == "past"
    is_ = {"first": "was" if past else "am", "third": "was" if past else "is"}
    is_ = is_.get(person, "were" if past else "are")
    do = "did" if past else "does" if third else "do"
    denied = clause.negated or (clause.question is not None and clause.gap != "subject")
    if tense == "infinitive":
        return ["to"], [forms["base"]]
    if tense == "perfect":
        return ["has" if third else "have"], [forms["participle"]]
    if tense == "future":
        return ["will"], [forms["base"]]
    if tense == "modal":
        modal = clause.modal.english
        name = "past" if clause.modal_past else "third" if third else "others"
        if not clause.modal.do:
            return [modal[name][0]], [*modal[name][1:], forms["base"]]
        if denied:
            do = "did" if clause.modal_past else do
            return [do], [*modal["others"], forms["base"]]
        return [], [*modal[name], forms["base"]]
    if verb is be:
        return [is_], []
    if clause.progressive:
        return [is_], [forms["ing"]]
    if denied:
        return [do], [forms["base"]]
    return [], [forms["past" if past else "third" if third else "base"]]


def english_objects(clause: Clause) -> list[str]:
    """What follows the verb: particle, objects and the verb's own preposition."""
    verb, gap = clause.verb, clause.gap
    particle = [verb.particle] if verb.particle else []
    dative = english_phrase(clause.dative) if clause.dative and gap != "dative" else []
    accusative = []
    if clause.accusative and gap != "accusative":
        accusative = english_phrase(clause.accusative)
    if verb.frame == "ditransitive, to":
        to = ["to"] if dative or gap == "dative" else []
        return [*accusative, *to, *dative]
    if accusative and verb.particle_moves and clause.accusative.pronoun:
        return [*accusative, *particle]
    words = [*particle, *dative, *accusative]
    if clause.complement and gap != "complement":
        words += english_phrase(clause.complement.phrase)
    return words


def english(clause: Clause) -> list[str]:
    """The words of the clause, without a pronoun or conjunction that opens it."""
    subject = []
    if clause.subject and clause.gap != "subject":
        subject = english_phrase(clause.subject, "subject")
    auxiliary, rest = english_verb(clause)
    negation = ["not"] if clause.negated else []
    if clause.negated and auxiliary == ["can"]:
        auxiliary, negation = ["cannot"], []
    adverb = clause.adverb[0].split() if clause.adverb else []
    if clause.question is not None:
        words = [*clause.question[0].split(), *auxiliary, *subject, *negation]
    else:
        front = adverb if clause.position == "front" else []
        words = [*front, *subject, *auxiliary, *negation]
    words += adverb if clause.position == "middle" else []
    words += rest + english_objects(clause)
    if clause.verb is be and clause.predicate:
        if isinstance(clause.predicate, Phrase):
            words += english_phrase(clause.predicate)
        else:
            words += ["very"] * clause.very + [clause.predicate.english]
    for adjunct in clause.adjuncts:
        words += [adjunct.english, *english_phrase(adjunct.phrase)]
    words += adverb if clause.position == "end" else []
    if clause.dependent:
        words += [*clause.dependent[0].split(), *english(clause.dependent[2])]
    return words


# ---------------------------------------------------------------- German


@functools.cache
def ending(table: str, gender: str, number: str, case: str) -> str:
    """One cell of `ENDINGS`."""
    column = 3 if number == "plural" else "mfn".index(gender)
    return ENDINGS[table][case].split()[column].strip("-")


def german_determiner(phrase: Phrase, case: str) -> tuple[list[str], str]:
    """The determiner in its form, and the endings of the adjective that follows it."""
    gender, number = phrase.head.gender, phrase.number
    if isinstance(phrase.owner, Noun) or phrase.determiner == "the":
        return [ending("der", gender, number, case)], "weak"
    if phrase.owner:
        return [phrase.owner + "s"], "strong"  # Annas kleiner Hund
    if phrase.numeral or not phrase.determiner:
        return [phrase.numeral] if phrase.numeral else [], "strong"
    stem, table, adjective = DETERMINERS[phrase.determiner].split()
    return [stem + ending(table, gender, number, case)], adjective


def german_phrase(phrase: Phrase, case: str) -> list[str]:
    """The phrase in its case, without its relative clause."""
    head = phrase.head
    if phrase.pronoun:
        return [PRONOUNS[head][1].split()[CASES.index(case)]]
    if isinstance(head, str):
        return [CITIES.get(head, head)]
    words, table = german_determiner(phrase, case)
    if phrase.adjective:
        suffix = ending(table, head.gender, phrase.number, case)
        words.append(phrase.adjective.stem + suffix)
    words.append(head.german(phrase.number, case))
    if isinstance(phrase.owner, Noun):
        article = ending("der", phrase.owner.gender, "singular", "genitive")
        words += [article, phrase.owner.genitive]
    return words


def german_relative(phrase: Phrase | None) -> list[str]:
    """The relative clause of a phrase between its commas: , den der Mann sieht ,"""
    if phrase is None or phrase.relative is None:
        return []
    clause, head = phrase.relative, phrase.head
    adjunct = clause.complement if clause.gap == "complement" else None
    case = adjunct.case if adjunct else clause.gap.replace("subject", "nominative")
    pronoun = ending("der", head.gender, phrase.number, case)
    if (case, phrase.number) == ("dative", "plural"):
        pronoun = "denen"
    preposition = [adjunct.german] if adjunct else []
    return [",", *preposition, pronoun, *german(clause, "last"), ","]


def german_adjunct(adjunct: Adjunct) -> list[str]:
    preposition, words = adjunct.german, german_phrase(adjunct.phrase, adjunct.case)
    together = CONTRACTIONS.get((preposition, words[0])) if adjunct.contract else None
    return [together, *words[1:]] if together else [preposition, *words]


def german_verb(clause: Clause) -> tuple[str, list[str]]:
    """The finite verb, and what closes the clause: prefix, participle or infinitive."""
    verb, tense = clause.verb, clause.tense
    person = clause.subject.person if clause.subject else "plural"
    past = "pasts" if person == "plural" else "past"
    if tense == "past" and clause.question is not None:
        # Spoken German asks in the Perfekt, but for "war" and "hatte".
        if verb is not be and verb.german["infinitive"] != "haben":
            tense = "perfect"
    if tense == "infinitive":
        return "", [verb.german["zu"]]
    if tense == "perfect":
        sein = {name: be.german[name] for name in haben}
        auxiliary = sein if verb.auxiliary == "sein" else haben
        return auxiliary[person], [verb.german["participle"]]
    if tense == "future":
        return werden[person], [verb.german["infinitive"]]
    if tense == "modal":
        present = "plural" if person == "plural" else "third"
        name = past if clause.modal_past else present
        return clause.modal.german[name], [verb.german["infinitive"]]
    finite = verb.german[past if tense == "past" else person]
    return finite, [verb.prefix] if verb.prefix else []


def german_middle(clause: Clause) -> tuple[list[str], list[str]]:
    """What stands between the brackets of the verb, and the relative clause put after.

    Pronouns come first, then time, then the dative before the accusative, then what the
    verb is closest to. *kein* denies an indefinite object, *nicht* all else.
    """
    roles = {"dative": clause.dative, "accusative": clause.accusative}
    objects = [(p, case) for case, p in roles.items() if p and case != clause.gap]
    words = [w for p, case in objects if p.pronoun for w in german_phrase(p, case)]
    words += clause.adverb[1].split() if clause.adverb else []
    denied, last = not clause.negated, None
    for phrase, case in objects:
        if not phrase.pronoun:
            if not denied and phrase.determiner in ("", "a") and not phrase.owner:
                if isinstance(phrase.head, Noun):
                    phrase, denied = phrase._replace(determiner="no"), True
            words += german_phrase(phrase, case)
            last = phrase
    predicate = clause.predicate
    if isinstance(predicate, Phrase) and not denied and predicate.determiner == "a":
        predicate, denied = predicate._replace(determiner="no"), True
    words += [] if denied else ["nicht"]
    if clause.complement and clause.gap != "complement":
        words += german_adjunct(clause.complement)
        last = clause.complement.phrase
    for adjunct in clause.adjuncts:
        words += german_adjunct(adjunct)
    if isinstance(predicate, Phrase):
        words += german_phrase(predicate, "nominative")
        last = predicate
    elif predicate:
        words += ["sehr"] * clause.very + [predicate.german]
    return words, german_relative(last)


def german(clause: Clause, order: str) -> list[str]:
    """The clause with its finite verb "first", "second" or "last".

    A question word or an adverb in front takes the place before the second verb, and
    sends the subject behind it: *Heute kauft der Mann ein Buch*.
    """
    subject = []
    if clause.subject and clause.gap != "subject":
        subject = german_phrase(clause.subject, "nominative")
        subject += german_relative(clause.subject)
    finite, closing = german_verb(clause)
    front = clause.question[1].split() if clause.question is not None else []
    if order == "second" and clause.position == "front" and clause.adverb:
        front = clause.adverb[1].split()
        middle, after = german_middle(without_adverb(clause))
    else:
        middle, after = german_middle(clause)
    if clause.dependent:
        conjunction, dependent = clause.dependent[1:]
        after = [*after, ",", conjunction, *german(dependent, "last"), ","]
    if order == "last":
        simple = clause.tense in ("present", "past")
        closing = [*closing, finite] if not simple else ["".join([*closing, finite])]
        return [*subject, *middle, *[word for word in closing if word], *after]
    if clause.question is None and order == "second" and not front:
        return [*subject, finite, *middle, *closing, *after]
    return [*front, finite, *subject, *middle, *closing, *after]


def without_adverb(clause: Clause) -> Clause:
    """The same clause with nothing said of the time."""
    values = {name: getattr(clause, name) for name in Clause.__slots__}
    return Clause(**values | {"adverb": None})


def written(words: list[str], end: str) -> str:
    """Words and commas as a line: one comma where several meet, none before the end."""
    line = " ".join(words).replace(" ,", ",")
    while ",," in line:
        line = line.replace(",,", ",")
    line = line.rstrip(", ") + end
    return line[0].upper() + line[1:]
