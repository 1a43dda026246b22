"""Clauses and phrases of the built-in corpus, and their words in both languages.

A `Clause` is a meaning: who does what to whom, and when. `english` and `german` put it
into words, so a sentence and its translation express the same clause. German has the
rules that a model must learn. The finite verb comes first, second or last, and other
verb forms or the separable prefix close the clause. Articles, adjectives and relative
pronouns agree in gender, number and case.
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

# Endings by case, each for masculine, feminine, neuter and plural; "-" is no ending.
ENDINGS = {
    "der": {
        "nominative": "der die das die",
        "accusative": "den die das die",
        "dative": "dem der dem den",
        "genitive": "des der des der",
    },
    # dieser Hund; and an adjective without an article before it: kalte Milch
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
    # an adjective after der and dieser: der kalte Saft
    "weak": {
        "nominative": "e e e en",
        "accusative": "en e e en",
        "dative": "en en en en",
    },
    # an adjective after ein, kein and mein: ein kalter Saft
    "mixed": {
        "nominative": "er e es en",
        "accusative": "en e es en",
        "dative": "en en en en",
    },
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


# ---------------------------------------------------------------- English


def english_phrase(phrase: Phrase, role: str = "object") -> list[str]:
    """The words of a phrase with its relative clause; `role` selects he or him."""
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
        # People: who or whom. Things and animals: that.
        person, gap = "person" in head.groups, phrase.relative.gap
        who = ("who" if gap == "subject" else "whom") if person else "that"
        words += [who, *english(phrase.relative)]
    return words


def english_verb(clause: Clause) -> tuple[list[str], list[str]]:
    """The auxiliary, and the other verb forms.

    *not* follows the auxiliary, and a question begins with it. So a simple verb gets a
    form of *do* if it is negated or asked.
    """
    verb, tense, forms = clause.verb, clause.tense, clause.verb.english
    person = clause.subject.person if clause.subject else "plural"
    third = person == "third"
    past = tense == "past"
    is_ = {"first": "was" if past else "am", "third": "was" if past else "is"}
    is_ = is_.get(person, "were" if past else "are")
    do = "did" if past else "does" if third else "do"
    # A question for the subject needs no *do*: "Who sleeps?".
    needs_do = clause.negated or (
        clause.question is not None and clause.gap != "subject"
    )
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
        if needs_do:
            do = "did" if clause.modal_past else do
            return [do], [*modal["others"], forms["base"]]
        return [], [*modal[name], forms["base"]]
    if verb is be:
        return [is_], []
    if clause.progressive:
        return [is_], [forms["ing"]]
    if needs_do:
        return [do], [forms["base"]]
    return [], [forms["past" if past else "third" if third else "base"]]


def english_objects(clause: Clause) -> list[str]:
    """The words after the verb: its particle or preposition, and its objects."""
    verb, gap = clause.verb, clause.gap
    particle = [verb.particle] if verb.particle else []
    dative = english_phrase(clause.dative) if clause.dative and gap != "dative" else []
    accusative = []
    if clause.accusative and gap != "accusative":
        accusative = english_phrase(clause.accusative)
    if verb.frame == "ditransitive, to":
        to = ["to"] if dative or gap == "dative" else []
        return [*accusative, *to, *dative]
    # "He picks her up", but "he picks up the aunt".
    if accusative and verb.particle_moves and clause.accusative.pronoun:
        return [*accusative, *particle]
    words = [*particle, *dative, *accusative]
    if clause.complement and gap != "complement":
        words += english_phrase(clause.complement.phrase)
    return words


def english(clause: Clause) -> list[str]:
    """The English words of a clause, without the conjunction or pronoun before it."""
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
    """The ending in one cell of `ENDINGS`."""
    column = 3 if number == "plural" else "mfn".index(gender)
    return ENDINGS[table][case].split()[column].strip("-")


def german_determiner(phrase: Phrase, case: str) -> tuple[list[str], str]:
    """The inflected determiner, and the key of the endings of an adjective after it."""
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
    """The German words of a phrase in a case, without its relative clause."""
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
    if isinstance(phrase.owner, Noun):  # die Tochter des Lehrers
        article = ending("der", phrase.owner.gender, "singular", "genitive")
        words += [article, phrase.owner.genitive]
    return words


def german_relative(phrase: Phrase | None) -> list[str]:
    """The relative clause of a phrase with its commas: , den der Mann sieht ,"""
    if phrase is None or phrase.relative is None:
        return []
    # The pronoun takes gender and number from its noun, the case from its own clause.
    clause, head = phrase.relative, phrase.head
    adjunct = clause.complement if clause.gap == "complement" else None
    case = adjunct.case if adjunct else clause.gap.replace("subject", "nominative")
    pronoun = ending("der", head.gender, phrase.number, case)
    # Like the article, but for this form.
    if (case, phrase.number) == ("dative", "plural"):
        pronoun = "denen"
    preposition = [adjunct.german] if adjunct else []
    return [",", *preposition, pronoun, *german(clause, "last"), ","]


def german_adjunct(adjunct: Adjunct) -> list[str]:
    """The preposition and its phrase, contracted with the article if possible."""
    preposition, words = adjunct.german, german_phrase(adjunct.phrase, adjunct.case)
    contracted = CONTRACTIONS.get((preposition, words[0])) if adjunct.contract else None
    return [contracted, *words[1:]] if contracted else [preposition, *words]


def german_verb(clause: Clause) -> tuple[str, list[str]]:
    """The finite verb, and the words that close the clause.

    Those are the separable prefix, the participle or the infinitive.
    """
    verb, tense = clause.verb, clause.tense
    person = clause.subject.person if clause.subject else "plural"
    past = "pasts" if person == "plural" else "past"
    if tense == "past" and clause.question is not None:
        # German asks about the past in the Perfekt, except for "war" and "hatte".
        if verb is not be and verb.german["infinitive"] != "haben":
            tense = "perfect"
    if tense == "infinitive":
        return "", [verb.german["zu"]]
    if tense == "perfect":
        sein = {name: be.german[name] for name in haben}  # the same persons
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
    """The words between the finite verb and the end of the clause.

    Their order: pronouns, time, dative before accusative, *nicht*, and at last the
    words closest to the verb. *kein* negates an indefinite object, *nicht* everything
    else.

    Returns:
      The words, and the relative clause of the last phrase. That one follows the verb
      forms that close the clause.
    """
    roles = {"dative": clause.dative, "accusative": clause.accusative}
    objects = [(p, case) for case, p in roles.items() if p and case != clause.gap]
    words = [w for p, case in objects if p.pronoun for w in german_phrase(p, case)]
    words += clause.adverb[1].split() if clause.adverb else []
    negate, last = clause.negated, None  # negate: no word has negated it yet
    for phrase, case in objects:
        if not phrase.pronoun:
            if negate and phrase.determiner in ("", "a") and not phrase.owner:
                if isinstance(phrase.head, Noun):
                    phrase, negate = phrase._replace(determiner="no"), False
            words += german_phrase(phrase, case)
            last = phrase
    predicate = clause.predicate
    if isinstance(predicate, Phrase) and negate and predicate.determiner == "a":
        predicate, negate = predicate._replace(determiner="no"), False
    words += ["nicht"] if negate else []
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
    """The German words of a clause.

    Args:
      clause: The clause.
      order: The place of the finite verb: "first" (questions), "second" (statements) or
        "last" (dependent clauses). An adverb in front of a statement sends the subject
        behind the verb: *Heute kauft der Mann ein Buch*.
    """
    subject = []
    if clause.subject and clause.gap != "subject":
        subject = german_phrase(clause.subject, "nominative")
        subject += german_relative(clause.subject)
    finite, closing = german_verb(clause)
    front = clause.question[1].split() if clause.question is not None else []
    if order == "second" and clause.position == "front" and clause.adverb:
        front = clause.adverb[1].split()  # said here, so not in the middle again
        middle, after = german_middle(without_adverb(clause))
    else:
        middle, after = german_middle(clause)
    if clause.dependent:
        conjunction, dependent = clause.dependent[1:]
        after = [*after, ",", conjunction, *german(dependent, "last"), ","]
    if order == "last":
        # A separable prefix joins its finite verb again: "dass er anruft".
        simple = clause.tense in ("present", "past")
        closing = [*closing, finite] if not simple else ["".join([*closing, finite])]
        return [*subject, *middle, *[word for word in closing if word], *after]
    if clause.question is None and order == "second" and not front:
        return [*subject, finite, *middle, *closing, *after]
    return [*front, finite, *subject, *middle, *closing, *after]


def without_adverb(clause: Clause) -> Clause:
    """A copy of the clause without its adverb of time."""
    values = {name: getattr(clause, name) for name in Clause.__slots__}
    return Clause(**values | {"adverb": None})


def written(words: list[str], end: str) -> str:
    """Joins words and commas to a line with a capital and an end such as ".".

    Where clauses end together their commas meet: one is kept, none before the end.
    """
    line = " ".join(words).replace(" ,", ",")
    while ",," in line:
        line = line.replace(",,", ",")
    line = line.rstrip(", ") + end
    return line[0].upper() + line[1:]
