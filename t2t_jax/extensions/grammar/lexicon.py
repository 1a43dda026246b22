"""The words of the built-in English-German corpora, and rules for their forms.

An entry of a table in lexicon.toml, or in harder.toml, is one word in both languages.
It gives only forms that must be memorized; rules derive the others (the English plural
*dogs*, the German dative plural *Hunden*). Nouns belong to groups (person, text, food,
...), and verbs and adjectives name the groups that they go with, so people read books
and dogs do not.

Each English word has one German translation in its context. Words whose translation
depends on knowledge of the world are excluded (*you*, *it*, the past of *read*).
"""

import tomllib
from pathlib import Path
from typing import NamedTuple

from t2t_jax.extensions.grammar.dice import digest


def read_toml(name: str) -> dict:
    """The tables of a file next to this one."""
    return tomllib.loads(Path(__file__).with_name(name).read_text("utf-8"))


class Noun(NamedTuple):
    """A noun in both languages; `singular`, `plural` and `genitive` are German."""

    english: str  # the singular, which also identifies the noun
    english_plural: str
    gender: str  # "m", "f", "n"
    singular: str
    plural: str  # "" for a mass noun
    genitive: str  # of the singular; "" where the grammar never needs one
    weak: bool  # takes -(e)n in all the singular but the nominative: den Jungen
    groups: frozenset[str]

    def german(self, number: str, case: str) -> str:
        """The German form for a number and a case."""
        if number == "plural":
            # The dative plural adds -n, except after -n and -s.
            bare = case != "dative" or self.plural[-1] in "ns"
            return self.plural if bare else self.plural + "n"
        if case == "genitive":
            return self.genitive
        return self.plural if self.weak and case != "nominative" else self.singular


class Adjective(NamedTuple):
    """An adjective in both languages."""

    english: str
    german: str  # as a predicate, without an ending: müde, teuer
    stem: str  # before an ending: müd-, teur-
    groups: frozenset[str]  # of the nouns that it may describe


class Verb(NamedTuple):
    """A verb in both languages, and what it goes with."""

    frame: str  # a key of the verbs, or "prepositional"
    english: dict[str, str]  # base, third, past (absent if unusable), participle, ing
    particle: str  # English: asleep, up, off ...
    particle_moves: bool  # picks him up, but: looks at him
    prefix: str  # German, separable: an-, auf- ...
    # infinitive, zu (infinitive with zu), first, third, plural, past, pasts (the plural
    # of the past), participle
    german: dict[str, str]
    auxiliary: str  # of the German perfect: "haben" or "sein"
    state: bool  # no progressive: sees
    lasting: bool  # and no adverb of time: not "today he knows her"
    subjects: frozenset[str]  # groups of nouns
    objects: frozenset[str]  # groups of nouns
    preposition: str  # German: auf, an ...
    case: str  # that the preposition governs


class Modal(NamedTuple):
    """A modal verb in both languages."""

    english: dict[str, tuple[str, ...]]  # third, others, past
    german: dict[str, str]  # third, plural, past, pasts (the plural of the past)
    do: bool  # is negated and asked with "do", like a main verb
    deny: bool  # may be negated


def rows(table: str) -> list[list[list[str]]]:
    """Reads a table of lines: the words of each column of each row."""
    return [
        [column.split() for column in line.split("|")]
        for line in table.strip().splitlines()
    ]


def entries(table: str) -> list[tuple[str, str]]:
    """Reads a table of entries "English : German" with bars between them."""
    pairs = (entry.split(":") for entry in table.split("|"))
    return [(english.strip(), german.strip()) for english, german in pairs]


def _s(word: str) -> str:
    """Adds the -s of the English plural or third person."""
    if word.endswith("y") and word[-2] not in "aeiou":
        return word[:-1] + "ies"
    return word + ("es" if word.endswith(("s", "sh", "ch", "x", "go")) else "s")


def _doubles(word: str) -> bool:
    """True if the last consonant doubles: running, but opening and waiting."""
    vowels = [letter in "aeiou" for letter in word]
    one_syllable = vowels[-3:] == [False, True, False] and sum(vowels) == 1
    return one_syllable and word[-1] not in "wy"


def _ed(word: str) -> str:
    """The regular English past."""
    if word.endswith("y") and word[-2] not in "aeiou":
        return word[:-1] + "ied"
    return word + ("d" if word.endswith("e") else "ed")


def _ing(word: str) -> str:
    """The English present participle."""
    if word.endswith("ie"):
        return word[:-2] + "ying"
    if word.endswith("e") and not word.endswith("ee"):
        return word[:-1] + "ing"
    return word + (word[-1] if _doubles(word) else "") + "ing"


def _nouns(words: dict) -> list[Noun]:
    """Parses the nouns."""
    nouns = []
    for group, table in words["nouns"].items():
        for english, german in entries(table):
            name, *irregular = english.split()
            article, singular, plural, *genitive = german.split()
            if group == "she":  # feminine nouns have one form in the singular
                genitive = [singular]
            groups = {group, name}
            groups |= {
                g for g, names in words["groups"].items() if name in names.split()
            }
            if group in ("he", "she", "young"):
                groups.add("person")
            gender = {"der": "m", "die": "f", "das": "n"}[article]
            nouns.append(
                Noun(
                    english=name,
                    english_plural=irregular[0] if irregular else _s(name),
                    gender=gender,
                    singular=singular,
                    plural=plural.strip("-"),
                    genitive="".join(genitive),
                    # der Junge, des Jungen, die Jungen: plural and genitive agree.
                    weak=gender == "m" and [plural] == genitive and plural[-1] == "n",
                    groups=frozenset(groups),
                )
            )
    return nouns


