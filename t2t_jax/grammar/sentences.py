"""Draws sentences of the built-in corpus: meanings at random, put into both languages.

What is drawn is a `Clause` (see `clauses`): a verb, then who and what may go with it,
so that nobody drinks a hat; then the time, and whether it is denied, asked, or joined
to another clause by a conjunction.
"""

import bisect
import functools
import hashlib
import random
from collections.abc import Callable
from functools import cached_property, partial

from t2t_jax.grammar import clauses, lexicon
from t2t_jax.grammar.clauses import (
    PRONOUNS,
    Adjunct,
    Clause,
    Phrase,
    english,
    german,
    german_verb,
)
from t2t_jax.grammar.lexicon import Adjective, Noun, Verb, be


def digest(text: str) -> int:
    """A number that is the same on every machine, as hash() is not."""
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")


class Dice:
    """Draws made of `random()` alone, the one draw that Python promises to keep."""

    def __init__(self, seed: str):
        self.random = random.Random(digest(seed)).random

    def chance(self, probability: float) -> bool:
        return self.random() < probability

    def pick(self, items):
        return items[int(self.random() * len(items))]

    def weigh(self, choices: str) -> str:
        """One of "name weight name weight ..."."""
        names, ends = _weights(choices)
        point = self.random() * ends[-1]
        return names[bisect.bisect_right(ends, point)]


@functools.cache
def _weights(choices: str) -> tuple[list[str], list[int]]:
    fields = choices.split()
    ends, total = [], 0
    for weight in fields[1::2]:
        total += int(weight)
        ends.append(total)
    return fields[::2], ends


@functools.cache
def _members(groups: frozenset[str]) -> list[Noun]:
    return [noun for noun in lexicon.nouns if noun.groups & groups]


@functools.cache
def _adjectives(noun: Noun) -> list[Adjective]:
    return [a for a in lexicon.adjectives if a.groups & noun.groups]


def suits(verb: Verb, tense: str) -> bool:
    """Whether English and German both use the verb in this tense."""
    if tense == "past" and "past" not in verb.english:
        return False
    if tense == "infinitive":  # somebody goes somewhere to do it
        return (
            verb.frame in PURPOSES
            and not verb.state
            and verb.english["base"] not in AIMLESS
        )
    if tense == "perfect" and verb.english["base"] == "have":
        return False
    return not verb.lasting or tense in ("present", "past")


@functools.cache
def _verbs(subjects: frozenset[str] | None, tense: str) -> list[Verb]:
    """The verbs, but for those that take a clause, that suit a subject and a tense."""
    return [
        verb
        for verb in lexicon.verbs
        if subjects is None or verb.subjects & subjects
        if verb.frame != "clause" and suits(verb, tense)
        for _ in range(2 if verb.prefix else 1)  # each form of these is in two pieces
    ]


@functools.cache
def _verbs_of(noun: Noun, tense: str) -> list[tuple[Verb, str]]:
    """The verbs that people do to such a thing, and the role that it has there."""
    found = []
    for verb in lexicon.verbs:
        if "person" not in verb.subjects or not suits(verb, tense):
            continue
        if verb.objects & noun.groups:
            roles = {"dative": "dative", "prepositional": "complement"}
            found.append((verb, roles.get(verb.frame, "accusative")))
        if verb.frame.startswith("ditransitive") and "person" in noun.groups:
            found.append((verb, "dative"))
    return found


PERSON = frozenset({"person"})
PLACES = [noun for noun in lexicon.nouns if "place" in noun.groups]
SPECIAL_PLACES = lexicon.PLACE_PREPOSITIONS
CLAUSE_VERBS = [verb for verb in lexicon.verbs if verb.frame == "clause"]
PEOPLE = _members(PERSON)

