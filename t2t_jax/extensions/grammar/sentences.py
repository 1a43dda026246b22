"""Draws sentences of the built-in corpus, in both languages at once.

A sentence begins as a `Clause` (`clauses.py`): a verb, then the people and things that
may go with it, so that nobody drinks a hat; then the time, and whether the clause is
negated, a question, or joined to another clause by a conjunction. Only then is it put
into English and German words.
"""

from collections.abc import Callable
from functools import partial

from t2t_jax.extensions.grammar import choices, clauses
from t2t_jax.extensions.grammar.choices import PERSON, verb_name
from t2t_jax.extensions.grammar.clauses import (
    COMMA,
    PRONOUNS,
    Adjunct,
    Clause,
    Node,
    Phrase,
)
from t2t_jax.extensions.grammar.dice import Dice
from t2t_jax.extensions.grammar.english import english, english_dependent
from t2t_jax.extensions.grammar.german import german, german_dependent, german_verb
from t2t_jax.extensions.grammar.lexicon import Lexicon, Noun, be
from t2t_jax.extensions.grammar.phrases import PhraseWriter
from t2t_jax.extensions.grammar.trees import Label, Tree

# Functions that put a meaning into English and German words. They are called only for
# sentences that a split keeps, because most of what is drawn is rejected.
WordMaker = Callable[[], Node]
Wording = tuple[WordMaker, WordMaker]


