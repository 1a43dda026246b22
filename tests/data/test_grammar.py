"""The built-in corpus is correct German, the same everywhere, and asks what it says."""

import hashlib
import itertools
import json
import re

import pytest
import sacrebleu

from t2t_jax.data.corpus import open_corpus
from t2t_jax.grammar import corpus, lexicon, sentences
from t2t_jax.grammar.clauses import Adjunct, Clause, Phrase, written
from t2t_jax.grammar.english import english
from t2t_jax.grammar.german import german
from tests.small_run import ROOT

NOUNS = {noun.english: noun for noun in lexicon.nouns}
ADJECTIVES = {adjective.english: adjective for adjective in lexicon.adjectives}
MODALS = {modal.english["others"][0]: modal for modal in lexicon.modals}
ADVERBS = dict(entry for entries in lexicon.adverbs.values() for entry in entries)
VERBS = {
    (verb.english["base"], verb.particle, verb.frame): verb
    for verb in reversed(lexicon.verbs)  # the first of a name: essen before fressen
}


def np(words, relative=None):
    """A phrase from its English words: "the old dogs", "Anna's dog", "they"."""
    *front, head = words.split()
    if (not front and head not in NOUNS and head[0] != head[0].lower()) or head in (
        ["I", "he", "she", "we", "they", "who", "what"]
    ):
        return Phrase(head)
    number = "singular" if head in NOUNS else "plural"
    plurals = {noun.english_plural: noun for noun in lexicon.nouns if noun.plural}
    noun = NOUNS.get(head) or plurals[head]
    adjective = ADJECTIVES[front.pop()] if front and front[-1] in ADJECTIVES else None
    owner, determiner = None, " ".join(front)
    if determiner.endswith("'s"):
        owner, determiner = determiner.removesuffix("'s"), ""
        owner = NOUNS[owner.removeprefix("the ")] if "the " in owner else owner
    determiner = "a" if determiner == "an" else determiner
    numeral = lexicon.numerals.get(determiner, "")
    return Phrase(noun, number, determiner, numeral, adjective, owner, relative)


def verb(name, frame="accusative"):
    base, _, particle = name.partition(" ")
    return VERBS[base, particle, frame]


def say(clause):
    asks = clause.question is not None
    de = german(clause, "first" if asks else "second")
    end = "?" if asks else "."
    return written(english(clause), end), written(de, end)


def do(subject, name, thing=None, to=None, **more):
    """A clause with a verb of any frame: who, does, what, to whom."""
    frame = more.pop("frame", "ditransitive" if to and thing else "accusative")
    frame = "dative" if to and not thing and "frame" not in more else frame
    clause = Clause(subject and np(subject), verb(name, frame), **more)
    if name == "eat" and "animal" in getattr(clause.subject.head, "groups", ()):
        clause.verb = next(v for v in lexicon.verbs if v.german["third"] == "frisst")
    clause.accusative = np(thing) if isinstance(thing, str) else thing
    clause.dative = np(to) if isinstance(to, str) else to
    if clause.adverb:
        clause.adverb = (clause.adverb, ADVERBS[clause.adverb])
    return clause


def place(en, de, case, words):
    return [Adjunct(en, de, case, np(words))]


def on(clause, words):
    """Fills the object of the verb's own preposition."""
    v = clause.verb
    clause.complement = Adjunct("", v.preposition, v.case, np(words), False)
    return clause


def relative(gap, clause, words):
    clause.gap = gap
    return np(words, clause)


def sits(subject, name, adjunct, frame="intransitive", **more):
    return do(subject, name, frame=frame, adjuncts=adjunct, **more)


def fixed(subject, name, **more):
    return do(subject, name, frame="intransitive, no place", **more)


def prep(subject, name, words, **more):
    return on(do(subject, name, frame="prepositional", **more), words)


def is_(subject, predicate, **more):
    predicate = ADJECTIVES.get(predicate) or np(predicate)
    subject = Phrase("this") if subject == "this" else np(subject)
    return Clause(subject, predicate=predicate, **more)


def with_subject(subject, clause):
    clause.subject = subject
    return clause


GARDEN = place("in", "in", "dative", "the garden")
MODAL = {"tense": "modal"}
FRONT = {"position": "front"}
YES_NO = {"question": ("", "")}

