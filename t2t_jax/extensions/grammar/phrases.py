"""Draws noun phrases: people, things and places, with their companions."""

from t2t_jax.extensions.grammar import choices
from t2t_jax.extensions.grammar.clauses import Adjunct, Phrase
from t2t_jax.extensions.grammar.dice import Dice
from t2t_jax.extensions.grammar.lexicon import Adjective, Lexicon, Noun

# Groups of nouns: mostly one of a kind, but for buildings; and those that owners have
# only if they are in `choices.BELONGING`.
UNIQUE, BUILDINGS = ("place", "waters"), ("built", "sight", "room")
OWNED = ("person", "animal")


class PhraseWriter:
    """Draws phrases, and records the word pairs in them that "unseen" may hold out.

    Args:
      dice: The source of randomness.
      words: The words to draw from.

    Attributes:
      pairs_used: The (adjective, noun) and (verb, object) pairs of the sentence so far.
      heads: The nouns and names of the sentence so far, to avoid repeating them.
    """

    def __init__(self, dice: Dice, words: Lexicon):
        self.dice, self.words = dice, words
        self.pairs_used: list[tuple[str, str]] = []
        self.heads: set[str] = set()

    def person(self, role: str) -> Phrase | None:
        """Draws a pronoun or a name; None, in most cases, calls for a noun instead."""
        point = self.dice.random()
        if point < 0.16:
            head = self.dice.pick(("I", "he", "she", "we", "they"))
            # "I see me" would need a reflexive pronoun.
            if role != "subject" and self.heads & {"I", "we"} and head in ("I", "we"):
                head = "they"
            if role == "subject":
                self.heads.add(head)
            return Phrase(head)
        if point < 0.26:
            name = self.dice.pick(self.words.all_names)
            if name not in self.heads:
                self.heads.add(name)
                return Phrase(name)
        return None

    def phrase(self, groups, role: str, plain: bool = False, verb: str = "") -> Phrase:
        """Draws a phrase.

        Args:
          groups: The groups of its noun.
          role: "subject", or the case of an object.
          plain: Allows only the determiners of a negated clause.
          verb: The verb of which it is an object; empty if none.
        """
        dice = self.dice
        if "person" in groups:
            phrase = self.person(role)
            if phrase:
                return phrase
        members = choices.members(self.words, groups)
        noun = dice.pick(members)
        for _ in range(4):  # a few tries, because a small group may be used up
            if noun.english in self.heads:
                noun = dice.pick(members)
        self.heads.add(noun.english)
        if verb:
            self.pairs_used.append((verb, noun.english))
        plural = noun.plural and noun.groups.isdisjoint(UNIQUE)
        plural = plural or not noun.groups.isdisjoint(BUILDINGS)
        number = "plural" if plural and dice.chance(0.36) else "singular"
        determiner, numeral, owner = self.determiner(noun, number, role, plain)
        # Annas kleinem Hund, kaltem Wasser: this ending is too rare to be learned here.
        rare = role == "dative" and (owner or not determiner)
        described = dice.chance(0.4) and not rare
        adjective = self.adjective(noun) if described else None
        return Phrase(noun, number, determiner, numeral, adjective, owner)

    def adjective(self, noun: Noun) -> Adjective | None:
        """Draws an adjective that may describe a noun; None if there is none."""
        adjectives = choices.adjectives_for(self.words, noun.groups)
        if not adjectives:
            return None
        adjective = self.dice.pick(adjectives)
        self.pairs_used.append((adjective.english, noun.english))
        return adjective

    def determiner(self, noun, number, role, plain):
        """Draws (English determiner, German numeral, owner) for a noun."""
        dice = self.dice
        if "meal" in noun.groups:
            weighted = "the 60 my 5 his 5 her 5 our 5 their 5"
        elif not noun.plural:  # a mass noun: no "a", no numeral
            weighted = "the 40 - 40 my 4 his 4 her 4"
        elif plain:
            weighted = choices.PLAIN[number]
            if role == "subject":  # "Uncles do not wait" would be said of all uncles
                weighted = weighted.replace("- 14 ", "")
        else:
            weighted = choices.SINGULAR if number == "singular" else choices.PLURAL
            if role == "subject" and number == "singular":
                weighted += " every 4 no 3"
            elif role == "subject":  # "Uncles wait" would be said of all uncles
                weighted = weighted.replace("- 12 ", "")
        kind = dice.weigh(weighted)
        if kind in choices.POSSESSIVES and not noun.groups.isdisjoint(OWNED):
            if noun.english not in choices.BELONGING:
                return "the", "", None
        if kind == "number":
            numeral = dice.pick(list(self.words.numerals))
            return numeral, self.words.numerals[numeral], None
        if kind == "name":
            return "", "", dice.pick(self.words.all_names)
        if kind == "of":
            return "", "", dice.pick(choices.members(self.words, choices.PERSON))
        return kind.strip("-"), "", None

    def place(self, kind: str) -> Adjunct:
        """Draws the place of a stay ("rest"), of arrival ("goal") or of "origin"."""
        dice = self.dice
        noun = dice.pick(choices.members(self.words, choices.PLACE))
        owned = ""
        if noun.english in choices.OWN_PLACES:
            owned = "my 3 his 3 her 3 our 3 their 3 "
        determiner = dice.weigh(owned + "the 70 this 5 a 10")
        adjective = self.adjective(noun) if dice.chance(0.25) else None
        phrase = Phrase(noun, "singular", determiner, adjective=adjective)
        prepositions = self.words.place_prepositions.get(noun.english, "in in in aus")
        stay_en, stay, goal, origin = prepositions.split()
        if kind == "goal":
            # German "in" has the accusative for a direction, the dative for a place.
            case = "accusative" if goal == "in" else "dative"
            return Adjunct("to", goal, case, phrase)
        if kind == "origin":
            return Adjunct("from", origin, "dative", phrase)
        return Adjunct(stay_en, stay, "dative", phrase)

    def city(self, goal: bool) -> Adjunct:
        """Draws a city: in Berlin, or to Berlin if it is the goal."""
        city = Phrase(self.dice.pick(list(self.words.cities)))
        return Adjunct("to" if goal else "in", "nach" if goal else "in", "dative", city)

    def company(self, english: str, german: str, case: str) -> Adjunct:
        """Draws a person after the given English and German preposition."""
        person = self.phrase(choices.PERSON, "dative", plain=True)
        return Adjunct(english, german, case, person)