class SentenceWriter(PhraseWriter):
    """Draws clauses and sentences.

    Args:
      dice: The source of randomness.
      words: The words to draw from.
      relatives: The probability that a phrase gets a relative clause, where it may.
      nesting: The probability that a relative or reported clause contains another.
      kinds: Methods that draw a sentence, with weights.

    Attributes:
      apart: True if words of this sentence that must agree are far apart; see
        `stands_apart`.
    """

    def __init__(
        self,
        dice: Dice,
        words: Lexicon,
        relatives: float = 0.2,
        nesting: float = 0.0,
        kinds: str = choices.KINDS,
    ):
        super().__init__(dice, words)
        self.relatives, self.nesting, self.kinds = relatives, nesting, kinds
        self.apart = False

    # ------------------------------------------------------------ clauses

    def clause(self, tense="", subject=None, plain=False) -> Clause:
        """Draws a clause with a verb other than "to be".

        Args:
          tense: Its tense; empty draws one. The "infinitive" makes it a purpose,
            without a subject.
          subject: Its subject, such as the noun of a relative clause; None draws one.
          plain: Never negates it.
        """
        dice, infinitive = self.dice, tense == "infinitive"
        tense = tense or dice.weigh(choices.TENSES)
        groups = PERSON if infinitive else None
        if subject is not None:
            groups = PERSON if isinstance(subject.head, str) else subject.head.groups
        verb = dice.pick(choices.verbs_for(self.words, groups, tense))
        if subject and subject.head == "I" and tense == "present":
            verb = dice.pick(choices.first_person(self.words))
        clause = Clause(subject, verb, tense)
        self.fit_tense(clause)
        negated = not plain and not infinitive and dice.chance(0.12)
        negated = negated and not (clause.modal and not clause.modal.deny)
        clause.negated = negated
        if clause.subject is None and not infinitive:
            clause.subject = self.phrase(verb.subjects, "subject", negated)
            # The verb was drawn before it was known that the subject is "I".
            if clause.subject.head == "I" and tense == "present":
                clause.verb = dice.pick(choices.first_person(self.words))
                self.fit_tense(clause)
        if clause.subject and clause.subject.determiner in choices.UNNEGATED:
            clause.negated = False
        self.fill(clause)
        if not infinitive:
            self.time(clause)
        return clause

    def fit_tense(self, clause: Clause) -> None:
        """Draws what the tense leaves open: the modal, or the progressive."""
        dice, verb = self.dice, clause.verb
        clause.progressive = False
        if clause.tense == "modal":
            clause.modal = dice.pick(self.words.modals)
            clause.modal_past = "past" in clause.modal.english and dice.chance(0.3)
        if clause.tense == "present" and not verb.state:
            clause.progressive = dice.chance(0.5)

    def fill(self, clause: Clause) -> None:
        """Draws the objects and adjuncts that the frame of the verb asks for.

        Objects that are set already stay: a relative pronoun stands for them.
        """
        dice, verb, negated = self.dice, clause.verb, clause.negated
        frame, name = verb.frame, verb_name(verb)
        if frame.startswith(("accusative", "ditransitive")) and not clause.accusative:
            clause.accusative = self.phrase(verb.objects, "accusative", negated, name)
        if frame.startswith("ditransitive") and not clause.dative:
            clause.dative = self.phrase(PERSON, "dative", negated)
            # "kein" negates the first indefinite object; leave that to the accusative.
            if negated and clause.dative.determiner in ("a", ""):
                if isinstance(clause.dative.head, Noun) and not clause.dative.owner:
                    clause.dative = clause.dative._replace(determiner="the")
        if frame == "dative" and not clause.dative:
            clause.dative = self.phrase(verb.objects, "dative", negated, name)
        if frame == "prepositional" and not clause.complement:
            phrase = self.phrase(verb.objects, verb.case, negated, name)
            clause.complement = Adjunct("", verb.preposition, verb.case, phrase, False)
        if frame == "accusative, for someone" and dice.chance(0.3):
            clause.adjuncts = [self.company("for", "für", "accusative")]
        elif frame == "rest":
            clause.adjuncts = [self.stay(clause)]
        elif frame in ("goal", "origin"):
            clause.adjuncts = [self.place(frame)]
        elif frame == "swim" and dice.chance(0.7):
            noun = dice.pick(choices.members(self.words, frozenset({"waters"})))
            lake = Phrase(noun, determiner="the", adjective=self.adjective(noun))
            clause.adjuncts = [Adjunct("in", "in", "dative", lake)]
        elif frame == "journey":
            clause.adjuncts = [self.city(goal=True)]
        elif frame == "intransitive" and dice.chance(0.65):
            alone = verb.english["base"] in choices.ALONE
            if alone or "person" not in verb.subjects or dice.chance(0.6):
                clause.adjuncts = [self.place("rest")]
            else:
                clause.adjuncts = [self.company("with", "mit", "dative")]

    def stay(self, clause: Clause) -> Adjunct:
        """Draws where somebody is: in a place, in a city, or with people."""
        kind = self.dice.weigh("place 6 city 2 people 2")
        if kind == "place" or clause.verb.english["base"] == "sit":
            return self.place("rest")
        if kind == "people":
            return self.company("with", "bei", "dative")
        return self.city(goal=False)

    def time(self, clause: Clause) -> None:
        """Sometimes draws an adverb of time that fits the tense, and its position."""
        dice = self.dice
        if clause.verb.lasting or not dice.chance(0.42):
            return
        kind = clause.tense
        if kind == "present":
            if clause.verb.state:
                return
            # "He reads every day", but "he is reading now".
            kind = "now"
            if not clause.progressive:
                kind = "habit middle" if dice.chance(0.5) else "habit"
        elif kind == "perfect":
            kind = "perfect middle"
        elif kind == "modal":
            kind = "past" if clause.modal_past else "future"
        if kind.endswith("middle") and clause.negated:
            return
        clause.adverb = dice.pick(self.words.adverbs[kind])
        if kind.endswith("middle"):
            clause.position = "middle"
        else:
            # In front, the adverb sends the German subject behind the verb.
            clause.position = "front" if dice.chance(0.5) else "end"

    def state(self, subject: Phrase | None = None, tense: str = "present") -> Clause:
        """Draws a clause with "to be": is tired, is in the garden."""
        dice = self.dice
        if subject is None:
            kinds = frozenset(dice.pick(choices.STATE_SUBJECTS).split())
            subject = self.phrase(kinds, "subject")
            # Below, an adjective before the noun rules out one after the verb, except
            # for people. Mostly keep the one after the verb.
            if not kinds & {"person", "animal"} and dice.chance(0.8):
                self.forget(subject)
                subject = subject._replace(adjective=None)
        clause = Clause(subject, be, tense, negated=dice.chance(0.12))
        if subject.determiner in choices.UNNEGATED:
            clause.negated = False
        person = isinstance(subject.head, str) or "person" in subject.head.groups
        noun = subject.head if isinstance(subject.head, Noun) else None
        if person and dice.chance(0.25):
            clause.adjuncts = [self.stay(clause)]
            return clause
        pairs_before = len(self.pairs_used)
        of_people = choices.adjectives_for(self.words, PERSON)
        adjective = self.adjective(noun) if noun else dice.pick(of_people)
        attribute = subject.adjective
        clash = (attribute and not person) or attribute == adjective
        if attribute and adjective:
            clash |= {attribute.english, adjective.english} in choices.OPPOSITES
        if adjective is None or clash:
            self.pairs_used = self.pairs_used[:pairs_before]
            clause.adjuncts = [self.place("rest")]
            return clause
        clause.predicate = adjective
        clause.very = adjective.english not in ("empty",) and dice.chance(0.25)
        return clause

    def naming(self) -> Clause:
        """Draws a clause such as "This is a red hat"."""
        adjective = self.dice.pick(self.words.adjectives)
        noun = self.dice.pick(choices.members(self.words, adjective.groups))
        while not noun.plural:  # "This is a milk": mass nouns have no article "a"
            noun = self.dice.pick(self.words.nouns)
            adjective = self.adjective(noun)
        if adjective:
            self.pairs_used.append((adjective.english, noun.english))
        article = self.dice.weigh("a 60 my 10 his 8 her 8 our 8 their 8")
        named = Phrase(noun, determiner=article, adjective=adjective)
        negated = self.dice.chance(0.15)
        tense = "past" if self.dice.chance(0.2) else "present"
        return Clause(Phrase("this"), be, tense, negated=negated, predicate=named)

    # ------------------------------------------------------------ relative clauses

    def relate(self, clause: Clause) -> None:
        """Sometimes gives the subject, or an object at the end, a relative clause."""
        has_subject = clause.subject and clause.gap != "subject"
        if has_subject and self.dice.chance(self.relatives):
            clause.subject = self.with_relative(clause.subject, clause.tense)
        ends = not clause.adjuncts and not (clause.adverb and clause.position == "end")
        if not ends or not self.dice.chance(self.relatives):
            return
        if clause.gap not in ("", "subject"):
            return
        if clause.complement:
            phrase = self.with_relative(clause.complement.phrase, clause.tense)
            clause.complement = clause.complement._replace(phrase=phrase)
        elif clause.accusative and clause.verb.frame != "ditransitive, to":
            clause.accusative = self.with_relative(clause.accusative, clause.tense)
        elif clause.dative and not clause.accusative:
            clause.dative = self.with_relative(clause.dative, clause.tense)

    def with_relative(self, phrase: Phrase, tense: str) -> Phrase:
        """The phrase with a relative clause, if its determiner allows one."""
        dice, noun = self.dice, phrase.head
        related = phrase.determiner in choices.RELATED or phrase.numeral
        if isinstance(noun, str) or phrase.owner or not related:
            return phrase
        tense = dice.weigh(choices.WITHIN[tense])
        point = dice.random()
        plain = "person" in noun.groups or not phrase.adjective
        fitting = choices.adjectives_for(self.words, noun.groups)
        if point < 0.15 and plain and fitting and tense != "perfect":
            inner = self.state(phrase, tense)
            inner.gap = "subject"
        elif point < 0.6 and choices.verbs_for(self.words, noun.groups, tense):
            inner = self.clause(tense, phrase, plain=True)
            inner.gap = "subject"
        else:
            inner = self.object_relative(noun, tense)
            if inner is None:
                return phrase
        if inner.position == "front":  # the pronoun takes that place
            inner.position = "end"
        if self.nests():
            self.relate(inner)
        return phrase._replace(relative=inner)

    def nests(self) -> bool:
        """Draws whether a clause contains another of its kind."""
        return self.nesting > 0 and self.dice.chance(self.nesting)

    def object_relative(self, noun: Noun, tense: str) -> Clause | None:
        """Draws "... that the man bought", about a noun; None if no verb fits."""
        dice, verbs = self.dice, choices.verbs_with_object(self.words, noun, tense)
        if not verbs:
            return None
        verb, gap = dice.pick(verbs)
        inner = Clause(None, verb, tense, gap=gap)
        inner.subject = self.phrase(PERSON, "subject", plain=True)
        if inner.subject.head == "I" and verb not in choices.first_person(self.words):
            inner.subject = Phrase("we")
        self.fit_tense(inner)
        # Fill the role of the relative pronoun, so that `fill` does not draw it; the
        # gap keeps it out of the words.
        missing = Phrase(noun)
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
        """Draws a main clause, perhaps with relative clauses."""
        if tense not in ("perfect", "modal") and self.dice.chance(0.12):
            clause = self.state(subject, tense or self.dice.weigh(choices.STATE_TENSES))
        else:
            clause = self.clause(tense, subject)
        self.relate(clause)
        return clause

    def simple(self) -> Wording:
        """Draws one main clause."""
        clause = self.naming() if self.dice.chance(0.2) else self.main()
        return self.statement(clause)

    def statement(self, clause: Clause) -> Wording:
        """A main clause in both languages."""
        self.apart |= stands_apart(clause)
        return in_both(clause, "second")

    def complex(self) -> Wording:
        """Draws a main clause and one with a conjunction, which may come first."""
        dice = self.dice
        joint, german_joint, tense, inner_tense = dice.pick(choices.CONJUNCTIONS)
        main = self.main(tense)
        if main.modal_past:  # the dependent clause is in the present
            main.modal_past = False
            main.adverb = None
        leads = dice.chance(0.35)  # the dependent clause comes first
        if leads and main.position == "front":
            main.adverb = None
        if joint in ("while", "before"):
            main.negated = False
        # Often the dependent clause has the same subject, as a pronoun.
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
        if leads and pronoun:  # the noun comes first, the pronoun after
            inner.subject, main.subject = main.subject, inner.subject
        self.apart |= stands_apart(main)
        comma = (Label(",", inner), ",")  # that both languages have

        def in_english() -> Node:
            label, outer = english(main)
            dependent = english_dependent(joint, english(inner))
            return label, [dependent, comma, *outer] if leads else [*outer, dependent]

        def in_german() -> Node:
            # After a dependent clause the main clause begins with its verb.
            label, outer = german(main, "first" if leads else "second")
            dependent = german_dependent(german_joint, german(inner, "last"))
            if leads:
                return label, [dependent, comma, *outer]
            return label, [*outer, COMMA, dependent, COMMA]

        return in_english, in_german

    def pronoun_for(self, phrase: Phrase) -> Phrase | None:
        """He, she or they for a phrase; None if English and German may differ.

        German pronouns follow the grammatical gender, so things and animals have none
        here, and neither has das Mädchen (she, but neuter).
        """
        if phrase.pronoun:
            return phrase if phrase.head in ("I", "he", "she", "we", "they") else None
        if isinstance(phrase.head, str):
            return Phrase(
                "he" if phrase.head in self.words.names["he"].split() else "she"
            )
        if phrase.determiner in ("no", "every", "a") or not phrase.determiner:
            return None
        if "person" not in phrase.head.groups:
            return None
        if phrase.number == "plural":
            return Phrase("they")
        group = phrase.head.groups & {"he", "she"}
        return Phrase(min(group)) if group else None

    def reported(self) -> Wording:
        """Draws "Anna thinks that ...", or "he does not know whether ..."."""
        return self.statement(self.reporting())

    def reporting(self) -> Clause:
        """Draws the clause of `reported`, which depends on no other."""
        dice = self.dice
        verb = dice.pick(choices.verbs_of_frame(self.words, "clause"))
        past = dice.chance(0.3)
        clause = Clause(None, verb, "past" if past else "present")
        if verb.english["base"] == "say" and dice.chance(0.4):
            clause.tense = "perfect"
        # "Anna does not know whether ...".
        asks = verb.english["base"] == "know" and dice.chance(0.5)
        clause.negated = asks
        clause.subject = self.phrase(PERSON, "subject", plain=True)
        tense = "past" if past else dice.weigh(choices.WITHIN["present"])
        if not past and dice.chance(0.3):
            tense = dice.pick(("future", "modal"))
        if self.nests():
            inner = self.reporting()
        else:
            inner = self.clause(tense, plain=asks)
            if inner.position == "front":
                inner.position = "end"
            self.relate(inner)
        conjunction = ("whether", "ob") if asks else ("that", "dass")
        clause.dependent = (*conjunction, inner)
        return clause

    def purpose(self) -> Wording:
        """Draws a sentence such as "He goes to the market to buy apples"."""
        verb = self.dice.pick(choices.verbs_of_frame(self.words, "goal"))
        clause = Clause(None, verb, self.dice.weigh(choices.TENSES))
        self.fit_tense(clause)
        clause.subject = self.phrase(PERSON, "subject", plain=True)
        clause.adjuncts = [self.place("goal")]
        if clause.tense != "perfect" and self.dice.chance(0.3):
            self.time(clause)
            if clause.position == "end":
                clause.adverb = None
        if self.dice.chance(self.relatives):
            clause.subject = self.with_relative(clause.subject, clause.tense)
        clause.dependent = ("", "um", self.clause("infinitive"))
        return self.statement(clause)

    def question(self) -> Wording:
        """Draws a question: yes or no, why, when, or for the subject or an object."""
        dice = self.dice
        if dice.chance(0.2):
            clause = self.state()
            clause.negated = False
            clause.question = ("", "")
            return in_both(clause, "first")
        clause = self.clause(plain=True)
        # Nobody asks "Does a man sleep?".
        while clause.verb.lasting or vague(clause.subject):
            self.start_again()
            clause = self.clause(plain=True)
        clause.position = "end" if clause.position == "front" else clause.position
        yes_or_no, reason, moment = ("", ""), ("why", "warum"), ("when", "wann")
        opener = dice.pick((yes_or_no, yes_or_no, reason, moment, None))
        if opener is None:
            return self.ask_for_role(clause)
        if opener == moment:
            clause.adverb = None  # the time is what is asked for
        clause.question = reason if opener == moment and clause.verb.state else opener
        return in_both(clause, "first")

    def start_again(self) -> None:
        """Forgets the words of the last draw."""
        self.pairs_used.clear()
        self.heads.clear()

    def ask_for_role(self, clause: Clause) -> Wording:
        """Turns a clause into a question for its subject or for an object."""
        person = "person" in clause.verb.subjects
        roles = [role for role in ("accusative", "dative") if getattr(clause, role)]
        if not roles or self.dice.chance(0.5):
            # The question is for the subject. It needs no form of "do".
            self.forget(clause.subject)
            interrogative = Phrase("who" if person else "what")
            pronoun = PRONOUNS[interrogative.head][1].split()[0]
            clause.subject, clause.gap = interrogative, "subject"
            clause.question = (interrogative.head, pronoun)
            return in_both(clause, "first")
        role = roles[-1]
        phrase = getattr(clause, role)
        human = isinstance(phrase.head, str) or "person" in phrase.head.groups
        name = "who" if human or role == "dative" else "what"
        self.forget(phrase)
        case = 1 if role == "accusative" else 2
        english_pronoun = PRONOUNS[name][0].split()[1]  # the objective form: whom
        german_pronoun = PRONOUNS[name][1].split()[case]
        clause.gap, clause.question = role, (english_pronoun, german_pronoun)
        return in_both(clause, "first")

    def forget(self, phrase: Phrase) -> None:
        """Removes the word pairs of a phrase that the sentence will not contain."""
        if isinstance(phrase.head, Noun):
            name = phrase.head.english
            self.pairs_used = [pair for pair in self.pairs_used if pair[1] != name]

    def coordinated(self) -> Wording:
        """Draws two main clauses joined by "and" or "but"."""
        tense = self.dice.weigh("present 5 past 4 perfect 2 future 1")
        left, right = self.main(tense), self.main(tense)
        joint = self.dice.pick(choices.JOINTS)
        return joined(self.statement(left), joint, self.statement(right))

    def chain(self) -> Wording:
        """Joins two sentences of several clauses into one, for the split "long"."""
        kinds = (self.complex, self.reported, self.coordinated)
        left, right = self.dice.pick(kinds)(), self.dice.pick(kinds)()
        return joined(left, self.dice.pick(choices.JOINTS), right)

    def draw(self) -> "Sentence":
        """Draws one sentence of the distribution of "train"."""
        return self.finished(self.dice.weigh(self.kinds))

    def finished(self, kind: str) -> "Sentence":
        """Draws a sentence of one kind, which is the name of a method."""
        self.apart = False
        self.start_again()
        words = getattr(self, kind)()
        end = "?" if kind == "question" else "."
        return Sentence(words, end, tuple(self.pairs_used), self.apart)