# Written by hand from the rules of German, not copied from the grammar's output.
GOLD = [
    # articles, adjectives, case
    (do("the man", "buy", "a red hat", frame="accusative, for someone"),
     "The man buys a red hat.", "Der Mann kauft einen roten Hut."),
    (do("an old woman", "read", "the new book"),
     "An old woman reads the new book.", "Eine alte Frau liest das neue Buch."),
    (do("this boy", "wash", "three dirty shirts"),
     "This boy washes three dirty shirts.",
     "Dieser Junge wäscht drei schmutzige Hemden."),
    (do("all tired students", "know", "our teacher"),
     "All tired students know our teacher.",
     "Alle müden Studenten kennen unseren Lehrer."),
    (do("no dog", "eat", "the soup"),
     "No dog eats the soup.", "Kein Hund frisst die Suppe."),
    # weak nouns, datives, genitives
    (do("the doctor", "help", to="a young student"),
     "The doctor helps a young student.", "Der Arzt hilft einem jungen Studenten."),
    (do("she", "show", "her picture", "they"),
     "She shows them her picture.", "Sie zeigt ihnen ihr Bild."),
    (do("Anna's small dog", "eat", "the bread"),
     "Anna's small dog eats the bread.", "Annas kleiner Hund frisst das Brot."),
    (do("the teacher's daughter", "read", "the letter"),
     "The teacher's daughter reads the letter.",
     "Die Tochter des Lehrers liest den Brief."),
    (do("the key", "belong to", to="the farmer"),
     "The key belongs to the farmer.", "Der Schlüssel gehört dem Bauern."),
    # places and contractions
    (sits("he", "go", place("to", "zu", "dative", "the market"), "goal"),
     "He goes to the market.", "Er geht zum Markt."),
    (sits("we", "go", place("to", "in", "accusative", "the museum"), "goal"),
     "We go to the museum.", "Wir gehen ins Museum."),
    (sits("Paul", "stay", place("with", "bei", "dative", "the doctor"), "rest"),
     "Paul stays with the doctor.", "Paul bleibt beim Arzt."),
    # separable verbs, tenses, auxiliaries
    (do("the man", "call", "his mother"),
     "The man calls his mother.", "Der Mann ruft seine Mutter an."),
    (do("she", "invite", "we", tense="past"),
     "She invited us.", "Sie lud uns ein."),
    (do("we", "turn off", "the lamps", tense="future"),
     "We will turn off the lamps.", "Wir werden die Lampen ausschalten."),
    # verb second after an adverb; modals
    (do("the man", "call", "his mother", progressive=True, adverb="today", **FRONT),
     "Today the man is calling his mother.", "Heute ruft der Mann seine Mutter an."),
    (do("Maria", "repair", "the bicycle", modal=MODALS["can"], **MODAL),
     "Maria can repair the bicycle.", "Maria kann das Fahrrad reparieren."),
    # denial
    (do("the man", "read", "a book", negated=True),
     "The man does not read a book.", "Der Mann liest kein Buch."),
    (do("the man", "read", "the book", negated=True),
     "The man does not read the book.", "Der Mann liest das Buch nicht."),
    (do("I", "call", "he", negated=True),
     "I do not call him.", "Ich rufe ihn nicht an."),
    (is_("this", "a red hat", negated=True),
     "This is not a red hat.", "Das ist kein roter Hut."),
    # verbs with a preposition
    (prep("the boy", "wait for", "the bus"),
     "The boy waits for the bus.", "Der Junge wartet auf den Bus."),
    # questions
    (do("the girl", "call", "a doctor", tense="past", **YES_NO),
     "Did the girl call a doctor?", "Hat das Mädchen einen Arzt angerufen?"),
    (do("she", "help", to="who", gap="dative", question=("whom", "wem")),
     "Whom does she help?", "Wem hilft sie?"),
    # relative clauses: the pronoun has its noun's gender and its own clause's case
    (do("the child", "see",
        relative("accusative", do("the woman", "love", "the dog"), "the dog")),
     "The child sees the dog that the woman loves.",
     "Das Kind sieht den Hund, den die Frau liebt."),
    (with_subject(
        relative("subject", do("the man", "have", "two dogs"), "the man"),
        fixed(None, "wake up")),
     "The man who has two dogs wakes up.", "Der Mann, der zwei Hunde hat, wacht auf."),
    (with_subject(
        relative("dative", do("we", "help", to="the children"), "the children"),
        do(None, "thank", to="we")),
     "The children whom we help thank us.",
     "Die Kinder, denen wir helfen, danken uns."),
    (with_subject(
        relative("complement", prep("the boy", "wait for", "the woman"), "the woman"),
        do(None, "read", "a letter")),
     "The woman whom the boy waits for reads a letter.",
     "Die Frau, auf die der Junge wartet, liest einen Brief."),
    # verb last
    (do("Anna", "know", frame="clause", dependent=(
        "that", "dass", do("the man", "call", "the doctor"))),
     "Anna knows that the man calls the doctor.",
     "Anna weiß, dass der Mann den Arzt anruft."),
    (do("we", "go", frame="goal", adjuncts=place("to", "zu", "dative", "the station"),
        dependent=("", "um", do(None, "pick up", "the aunt", tense="infinitive"))),
     "We go to the station to pick up the aunt.",
     "Wir gehen zum Bahnhof, um die Tante abzuholen."),
]  # fmt: skip


def test_a_teacher_would_write_the_same():
    for clause, en, de in GOLD:
        assert say(clause) == (en, de)


@pytest.fixture(scope="module")
def splits():
    return {split: corpus.pairs(split) for split in corpus.SPLITS}