SINGULAR = "the 44 a 24 my 5 his 6 her 6 our 4 their 4 this 6 name 5 of 7"
PLURAL = (
    "the 34 number 20 - 12 my 4 his 5 her 5 our 4 their 4 these 7 many 6 all 5 some 6"
)
PLAIN = {  # what may stand in a clause that is denied
    "singular": "the 44 a 24 my 5 his 6 her 6 our 4 their 4 this 6",
    "plural": "the 34 - 14 my 4 his 5 her 5 our 4 their 4 these 7",
}
TENSES = "present 40 past 25 perfect 14 future 11 modal 12"
# The tenses that a relative or dependent clause may have, by that of the main clause.
WITHIN = {
    "present": "present 50 past 20 perfect 20",
    "past": "past 1",
    "perfect": "present 40 past 50",
    "future": "present 60 past 20 perfect 20",
    "modal": "present 60 past 20 perfect 20",
    "infinitive": "present 1",
}
# English conjunction, German, the tense of both clauses (main, dependent).
CONJUNCTIONS = [
    ("because", "weil", "present present"),
    ("because", "weil", "past past"),
    ("because", "weil", "perfect present"),
    ("because", "weil", "modal present"),
    ("although", "obwohl", "present present"),
    ("although", "obwohl", "past past"),
    ("although", "obwohl", "perfect present"),
    ("if", "wenn", "future present"),
    ("if", "wenn", "modal present"),
    ("when", "wenn", "future present"),
    ("when", "wenn", "present present"),
    ("when", "als", "past past"),
    ("while", "während", "past past"),
    ("before", "bevor", "past past"),
    ("before", "bevor", "future present"),
]


STATE_SUBJECTS = ["person"] * 4 + [
    "animal",
    "clothes",
    "thing",
    "text",
    "food",
    "carried vessel",
]
STATE_SUBJECTS += [
    "vehicle device",
    "place opening",
    "carried vessel",
    "drink hot-drink",
]
PURPOSES = ("accusative", "accusative, for someone", "dative", "ditransitive")
PURPOSES += ("ditransitive, to", "prepositional", "intransitive", "swim")
AIMLESS = {"break", "lose", "cry", "smile", "run", "follow", "hide", "wear", "carry"}
AIMLESS |= {"put", "take", "thank"}
# The verbs that "I" takes in the present, few so that each form is met often enough.
POSSESSIVES = ("my", "his", "her", "our", "their", "name", "of")
BELONGING = "friend neighbor uncle brother father son grandfather aunt sister mother "
BELONGING += "daughter grandmother child doctor teacher guest gardener dog cat horse "
BELONGING += "bird cow rabbit goat pig duck"
BELONGING = frozenset(BELONGING.split())
OPPOSITES = ({"old", "young"}, {"rich", "poor"}, {"happy", "sad"}, {"strong", "sick"})
I_DO = "see know read eat drink buy write help need love have work sleep go come"
I_DO += " sell visit open close hear understand"
FIRST_PERSON = [
    verb
    for verb in lexicon.verbs
    if verb.english["base"] in I_DO.split() and not verb.prefix
    if "person" in verb.subjects and verb.frame != "clause"
]
PERSONAL = [a for a in lexicon.adjectives if "person" in a.groups]
OWN_PLACES = ("house", "garden", "kitchen", "office")
ALONE = {"cry", "run", "smile", "wait", "sleep"}  # not done with somebody
RELATED = (
    "the",
    "a",
    "this",
    "these",
    "my",
    "his",
    "her",
    "our",
    "their",
    "many",
    "no",
)


STATE_TENSES = "present 6 past 3 future 1"
KINDS = "simple 46 complex 20 reported 10 coordinated 8 purpose 6 question 10"

# English and German words, when they are asked for: most of what is drawn is left out.
Words = Callable[[], list[str]]
Pair = tuple[Words, Words]


def verb_name(verb: Verb) -> str:
    return f"{verb.english['base']} {verb.particle}".strip()


