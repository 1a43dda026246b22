"""The built-in English-German corpora: splits of sentences drawn from a grammar.

It replaces a download, to train a tiny Transformer in minutes. The model has to learn
what the two languages demand: agreement in gender, case and number, the verb in second
or last place, separable verbs, relative clauses. Each split asks one question:

    train, dev, test  the same distribution
    unseen            known words in new pairs (adjective and noun, verb and object),
                      which `held_out` keeps out of all other splits
    long              sentences longer than any in train
    agreement         words that must agree stand on both sides of a relative clause

hard-train, hard-dev and hard-test are a harder text, on which experiments rank ideas:
three times the words, many with several translations, longer and nested sentences, and
so few of them that a model can overfit (docs/ladder.md).

The German is a function of the English, and everything is a function of the seed.
"""

import collections
import functools
import hashlib
import itertools
import re
from collections.abc import Iterator

from t2t_jax.data.corpus import Corpus, hash_of
from t2t_jax.extensions.grammar import lexicon
from t2t_jax.extensions.grammar.choices import CONJUNCTIONS
from t2t_jax.extensions.grammar.clauses import PRONOUNS
from t2t_jax.extensions.grammar.dice import Dice, digest
from t2t_jax.extensions.grammar.german import DETERMINERS, ENDINGS
from t2t_jax.extensions.grammar.sentences import Sentence, SentenceWriter
from t2t_jax.extensions.grammar.trees import Tree
from t2t_jax.io.errors import UserError, did_you_mean
from t2t_jax.text.languages import identify
from t2t_jax.text.units import Pair

SIZES = {
    "train": 30_000,
    "dev": 500,
    "test": 500,
    "unseen": 500,
    "long": 300,
    "agreement": 500,
}
# How the harder text is drawn, and the sizes of its splits.
DRAWING = lexicon.HARDER["drawing"]
SIZES |= DRAWING["splits"]
SPLITS = tuple(SIZES)
# The probability that a phrase gets a relative clause; other splits are as "train".
RELATIVES = {"train": 0.2, "agreement": 0.8, "long": 0.35}
LONGEST = 22  # the most English words of a sentence, in all splits but "long"
# The split of each of 40 buckets; the others are train. Sentences in buckets 2, 3 and 4
# that are not apart belong to no split. In train, they would lower the share of
# sentences that are apart below their share in test.
BUCKETS = {0: "dev", 1: "test", **dict.fromkeys((2, 3, 4), "agreement")}
HARD_BUCKETS = {0: "hard-dev", 1: "hard-test"}  # of 8


@functools.cache
def held_out(word: str, noun: str) -> bool:
    """True if a pair (adjective or verb, noun) is kept for "unseen"; 1 in 12 is."""
    return digest(f"{word} {noun}") % 12 == 0


def _belongs(split: str, sentence: Sentence) -> bool:
    """True if a sentence belongs to a split; it belongs to at most one.

    A hash of the English deals sentences out, so splits of any seed and size are
    disjoint.
    """
    if split in DRAWING["splits"]:
        bucket = HARD_BUCKETS.get(digest(sentence.english) % 8, "hard-train")
        return split == bucket and len(sentence.english.split()) <= DRAWING["longest"]
    # Tests that need no words come first, because putting a clause into words is slow.
    if any(held_out(*pair) for pair in sentence.pairs) != (split == "unseen"):
        return False
    if split == "agreement" and not sentence.apart:
        return False
    is_long = len(sentence.english.split()) > LONGEST
    if is_long or split in ("long", "unseen"):
        return is_long == (split == "long")
    return split == BUCKETS.get(digest(sentence.english) % 40, "train")


def _draw(split: str, seed: int) -> Iterator[Sentence]:
    """Yields sentences of a split without end, none of them twice."""
    dice = Dice(f"{split} {seed}")
    style = lexicon.EASY, RELATIVES.get(split, RELATIVES["train"])
    if split in DRAWING["splits"]:
        dice.skew = DRAWING["skew"]
        style = lexicon.HARD, DRAWING["relatives"], DRAWING["nesting"], DRAWING["kinds"]
    writer = SentenceWriter(dice, *style)
    # The special splits ask one question each; unknown words would be another.
    special = split in ("unseen", "long", "agreement")
    vocabulary = _vocabulary(seed) if special else None
    drawn = set()
    while True:
        sentence = writer.finished("chain") if split == "long" else writer.draw()
        if not _belongs(split, sentence) or sentence.english in drawn:
            continue
        if (
            vocabulary
            and not words(f"{sentence.english} {sentence.german}") <= vocabulary
        ):
            continue
        drawn.add(sentence.english)
        yield sentence