def test_fewer_are_the_first_of_more_and_other_seeds_draw_others(splits):
    assert corpus.pairs("train", 0, 50) == splits["train"][:50]
    others = corpus.pairs("test", 1, 100)
    assert others[:50] != splits["test"][:50]
    assert not {*others} & {*splits["train"]}


def test_the_text_is_pinned(splits):
    """The fingerprints are constants, so the text must not change under them."""
    cases = itertools.product(("dev", "test"), (0, 1), (5, None))
    assert len({corpus.fingerprint(*case) for case in cases}) == 8
    wanted = json.loads((ROOT / "tests/data/grammar_hashes.json").read_text())
    for split, digest in wanted.items():
        lines = "".join(f"{en}\t{de}\n" for en, de in splits[split])
        assert hashlib.sha256(lines.encode()).hexdigest() == digest, split


def test_it_is_read_in_both_directions(splits):
    for step, languages in ((1, ("en", "de")), (-1, ("de", "en"))):
        first = next(open_corpus("grammar:dev", *languages).pairs())
        assert first == splits["dev"][0][::step]


def test_no_sentence_is_in_two_splits_or_twice(splits):
    assert {name: len(lines) for name, lines in splits.items()} == corpus.SIZES
    english_lines = [en for lines in splits.values() for en, _ in lines]
    assert len(english_lines) == len(set(english_lines))


def test_german_is_a_function_of_english(splits):
    german_of = {}
    others = corpus.pairs("train", 1, 500)
    for en, de in itertools.chain(*splits.values(), others):
        assert german_of.setdefault(en, de) == de


def test_lines_are_written_as_sentences(splits):
    for line in itertools.chain(*itertools.chain(*splits.values())):
        assert re.fullmatch(r"[^\W\d_][\w ,.\']*[.?]", line)
        assert line[0].isupper()
        assert not re.search(r"  | [,.?]|,,|,[.?]|[.?].", line), line


def drawn(split, count=60):
    return list(itertools.islice(corpus._draw(split, 0), count))


def test_unseen_is_new_pairs_of_known_words(splits):
    known = corpus.words(" ".join(f"{en} {de}" for en, de in splits["train"]))
    for en, de in splits["unseen"]:
        assert corpus.words(f"{en} {de}") <= known
    forms = {}
    for one in lexicon.verbs:
        forms.setdefault(sentences.verb_name(one), set()).update(one.english.values())
    for sentence in drawn("unseen", 100):
        held = [pair for pair in sentence.pairs if corpus.held_out(*pair)]
        said = corpus.words(sentence.english)
        assert held
        for word, name in held:  # both words of the pair are really there
            noun = NOUNS[name]
            assert {noun.english, noun.english_plural} & said, sentence
            assert (forms.get(word, set()) | {word}) & said, sentence


def test_the_other_splits_have_no_held_out_pair(splits):
    for split in ("train", "dev", "test", "long", "agreement"):
        for sentence in drawn(split, 30):
            assert not any(corpus.held_out(*pair) for pair in sentence.pairs)
    held = re.compile(
        "|".join(
            rf"\b{adjective.english} (?:{noun.english}|{noun.english_plural})\b"
            for adjective in lexicon.adjectives
            for noun in lexicon.nouns
            if adjective.groups & noun.groups
            and corpus.held_out(adjective.english, noun.english)
        )
    )
    for en, _ in splits["test"] + splits["train"][:1000]:
        assert not held.search(en), en


def test_long_is_longer_than_train(splits):
    longest = max(len(en.split()) for en, _ in splits["train"])
    assert longest <= corpus.LONGEST
    assert min(len(en.split()) for en, _ in splits["long"]) > longest


def test_agreement_parts_what_must_agree(splits):
    assert max(len(en.split()) for en, _ in splits["agreement"]) <= corpus.LONGEST
    assert all(sentence.apart for sentence in drawn("agreement"))
    assert sum(sentence.apart for sentence in drawn("train", 300)) >= 5


def test_apart_is_another_number_or_a_fronted_bracket():
    two = relative("subject", do("the man", "have", "two dogs"), "the man")
    one = relative("subject", do("the man", "have", "a dog"), "the man")
    assert sentences.stands_apart(with_subject(two, fixed(None, "wake up")))
    assert not sentences.stands_apart(with_subject(one, fixed(None, "wake up")))
    fronted = fixed(None, "wake up", adverb="today", **FRONT)
    assert sentences.stands_apart(with_subject(one, fronted))


def test_word_for_word_knows_words_but_no_grammar(splits):
    known = corpus.words(" ".join(corpus._dictionary()))
    for split in ("test", "agreement"):
        lines = splits[split][:200]
        assert all(corpus.words(en) <= known for en, _ in lines)
        guesses = [corpus.word_for_word(en) for en, _ in lines]
        score = sacrebleu.corpus_bleu(guesses, [[de for _, de in lines]]).score
        assert 3 < score < 30


def test_an_unknown_split_is_told_the_nearest():
    with pytest.raises(ValueError, match="did you mean 'train'"):
        corpus.pairs("trian")