class Writer:
    """Draws what is to be said; `pairs_used` are what "unseen" may hold out."""

    def __init__(self, dice: Dice, relatives: float = 0.2):
        self.dice = dice
        self.relatives = relatives  # how often a phrase gets a relative clause
        self.pairs_used: list[tuple[str, str]] = []
        self.heads: set[str] = set()  # said already, so not said again
        self.apart = False

    # ------------------------------------------------------------ phrases

    def person(self, role: str) -> Phrase | None:
        """Sometimes a pronoun or a name."""
        point = self.dice.random()
        if point < 0.16:
            head = self.dice.pick(("I", "he", "she", "we", "they"))
            if role != "subject" and self.heads & {"I", "we"} and head in ("I", "we"):
                head = "they"
            if role == "subject":
                self.heads.add(head)
            return Phrase(head)
        if point < 0.26:
            name = self.dice.pick(lexicon.names)
            if name not in self.heads:
                self.heads.add(name)
                return Phrase(name)
        return None

    def phrase(self, groups, role: str, plain: bool = False, verb: str = "") -> Phrase:
        """A phrase with a noun of these groups; `verb` is what it is an object of."""
        dice = self.dice
        if "person" in groups:
            phrase = self.person(role)
            if phrase:
                return phrase
        members = _members(groups)
        noun = dice.pick(members)
        for _ in range(4):
            if noun.english in self.heads:
                noun = dice.pick(members)
        self.heads.add(noun.english)
        if verb:
            self.pairs_used.append((verb, noun.english))
        plural = noun.plural and not noun.groups & {"place", "waters"}
        plural = plural or noun.groups & {"built", "sight", "room"}
        number = "plural" if plural and dice.chance(0.36) else "singular"
        determiner, numeral, owner = self.determiner(noun, number, role, plain)
        # Annas kleinem Hund, kaltem Wasser: an ending too rare to be learnt here
        rare = role == "dative" and (owner or not determiner)
        described = dice.chance(0.4) and not rare
        adjective = self.adjective(noun) if described else None
        return Phrase(noun, number, determiner, numeral, adjective, owner)

    def adjective(self, noun: Noun) -> Adjective | None:
        choices = _adjectives(noun)
        if not choices:
            return None
        adjective = self.dice.pick(choices)
        self.pairs_used.append((adjective.english, noun.english))
        return adjective

    def determiner(self, noun, number, role, plain):
        """English determiner, German numeral, owner."""
        dice = self.dice
        if "meal" in noun.groups:
            choices = "the 60 my 5 his 5 her 5 our 5 their 5"
        elif not noun.plural:
            choices = "the 40 - 40 my 4 his 4 her 4"
        elif plain:
            choices = PLAIN[number]
            if role == "subject":  # "Uncles do not wait" would be said of all uncles
                choices = choices.replace("- 14 ", "")
        else:
            choices = SINGULAR if number == "singular" else PLURAL
            if role == "subject" and number == "singular":
                choices += " every 4 no 3"
            elif role == "subject":  # "Uncles wait" would be said of all uncles
                choices = choices.replace("- 12 ", "")
        kind = dice.weigh(choices)
        if kind in POSSESSIVES and noun.groups & {"person", "animal"}:
            if noun.english not in BELONGING:
                return "the", "", None
        if kind == "number":
            numeral = dice.pick(list(lexicon.NUMERALS))
            return numeral, lexicon.NUMERALS[numeral], None
        if kind == "name":
            return "", "", dice.pick(lexicon.names)
        if kind == "of":
            return "", "", dice.pick(_members(PERSON))
        return kind.strip("-"), "", None

    def place(self, kind: str) -> Adjunct:
        """Where one is ("rest"), goes to ("goal") or comes from ("origin")."""
        dice = self.dice
        noun = dice.pick(PLACES)
        owned = "my 3 his 3 her 3 our 3 their 3 " if noun.english in OWN_PLACES else ""
        determiner = dice.weigh(owned + "the 70 this 5 a 10")
        adjective = self.adjective(noun) if dice.chance(0.25) else None
        phrase = Phrase(noun, "singular", determiner, adjective=adjective)
        rest_en, rest, goal, origin = SPECIAL_PLACES.get(
            noun.english, "in in in aus"
        ).split()
        if kind == "goal":
            case = "accusative" if goal == "in" else "dative"
            return Adjunct("to", goal, case, phrase)
        if kind == "origin":
            return Adjunct("from", origin, "dative", phrase)
        return Adjunct(rest_en, rest, "dative", phrase)

    def city(self, goal: bool) -> Adjunct:
        city = Phrase(self.dice.pick(list(lexicon.CITIES)))
        return Adjunct("to" if goal else "in", "nach" if goal else "in", "dative", city)

    def company(self, with_: str, mit: str, case: str) -> Adjunct:
        return Adjunct(with_, mit, case, self.phrase(PERSON, "dative", plain=True))

    # ------------------------------------------------------------ clauses

    def clause(
        self, tense="", subject=None, *, infinitive=False, plain=False
    ) -> Clause:
        """A clause; its subject may be given, as by what a relative clause is about."""
        dice = self.dice
        tense = "infinitive" if infinitive else tense or dice.weigh(TENSES)
        if subject is None and not infinitive:
            verb = dice.pick(_verbs(None, tense))
        else:
            person = infinitive or isinstance(subject.head, str)
            verb = dice.pick(_verbs(PERSON if person else subject.head.groups, tense))
            if subject and subject.head == "I" and tense == "present":
                verb = dice.pick(FIRST_PERSON)
        clause = Clause(subject, verb, tense)
        self.fit_tense(clause)
        plain = plain or infinitive
        denied = not plain and dice.chance(0.12)
        if clause.modal and not clause.modal.deny:
            denied = False
        clause.negated = denied
        if clause.subject is None and not infinitive:
            clause.subject = self.phrase(verb.subjects, "subject", denied)
            if clause.subject.head == "I" and tense == "present":
                clause.verb = dice.pick(FIRST_PERSON)
                self.fit_tense(clause)
        if clause.subject and clause.subject.determiner in (
            "no",
            "every",
            "many",
            "some",
        ):
            clause.negated = False
        self.fill(clause)
        if not infinitive:
            self.time(clause)
        return clause

    def fit_tense(self, clause: Clause) -> None:
        """Draws a modal, or whether a present is progressive, where the tense asks."""
        dice, verb = self.dice, clause.verb
        clause.progressive = False
        if clause.tense == "modal":
            clause.modal = dice.pick(lexicon.modals)
            clause.modal_past = "past" in clause.modal.english and dice.chance(0.3)
        if clause.tense == "present" and not verb.state:
            clause.progressive = dice.chance(0.5)

    def fill(self, clause: Clause) -> None:
        """The objects and adjuncts that the frame of the verb asks for."""
        dice, verb, denied = self.dice, clause.verb, clause.negated
        frame, name = verb.frame, verb_name(verb)
        if frame.startswith(("accusative", "ditransitive")) and not clause.accusative:
            clause.accusative = self.phrase(verb.objects, "accusative", denied, name)
        if frame.startswith("ditransitive") and not clause.dative:
            clause.dative = self.phrase(PERSON, "dative", denied)
            if denied and clause.dative.determiner in ("a", ""):
                if isinstance(clause.dative.head, Noun) and not clause.dative.owner:
                    clause.dative = clause.dative._replace(determiner="the")
        if frame == "dative" and not clause.dative:
            clause.dative = self.phrase(verb.objects, "dative", denied, name)
        if frame == "prepositional" and not clause.complement:
            phrase = self.phrase(verb.objects, verb.case, denied, name)
            clause.complement = Adjunct("", verb.preposition, verb.case, phrase, False)
        if frame == "accusative, for someone" and dice.chance(0.3):
            clause.adjuncts = [self.company("for", "für", "accusative")]
        elif frame in ("rest", "goal", "origin"):
            clause.adjuncts = [
                self.stay(clause) if frame == "rest" else self.place(frame)
            ]
        elif frame == "swim" and dice.chance(0.7):
            noun = dice.pick(_members(frozenset({"waters"})))
            lake = Phrase(noun, determiner="the", adjective=self.adjective(noun))
            clause.adjuncts = [Adjunct("in", "in", "dative", lake)]
        elif frame == "journey":
            clause.adjuncts = [self.city(goal=True)]
        elif frame == "intransitive" and dice.chance(0.65):
            alone = "person" not in verb.subjects or verb.english["base"] in ALONE
            clause.adjuncts = [
                self.place("rest")
                if alone or dice.chance(0.6)
                else self.company("with", "mit", "dative")
            ]

    def stay(self, clause: Clause) -> Adjunct:
        """In a place, in a city, or with people."""
        kind = self.dice.weigh("place 6 city 2 people 2")
        if kind == "people" and clause.verb.english["base"] != "sit":
            return self.company("with", "bei", "dative")
        if kind == "city" and clause.verb.english["base"] != "sit":
            return self.city(goal=False)
        return self.place("rest")

    def time(self, clause: Clause) -> None:
        """An adverbial that goes with the tense, and where it stands."""
        dice = self.dice
        if clause.verb.lasting or not dice.chance(0.42):
            return
        kind = clause.tense
        if kind == "present":
            simple = not clause.progressive and not clause.verb.state
            kind = (
                ("habit middle" if dice.chance(0.5) else "habit") if simple else "now"
            )
            if clause.verb.state:
                return
        elif kind == "perfect":
            kind = "perfect middle"
        elif kind == "modal":
            kind = "past" if clause.modal_past else "future"
        if kind.endswith("middle") and clause.negated:
            return
        clause.adverb = dice.pick(lexicon.adverbs[kind])
        if kind.endswith("middle"):
            clause.position = "middle"
        else:
            clause.position = "front" if dice.chance(0.5) else "end"

    def state(self, subject: Phrase | None = None, tense: str = "present") -> Clause:
        """Somebody or something is so: is tired, is in the garden."""
        dice = self.dice
        if subject is None:
            kinds = frozenset(dice.pick(STATE_SUBJECTS).split())
            subject = self.phrase(kinds, "subject")
            if not kinds & {"person", "animal"} and dice.chance(0.8):
                self.forget(subject)
                subject = subject._replace(adjective=None)
        clause = Clause(subject, be, tense, negated=dice.chance(0.12))
        if subject.determiner in ("no", "every", "many", "some"):
            clause.negated = False
        person = isinstance(subject.head, str) or "person" in subject.head.groups
        noun = subject.head if isinstance(subject.head, Noun) else None
        if person and dice.chance(0.25):
            clause.adjuncts = [self.stay(clause)]
            return clause
        drawn = len(self.pairs_used)
        adjective = self.adjective(noun) if noun else dice.pick(PERSONAL)
        said = subject.adjective
        clash = (said and not person) or said == adjective
        if said and adjective:
            clash |= {said.english, adjective.english} in OPPOSITES
        if adjective is None or clash:
            self.pairs_used = self.pairs_used[:drawn]
            clause.adjuncts = [self.place("rest")]
            return clause
        clause.predicate = adjective
        clause.very = adjective.english not in ("empty",) and dice.chance(0.25)
        return clause

    def naming(self) -> Clause:
        """This is a red hat."""
        adjective = self.dice.pick(lexicon.adjectives)
        noun = self.dice.pick(_members(adjective.groups))
        while not noun.plural:
            noun = self.dice.pick(lexicon.nouns)
            adjective = self.adjective(noun)
        if adjective:
            self.pairs_used.append((adjective.english, noun.english))
        article = self.dice.weigh("a 60 my 10 his 8 her 8 our 8 their 8")
        thing = Phrase(noun, determiner=article, adjective=adjective)
        negated = self.dice.chance(0.15)
        tense = "past" if self.dice.chance(0.2) else "present"
        return Clause(Phrase("this"), be, tense, negated=negated, predicate=thing)

    # ------------------------------------------------------------ relative clauses

    def relate(self, clause: Clause) -> None:
        """Sometimes gives the subject, or an object at the end, a relative clause."""
        if clause.subject and self.dice.chance(self.relatives):
            clause.subject = self.with_relative(clause.subject, clause.tense)
        ends = not clause.adjuncts and not (clause.adverb and clause.position == "end")
        if not ends or not self.dice.chance(self.relatives):
            return
        if clause.complement:
            phrase = self.with_relative(clause.complement.phrase, clause.tense)
            clause.complement = clause.complement._replace(phrase=phrase)
        elif clause.accusative and clause.verb.frame != "ditransitive, to":
            clause.accusative = self.with_relative(clause.accusative, clause.tense)
        elif clause.dative and not clause.accusative:
            clause.dative = self.with_relative(clause.dative, clause.tense)

    def with_relative(self, phrase: Phrase, tense: str) -> Phrase:
        """The phrase with a relative clause, where its determiner allows one."""
        dice, noun = self.dice, phrase.head
        if isinstance(noun, str) or phrase.owner or phrase.determiner not in RELATED:
            if not phrase.numeral:
                return phrase
        tense = dice.weigh(WITHIN[tense])
        point = dice.random()
        plain = "person" in noun.groups or not phrase.adjective
        if point < 0.15 and plain and _adjectives(noun) and tense != "perfect":
            inner = self.state(phrase, tense)
            inner.gap = "subject"
        elif point < 0.6 and _verbs(noun.groups, tense):
            inner = self.clause(tense, phrase, plain=True)
            inner.gap = "subject"
        else:
            inner = self.object_relative(noun, tense)
            if inner is None:
                return phrase
        if inner.position == "front":
            inner.position = "end"
        return phrase._replace(relative=inner)

    def object_relative(self, noun: Noun, tense: str) -> Clause | None:
        """... that the man bought: somebody does something to the noun."""
        dice, choices = self.dice, _verbs_of(noun, tense)
        if not choices:
            return None
        verb, gap = dice.pick(choices)
        inner = Clause(None, verb, tense, gap=gap)
        inner.subject = self.phrase(PERSON, "subject", plain=True)
        if inner.subject.head == "I" and verb not in FIRST_PERSON:
            inner.subject = Phrase("we")
        self.fit_tense(inner)
        missing = Phrase(noun)  # what the relative pronoun stands for
        if gap == "complement":
            missing = Adjunct("", verb.preposition, verb.case, missing, False)
        setattr(inner, gap, missing)
        self.fill(inner)
        self.time(inner)
        if noun.groups & verb.objects:
            self.pairs_used.append((verb_name(verb), noun.english))
        return inner

    # ------------------------------------------------------------ sentences

    def main(self, tense: str = "", subject: Phrase | None = None) -> Clause:
        """A clause to stand on its own, or beside another."""
        if tense not in ("perfect", "modal") and self.dice.chance(0.12):
            clause = self.state(subject, tense or self.dice.weigh(STATE_TENSES))
        else:
            clause = self.clause(tense, subject)
        self.relate(clause)
        return clause

    def simple(self) -> Pair:
        clause = self.naming() if self.dice.chance(0.2) else self.main()
        return self.statement(clause)

    def statement(self, clause: Clause) -> Pair:
        self.apart |= stands_apart(clause)
        return partial(english, clause), partial(german, clause, "second")

    def complex(self) -> Pair:
        """Two clauses, one of which hangs on a conjunction and may come first."""
        dice = self.dice
        joint, verbindung, tenses = dice.pick(CONJUNCTIONS)
        tense, inner_tense = tenses.split()
        main = self.main(tense)
        if main.modal_past:  # the clause that hangs on it is in the present
            main.modal_past = False
            main.adverb = None
        first = dice.chance(0.35)
        if first and main.position == "front":
            main.adverb = None
        if joint in ("while", "before"):
            main.negated = False
        pronoun = self.pronoun_for(main.subject)
        if not pronoun or dice.chance(0.4):
            pronoun = None
        if joint in ("because", "although") and dice.chance(0.5):
            inner = self.state(pronoun, inner_tense)
        else:
            inner = self.clause(inner_tense, pronoun)
        if inner.position == "front":
            inner.position = "end"
        if joint == "while" and not inner.verb.state:
            inner.progressive = True
        if joint not in ("because", "although"):
            inner.negated, inner.adverb = False, None
        if pronoun is None:
            self.relate(inner)
        if first and pronoun:  # the noun comes first, the pronoun after
            inner.subject, main.subject = main.subject, inner.subject
        self.apart |= stands_apart(main)

        def in_english() -> list[str]:
            outer, hung = english(main), [joint, *english(inner)]
            return [*hung, ",", *outer] if first else [*outer, *hung]

        def in_german() -> list[str]:
            hung = [verbindung, *german(inner, "last")]
            if first:
                return [*hung, ",", *german(main, "first")]
            return [*german(main, "second"), ",", *hung, ","]

        return in_english, in_german

    def pronoun_for(self, phrase: Phrase) -> Phrase | None:
        """He, she or they, where English and German choose alike."""
        if phrase.pronoun:
            return phrase if phrase.head in ("I", "he", "she", "we", "they") else None
        if isinstance(phrase.head, str):
            return Phrase("he" if phrase.head in lexicon.NAMES["he"].split() else "she")
        if phrase.determiner in ("no", "every", "a") or not phrase.determiner:
            return None
        if "person" not in phrase.head.groups:
            return None
        if phrase.number == "plural":
            return Phrase("they")
        group = phrase.head.groups & {"he", "she"}
        return Phrase(min(group)) if group else None

    def reported(self) -> Pair:
        """Anna thinks that ..., he does not know whether ..."""
        dice = self.dice
        verb = dice.pick(CLAUSE_VERBS)
        past = dice.chance(0.3)
        clause = Clause(None, verb, "past" if past else "present")
        if verb.english["base"] == "say" and dice.chance(0.4):
            clause.tense = "perfect"
        asks = verb.english["base"] == "know" and dice.chance(0.5)
        clause.negated = asks
        clause.subject = self.phrase(PERSON, "subject", plain=True)
        tense = "past" if past else dice.weigh(WITHIN["present"])
        if not past and dice.chance(0.3):
            tense = dice.pick(("future", "modal"))
        inner = self.clause(tense, plain=asks)
        if inner.position == "front":
            inner.position = "end"
        self.relate(inner)
        conjunction = ("whether", "ob") if asks else ("that", "dass")
        clause.dependent = (*conjunction, inner)
        return self.statement(clause)

    def purpose(self) -> Pair:
        """He goes to the market to buy apples."""
        verb = self.dice.pick([v for v in lexicon.verbs if v.frame == "goal"])
        clause = Clause(None, verb, self.dice.weigh(TENSES))
        self.fit_tense(clause)
        clause.subject = self.phrase(PERSON, "subject", plain=True)
        clause.adjuncts = [self.place("goal")]
        if clause.tense != "perfect" and self.dice.chance(0.3):
            self.time(clause)
            if clause.position == "end":
                clause.adverb = None
        if self.dice.chance(self.relatives):
            clause.subject = self.with_relative(clause.subject, clause.tense)
        clause.dependent = ("", "um", self.clause(infinitive=True))
        return self.statement(clause)

    def question(self) -> Pair:
        dice = self.dice
        if dice.chance(0.2):
            clause = self.state()
            clause.negated = False
            clause.question = ("", "")
            return partial(english, clause), partial(german, clause, "first")
        clause = self.clause(plain=True)
        while clause.verb.lasting or vague(clause.subject):
            clause = self.again(lambda: self.clause(plain=True))
        clause.position = "end" if clause.position == "front" else clause.position
        opener = dice.pick(
            (("", ""), ("", ""), ("why", "warum"), ("when", "wann"), None)
        )
        if opener == ("when", "wann"):
            clause.adverb = None
            if clause.verb.state:
                opener = ("why", "warum")
        if opener is None:
            return self.who(clause)
        clause.question = opener
        return partial(english, clause), partial(german, clause, "first")

    def again(self, draw):
        """Draws anew, forgetting what the last draw used."""
        self.pairs_used.clear()
        self.heads.clear()
        return draw()

    def who(self, clause: Clause) -> Pair:
        """Asks for the subject or for an object."""
        person = "person" in clause.verb.subjects
        roles = [role for role in ("accusative", "dative") if getattr(clause, role)]
        if not roles or self.dice.chance(0.5):
            self.forget(clause.subject)
            asked = Phrase("who" if person else "what")
            clause.subject, clause.question, clause.gap = asked, ("", ""), "subject"
            wer = PRONOUNS[asked.head][1].split()[0]
            return (
                lambda: [asked.head, *english(clause)],
                lambda: [wer, *german(clause, "first")],
            )
        role = roles[-1]
        phrase = getattr(clause, role)
        human = isinstance(phrase.head, str) or "person" in phrase.head.groups
        name = "who" if human or role == "dative" else "what"
        self.forget(phrase)
        case = 1 if role == "accusative" else 2
        subject, objective = (
            PRONOUNS[name][0].split()[1],
            PRONOUNS[name][1].split()[case],
        )
        clause.gap, clause.question = role, (subject, objective)
        return partial(english, clause), partial(german, clause, "first")

    def forget(self, phrase: Phrase) -> None:
        """Drops the pairs of a phrase that is left out after all."""
        if isinstance(phrase.head, Noun):
            name = phrase.head.english
            self.pairs_used = [pair for pair in self.pairs_used if pair[1] != name]

    def coordinated(self) -> Pair:
        tense = self.dice.weigh("present 5 past 4 perfect 2 future 1")
        left, right = self.main(tense), self.main(tense)
        joint = self.dice.pick((("and", "und"), ("but", "aber")))
        return joined(self.statement(left), joint, self.statement(right))

    def chain(self) -> Pair:
        """Several sentences made one: what "long" is made of."""
        kinds = (self.complex, self.reported, self.coordinated)
        left, right = self.dice.pick(kinds)(), self.dice.pick(kinds)()
        return joined(left, self.dice.pick((("and", "und"), ("but", "aber"))), right)

    def draw(self) -> "Sentence":
        """One sentence of the distribution that "train" is drawn from."""
        return self.finished(self.dice.weigh(KINDS))

    def finished(self, kind: str) -> "Sentence":
        self.apart = False
        self.again(lambda: None)
        en, de = getattr(self, kind)()
        end = "?" if kind == "question" else "."
        return Sentence(en, de, end, tuple(self.pairs_used), self.apart)


