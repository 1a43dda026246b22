"""Tables and rules for drawing sentences: which words go together, and how often.

Strings such as "the 44 a 24" are weighted choices for `Dice.weigh`. The order of lists
and of weights matters: it decides what a random number selects.
"""

import functools

from t2t_jax.extensions.grammar import lexicon
from t2t_jax.extensions.grammar.lexicon import Adjective, Lexicon, Noun, Verb

# ---------------------------------------------------------------- words that fit


@functools.cache
def members(words: Lexicon, groups: frozenset[str]) -> list[Noun]:
    """The nouns of any of these groups."""
    return [noun for noun in words.nouns if noun.groups & groups]


@functools.cache
def adjectives_for(words: Lexicon, groups: frozenset[str]) -> list[Adjective]:
    """The adjectives that may describe a noun of any of these groups."""
    return [a for a in words.adjectives if a.groups & groups]


def suits(verb: Verb, tense: str) -> bool:
    """True if both English and German use the verb in this tense."""
    if tense == "past" and "past" not in verb.english:
        return False
    if tense == "infinitive":  # as a purpose: somebody goes somewhere to do it
        aimless = verb.state or verb.english["base"] in AIMLESS
        return verb.frame in PURPOSES and not aimless
    if tense == "perfect" and verb.english["base"] == "have":
        return False
    return not verb.lasting or tense in ("present", "past")


@functools.cache
def verbs_for(
    words: Lexicon, subjects: frozenset[str] | None, tense: str
) -> list[Verb]:
    """The verbs for a subject of these groups (None: any) in a tense.

    Verbs that take a clause are excluded. Verbs with a separable prefix are listed
    twice, because each of their German forms is in two tokens and needs more examples.
    """
    return [
        verb
        for verb in words.verbs
        if subjects is None or verb.subjects & subjects
        if verb.frame != "clause" and suits(verb, tense)
        for _ in range(2 if verb.prefix else 1)
    ]


@functools.cache
def verbs_with_object(words: Lexicon, noun: Noun, tense: str) -> list[tuple[Verb, str]]:
    """The verbs of which a noun may be an object, each with the role of that object.

    Their subject may be a person.
    """
    verbs = []
    for verb in words.verbs:
        if "person" not in verb.subjects or not suits(verb, tense):
            continue
        if verb.objects & noun.groups:
            roles = {"dative": "dative", "prepositional": "complement"}
            verbs.append((verb, roles.get(verb.frame, "accusative")))
        if verb.frame.startswith("ditransitive") and "person" in noun.groups:
            verbs.append((verb, "dative"))
    return verbs


@functools.cache
def verbs_of_frame(words: Lexicon, frame: str) -> list[Verb]:
    """The verbs of a frame."""
    return [verb for verb in words.verbs if verb.frame == frame]


@functools.cache
def first_person(words: Lexicon) -> list[Verb]:
    """The verbs that "I" takes in the present."""
    return [
        verb
        for verb in words.verbs
        if verb.english["base"] in I_DO.split() and not verb.prefix
        if "person" in verb.subjects and verb.frame != "clause"
    ]


def verb_name(verb: Verb) -> str:
    """The base form with its particle, such as "turn on"."""
    return f"{verb.english['base']} {verb.particle}".strip()


# ---------------------------------------------------------------- noun phrases

PERSON = frozenset({"person"})
PLACE = frozenset({"place"})

# Determiners. "-" is none, "number" a numeral, "name" a name as the owner (Anna's dog),
# "of" a noun as the owner (the man's dog).
SINGULAR = "the 44 a 24 my 5 his 6 her 6 our 4 their 4 this 6 name 5 of 7"
PLURAL = (
    "the 34 number 20 - 12 my 4 his 5 her 5 our 4 their 4 these 7 many 6 all 5 some 6"
)
# Determiners in a negated clause, and wherever else a plain phrase is wanted.
PLAIN = {
    "singular": "the 44 a 24 my 5 his 6 her 6 our 4 their 4 this 6",
    "plural": "the 34 - 14 my 4 his 5 her 5 our 4 their 4 these 7",
}
# Determiners that name an owner, and the people and animals that may have one; for
# others, "the" is used instead.
POSSESSIVES = (*lexicon.POSSESSIVES, "name", "of")
BELONGING = "friend neighbor uncle brother father son grandfather aunt sister mother "
BELONGING += "daughter grandmother child doctor teacher guest gardener dog cat horse "
BELONGING += "bird cow rabbit goat pig duck"
BELONGING = frozenset(BELONGING.split())
# Places that may have an owner.
OWN_PLACES = ("house", "garden", "kitchen", "office")
# Determiners of phrases that may get a relative clause.
RELATED = (*lexicon.POSSESSIVES, "the", "a", "this", "these", "many", "no")
# Determiners of subjects whose clause is not negated: "Every man does not sleep" is
# ambiguous, and "no man does not sleep" negates twice.
UNNEGATED = ("no", "every", "many", "some")

# ---------------------------------------------------------------- verbs

# Frames of the verbs that may be a purpose ("to buy apples"), and verbs that may not.
PURPOSES = {"accusative", "accusative, for someone", "dative", "ditransitive"}
PURPOSES |= {"ditransitive, to", "prepositional", "intransitive", "swim"}
AIMLESS = {"break", "lose", "cry", "smile", "run", "follow", "hide", "wear", "carry"}
AIMLESS |= {"put", "take", "thank"}
# The verbs that "I" takes in the present: few, so that a model meets each form of the
# first person often enough.
I_DO = "see know read eat drink buy write help need love have work sleep go come"
I_DO += " sell visit open close hear understand"
ALONE = {"cry", "run", "smile", "wait", "sleep"}  # not done with somebody

# ---------------------------------------------------------------- "to be"

# Groups of the subject of "to be"; people are drawn in 4 of 14 cases.
STATE_SUBJECTS = ["person"] * 4 + ["animal", "clothes", "thing", "text", "food"]
STATE_SUBJECTS += ["carried vessel", "vehicle device", "place opening"]
STATE_SUBJECTS += ["carried vessel", "drink hot-drink"]
STATE_TENSES = "present 6 past 3 future 1"
# "The old man is young" would contradict itself.
OPPOSITES = ({"old", "young"}, {"rich", "poor"}, {"happy", "sad"}, {"strong", "sick"})

# ---------------------------------------------------------------- sentences

KINDS = "simple 46 complex 20 reported 10 coordinated 8 purpose 6 question 10"
TENSES = "present 40 past 25 perfect 14 future 11 modal 12"
# Tenses of a relative or dependent clause, by the tense of the main clause.
WITHIN = {
    "present": "present 50 past 20 perfect 20",
    "past": "past 1",
    "perfect": "present 40 past 50",
    "future": "present 60 past 20 perfect 20",
    "modal": "present 60 past 20 perfect 20",
    "infinitive": "present 1",
}
# English and German conjunction | the tenses of the main and the dependent clause | ...
CONJUNCTIONS = [
    (*conjunction, *tenses)
    for conjunction, *several in lexicon.rows("""
        because weil | present present | past past | perfect present | modal present
        although obwohl | present present | past past | perfect present
        if wenn | future present | modal present
        when wenn | future present | present present
        when als | past past
        while während | past past
        before bevor | past past | future present""")
    for tenses in several
]
JOINTS = (("and", "und"), ("but", "aber"))  # of two main clauses