def _verb(frame, english, german, *groups, preposition=("", "")) -> Verb:
    """Parses a row of a table of verbs and derives the regular forms."""
    takes_object = frame.startswith(("accusative", "dative", "ditransitive", "prep"))
    objects, *subjects = groups if takes_object else ((), *groups)
    base, *irregular = english
    stative, base = base.count("="), base.lstrip("=")
    # A particle that starts with "~" after the partition is one that does not move.
    base, separator, particle = base.replace("_", "~~").partition("~")
    past, *participle = irregular or [_ed(base)]
    forms = {
        "base": base,
        "third": "has" if base == "have" else _s(base),
        "ing": _ing(base),
    }
    forms |= {"past": past, "participle": participle[0] if participle else past}
    infinitive, third, past, participle = german
    prefix, _, infinitive = infinitive.rpartition("+")
    if infinitive.endswith("eln"):  # ich lächle
        first = infinitive[:-3] + "le"
    else:
        first = infinitive[: -2 if infinitive.endswith("en") else -1] + "e"
    return Verb(
        frame=frame,
        english={name: form for name, form in forms.items() if form != "-"},
        particle=particle.lstrip("~"),
        particle_moves=bool(separator) and not particle.startswith("~"),
        prefix=prefix,
        german={
            "infinitive": prefix + infinitive,
            "zu": f"{prefix}zu{infinitive}" if prefix else f"zu {infinitive}",
            "first": "weiß" if infinitive == "wissen" else first,
            "third": third,
            "plural": infinitive,
            "past": past,
            "pasts": past + ("n" if past.endswith("e") else "en"),
            "participle": prefix + participle.lstrip("*"),
        },
        auxiliary="sein" if participle.startswith("*") else "haben",
        state=stative > 0,
        lasting=stative > 1,
        subjects=frozenset(subjects[0] if subjects else ["person"]),
        objects=frozenset(objects),
        preposition=preposition[0],
        case=preposition[1],
    )


def _modals(table: str) -> list[Modal]:
    """Parses the modal verbs; "_" stands for a space, "-" for a missing form."""
    modals = []
    for english, german, flags in rows(table):
        en = zip(("third", "others", "past"), english, strict=True)
        de = zip(("third", "plural", "past", "pasts"), german, strict=True)
        en = {name: tuple(form.split("_")) for name, form in en if form != "-"}
        de = {name: form for name, form in de if form != "-"}
        modals.append(Modal(en, de, do="do" in flags, deny="deny" in flags))
    return modals


class Lexicon:
    """The words of one file of tables, or of several."""

    def __init__(self, words: dict):
        self.names = words["names"]  # by the pronoun that stands for them
        self.all_names = " ".join(self.names.values()).split()
        self.place_prepositions = words["place_prepositions"]
        self.nouns, self.modals = _nouns(words), _modals(words["modals"])
        self.adjectives = [
            Adjective(en, de, *(stem or [de.removesuffix("e")]), frozenset(groups))
            for (en,), (de, *stem), groups in rows(words["adjectives"])
        ]
        self.verbs = [
            _verb(frame, *row)
            for frame, table in words["verbs"].items()
            for row in rows(table)
        ]
        self.verbs += [
            _verb("prepositional", english, german, objects, preposition=preposition)
            for english, german, preposition, objects in rows(words["prepositional"])
        ]
        self.adverbs = {kind: entries(t) for kind, t in words["adverbs"].items()}
        self.cities, self.numerals, self.function_words = (
            dict(entries(words[name]))
            for name in ("cities", "numerals", "function_words")
        )


def joined(one: dict, other: dict) -> dict:
    """The tables of one file with those of another after them, which replace modals."""
    both = one | other
    for name in one.keys() & other.keys() - {"modals"}:
        if isinstance(one[name], dict):
            both[name] = joined(one[name], other[name])
        else:  # entries are separated by bars, names by spaces, rows by line ends
            bar = " | " if ":" in other[name] else "\n"
            both[name] = one[name].rstrip() + bar + other[name]
    return both


WORDS, HARDER = read_toml("lexicon.toml"), read_toml("harder.toml")
POSSESSIVES = WORDS["possessives"]
EASY = Lexicon(WORDS)
HARD = Lexicon(joined(WORDS, HARDER["words"]))  # the words of both files
# Its first words are drawn most often. An order by their hashes mixes all tables.
for table in (HARD.nouns, HARD.verbs, HARD.adjectives):
    table.sort(key=lambda word: digest(str(word.english)))
be = _verb("be", ["be"], ["sein", "ist", "war", "*gewesen"])
be.german.update(first="bin", plural="sind", pasts="waren")
haben = {"first": "habe", "third": "hat", "plural": "haben"}
werden = {"first": "werde", "third": "wird", "plural": "werden"}