def words(line: str) -> set[str]:
    """The words of a line without punctuation, in lower case."""
    return set(re.findall(r"[\w']+", line.lower()))


@functools.lru_cache(maxsize=2)
def _vocabulary(seed: int) -> set[str]:
    """All words of train in both languages; the special splits use no others."""
    return words(" ".join(f"{en} {de}" for en, de in pairs("train", seed)))


def pairs(split: str, seed: int = 0, count: int | None = None) -> list[tuple[str, str]]:
    """The (English, German) sentences of a split.

    A smaller count gives the first sentences of a larger one.

    Args:
      split: One of `SPLITS`.
      seed: Another seed draws other sentences. Different splits are disjoint whatever
        their seeds.
      count: The number of sentences; None is the default in `SIZES`.

    Raises:
      UserError: There is no such split.
    """
    return list(_pairs(split, seed, _count(split, count)))


def sentences(
    split: str, seed: int = 0, count: int | None = None
) -> Iterator[Sentence]:
    """Draws the sentences that `pairs` returns, with their trees."""
    return itertools.islice(_draw(split, seed), _count(split, count))


def check_split(split: str, spec: str) -> None:
    """Raises UserError if the split that a spec names does not exist."""
    if split not in SIZES:
        raise UserError(f"{spec}: no such split" + did_you_mean(split, SPLITS))


def _count(split: str, count: int | None) -> int:
    """The number of sentences to draw; raises UserError if there is no such split."""
    check_split(split, f"grammar:{split}")
    return SIZES[split] if count is None else count


@functools.lru_cache(maxsize=8)
def _pairs(split: str, seed: int, count: int) -> tuple[tuple[str, str], ...]:
    """The cached result of `pairs`; a tuple, because callers may change their list."""
    return tuple((s.english, s.german) for s in sentences(split, seed, count))


# The key of each split's text in the cache of prepared text, and in workdirs. Replace
# all of them when a change of the grammar changes a sentence;
# tests/data/grammar_hashes.json pins the text.
FINGERPRINTS = {
    "train": "1e095e619f997c154cc9378a7aa0a870b2616b0a86327a99f66af12d319ea7dc",
    "dev": "dee061f89bfbe172f93f555df4e3ee8feba1b29ab311e9eeb1ba25fe7fa4420b",
    "test": "a94584aefd0de47d2a18d7bb07543527cb3b0f1b659a11aeb65e8e3edc9a3d48",
    "unseen": "e739a65771fbfcd44b04dcaf769712940d36d1041612411dbd7e90b9527a51c4",
    "long": "db463c5f66ecbb57cf7c99a5f241f46328b66d743b246d037c76f77e5d4eb682",
    "agreement": "ebb7094884d6bd36990b1da40bed309b165f82916ea242f80063e197465f5ed4",
}
# The hash of the words in lexicon.toml; with others, the text itself is the key.
_LEXICON = "ac42de5501834ac183e82c90632db3d87a04316aa0ba3c2ec40576fe8468acf5"


def fingerprint(split: str, seed: int = 0, count: int | None = None) -> str:
    """A hash that changes whenever a sentence that `pairs` returns changes."""
    edited = hash_of(repr(lexicon.WORDS).encode()) != _LEXICON
    if edited or split in DRAWING["splits"]:
        lines = "".join(f"{en}\t{de}\n" for en, de in pairs(split, seed, count))
        return hashlib.sha256(lines.encode()).hexdigest()
    if seed == 0 and count in (None, SIZES.get(split)):
        return FINGERPRINTS[split]
    arguments = f"{split} {seed} {count} {FINGERPRINTS[split]}"
    return hashlib.sha256(arguments.encode()).hexdigest()


def trees(
    split: str,
    language: str,
    seed: int = 0,
    count: int | None = None,
    features: bool = False,
) -> list[Tree]:
    """The constituency trees of the sentences that `pairs` returns.

    Their words are the words of the line: *sleeps .* for *sleeps.*, and in English
    *Anna 's* and *can not*.

    Args:
      split, seed, count: As for `pairs`.
      language: "en" or "de".
      features: Keeps in the labels what must agree, after a dash: NP-third, VP-third.
    """
    drawn = sentences(split, seed, count)
    with_features = (sentence.tree(language) for sentence in drawn)
    return [tree if features else tree.plain() for tree in with_features]


# A hash of the first trees of train, dev and test, with features; a test checks it.
TREE_FINGERPRINTS = {
    "en": "5a23fc83d4db950ccc4616c3073de4cd3fdebfdb3a5575bc745ec6d9eab03b62",
    "de": "97539e809511558ed1a1e4731869e262e5f5c115cf443a264d10d13ab25b3c8b",
}