def in_both(clause: Clause, order: str) -> Wording:
    """A clause in both languages; the German verb is "first" or "second"."""
    return partial(english, clause), partial(german, clause, order)


def joined(left: Wording, joint: tuple[str, str], right: Wording) -> Wording:
    """Joins two sentences by an (English, German) conjunction."""
    label, comma = Label("S", left), (Label(",", left), ",")
    return (
        lambda: (label, [left[0](), comma, ("CC", joint[0]), right[0]()]),
        lambda: (label, [left[1](), comma, ("KON", joint[1]), right[1]()]),
    )


class Sentence:
    """A sentence pair, put into words only when it is read.

    Attributes:
      pairs: Its pairs of words that "unseen" may hold out: (adjective, noun) and (verb,
        object).
      apart: True if words that must agree stand on both sides of a relative clause.
    """

    def __init__(self, words: Wording, end: str, pairs, apart: bool):
        self._words, self._end = words, end
        self._english_line = ""
        self.pairs: tuple[tuple[str, str], ...] = pairs
        self.apart = apart

    @property
    def english(self) -> str:
        """The English line."""
        # Not cached_property, whose lock takes as long as a tenth of the wording.
        if not self._english_line:
            self._english_line = clauses.written(self._words[0](), self._end)
        return self._english_line

    @property
    def german(self) -> str:
        """The German line."""
        return clauses.written(self._words[1](), self._end)

    def tree(self, language: str) -> Tree:
        """The tree in "en" or "de", with the features that its labels have."""
        words = self._words[("en", "de").index(language)]
        return clauses.sentence_tree(words(), self._end)


def vague(phrase: Phrase) -> bool:
    """True if nobody would ask about the phrase, as in "Does a man sleep?"."""
    if isinstance(phrase.head, str) or phrase.owner:
        return False
    return phrase.determiner in ("a", "no", "every", "")


def stands_apart(clause: Clause) -> bool:
    """True if a relative clause stands between words that depend on each other.

    Either the relative clause has a noun of the other number, with which the verb must
    not agree (*The man who has two dogs sleeps*); or the German finite verb stands
    before the relative clause, and its prefix, participle or infinitive after it.
    """
    phrase = clause.subject
    if phrase is None or phrase.relative is None:
        return False
    inner = phrase.relative
    other_roles = {
        role: getattr(inner, role) for role in ("subject", "accusative", "dative")
    }
    other_roles["complement"] = inner.complement and inner.complement.phrase
    del other_roles[inner.gap]  # the noun itself, for which the pronoun stands
    plural = phrase.number == "plural"
    if any(p and (p.person == "plural") != plural for p in other_roles.values()):
        return True
    # A fronted adverb sends the subject, with its relative clause, behind the verb.
    fronted = clause.adverb is not None and clause.position == "front"
    return fronted and bool(german_verb(clause)[1])