def joined(left: Pair, joint: tuple[str, str], right: Pair) -> Pair:
    """Two sentences with an English or a German word between them."""
    return (
        lambda: [*left[0](), ",", joint[0], *right[0]()],
        lambda: [*left[1](), ",", joint[1], *right[1]()],
    )


class Sentence:
    """What was drawn, put into words when it is asked for.

    Attributes:
      pairs: adjective and noun, verb and object.
      apart: words that must agree stand on both sides of a relative clause.
    """

    def __init__(self, english: Words, german: Words, end: str, pairs, apart: bool):
        self._english, self._german, self._end = english, german, end
        self.pairs: tuple[tuple[str, str], ...] = pairs
        self.apart = apart

    @cached_property
    def english(self) -> str:
        return clauses.written(self._english(), self._end)

    @cached_property
    def german(self) -> str:
        return clauses.written(self._german(), self._end)


def vague(phrase: Phrase) -> bool:
    """Whether nobody would ask about it: "Does a man sleep?"."""
    if isinstance(phrase.head, str) or phrase.owner:
        return False
    return phrase.determiner in ("a", "no", "every", "")


def stands_apart(clause: Clause) -> bool:
    """Whether a relative clause parts subject and verb, or the verb from its rest.

    Either the relative clause has a noun of the other number, which the verb must not
    agree with (*The man who has two dogs sleeps*), or the German finite verb stands
    before the relative clause and its prefix, participle or infinitive behind it.
    """
    phrase = clause.subject
    if phrase is None or phrase.relative is None:
        return False
    inner = phrase.relative
    others = [inner.subject, inner.accusative, inner.dative]
    others += [inner.complement and inner.complement.phrase]
    gap = {"subject": 0, "accusative": 1, "dative": 2, "complement": 3}[inner.gap]
    del others[gap]
    person = phrase.number == "plural"
    if any(other and (other.person == "plural") != person for other in others):
        return True
    fronted = clause.adverb is not None and clause.position == "front"
    return fronted and bool(german_verb(clause)[1])