def tree_fingerprint(split: str, language: str) -> str:
    """A hash that changes whenever a tree that `trees` returns changes."""
    arguments = f"{fingerprint(split)} {TREE_FINGERPRINTS[language]}"
    return hashlib.sha256(arguments.encode()).hexdigest()


# ---------------------------------------------------------------- the baseline


def _translations(words: lexicon.Lexicon = lexicon.EASY) -> dict[str, set[str]]:
    """All German forms that each English word may be translated as."""
    forms_of = collections.defaultdict(set)

    def add(en: str, *de: str) -> None:
        forms_of[en.lower()] |= {word for word in de if word}

    # English words do not show the case, so the forms of all cases are candidates.
    cases = ("nominative", "accusative", "dative")
    for noun in words.nouns:
        add(noun.english, *(noun.german("singular", case) for case in cases))
        add(noun.english + "'s", noun.genitive)
        if noun.plural:
            add(noun.english_plural, *(noun.german("plural", case) for case in cases))
    for adjective in words.adjectives:
        forms = (adjective.stem + ending for ending in ("e", "en", "er", "es", "em"))
        add(adjective.english, adjective.german, *forms)
    for verb in words.verbs:
        de, en = verb.german, verb.english
        add(en["base"], de["infinitive"], de["plural"], de["first"])
        add(en["third"], de["third"])
        add(en["ing"], de["third"], de["plural"])
        add(en["participle"], de["participle"])
        if "past" in en:
            add(en["past"], de["past"], de["pasts"])
    for en, row in DETERMINERS.items():
        stem, table, _ = row.split()
        forms = {*ENDINGS[table].replace("|", "").split()}
        add(en, *(stem + form.strip("-") for form in forms))
    for en, de in PRONOUNS.values():
        for form in en.split():
            add(form, *de.replace("-", "").split())
    for en, de, *_ in CONJUNCTIONS:
        add(en, de)
    for name in words.all_names:
        add(name, name)
        add(f"{name}'s", f"{name}s")
    for table in (words.numerals, words.cities, words.function_words):
        for en, de in table.items():
            add(en, *de.split())
    for modal in words.modals:
        de = modal.german
        add(modal.english["third"][0], de["third"], de["plural"])
        add(modal.english["others"][0], de["third"], de["plural"])
        if "past" in modal.english:
            add(modal.english["past"][0], de["past"], de["pasts"])
    for entries in words.adverbs.values():
        for en, de in entries:
            if " " not in en:  # the words of the others have entries elsewhere
                add(en, de)
    return forms_of


@functools.cache
def _dictionary(hard: bool) -> dict[str, str]:
    """The most frequent German form of each English word, counted in training text."""
    counts = collections.Counter()
    for _, de in pairs("hard-train" if hard else "train", 0, 3000):
        counts.update(re.findall(r"\w+", de))
    return {
        # Sorted, so that ties are broken the same way every time: a set has no order.
        en: max(sorted(forms), key=lambda form: counts[form]) if forms else ""
        for en, forms in _translations(lexicon.HARD if hard else lexicon.EASY).items()
    }


def word_for_word(english: str, split: str = "test") -> str:
    """Translates each word by its most frequent translation, without any grammar.

    The words are those of the text that the split is of.

    This is the baseline that a trained model must beat. It keeps the order of the words
    and the punctuation, and starts with a capital.
    """
    dictionary = _dictionary(split in DRAWING["splits"])
    tokens = re.findall(r"[\w']+|[^\w\s]", english)  # words, punctuation marks
    out = [dictionary.get(token.lower(), token) for token in tokens]
    line = re.sub(r" ([,.?])", r"\1", " ".join(word for word in out if word))
    return line[:1].upper() + line[1:]


def split_corpus(split: str, source: str, target: str) -> Corpus:
    """A split of the built-in English-German corpus, in either direction."""
    spec = f"grammar:{split}"
    codes = identify(source).code, identify(target).code
    if {*codes} != {"en", "de"}:
        raise UserError(
            f"{spec} is English-German; got config.data.source={source!r} and "
            f"config.data.target={target!r}; want 'en' and 'de', in either order"
        )
    check_split(split, spec)

    def in_order() -> Iterator[Pair]:
        for english, german in pairs(split):
            yield (english, german) if codes[0] == "en" else (german, english)

    direction = "-".join(codes).encode()
    return Corpus(
        spec,
        split,
        source,
        target,
        pairs=in_order,
        fingerprint=lambda: hash_of(fingerprint(split).encode(), direction),
    )
