"""The built-in corpus is correct German, the same everywhere, and asks what it says."""

import hashlib
import itertools
import json
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from t2t_jax.data.corpus import open_corpus
from t2t_jax.extensions.grammar import corpus, lexicon, sentences
from t2t_jax.extensions.grammar.trees import Tree, bracketed, parse_bracketed
from t2t_jax.io.errors import UserError
from tests.small_run import ROOT

NOUNS = {noun.english: noun for noun in lexicon.EASY.nouns}


@pytest.fixture(scope="module")
def splits():
    return {split: corpus.pairs(split) for split in corpus.SPLITS}


# From the rules of German: what a teacher would write.
GOLD = {
    ("The baker's child feeds the lazy monkey.",
     "Das Kind des Bäckers füttert den faulen Affen."),
    ("They have not hurried to the house.", "Sie sind nicht ins Haus geeilt."),
    ("The nurse does not lose a clean jacket.",
     "Die Krankenschwester verliert keine saubere Jacke."),
    ("The boy does not take off this scarf.",
     "Der Junge zieht diesen Schal nicht aus."),
    ("Martin will drive to the market to invite the boy.",
     "Martin wird zum Markt fahren, um den Jungen einzuladen."),
    ("Their daughters knew that our ducks followed the father.",
     "Ihre Töchter wussten, dass unsere Enten dem Vater folgten."),
    ("Whom did our brave gardener follow?", "Wem ist unser mutiger Gärtner gefolgt?"),
    ("Did Daniel catch the small bird?", "Hat Daniel den kleinen Vogel gefangen?"),
    ("Today the friends are waiting for the hungry farmer.",
     "Heute warten die Freunde auf den hungrigen Bauern."),
}  # fmt: skip


def test_a_teacher_would_write_the_same(splits):
    assert {*itertools.chain(*splits.values())} >= GOLD


def test_edited_words_change_the_fingerprints(splits, monkeypatch):
    pinned = corpus.fingerprint("dev")
    monkeypatch.setattr(lexicon, "WORDS", {})
    edited = corpus.fingerprint("dev")
    monkeypatch.setattr(corpus, "_pairs", lambda split, seed, count: [("a", "b")])
    assert len({pinned, edited, *map(corpus.fingerprint, ("dev", "hard-dev"))}) == 3


def test_the_text_is_pinned(splits):
    """The fingerprints are constants, so the text must not change under them."""
    cases = itertools.product(("dev", "hard-dev"), (0, 1), (5, None))
    assert len({corpus.fingerprint(*case) for case in cases}) == 8
    hashes = json.loads((ROOT / "tests/data/grammar_hashes.json").read_text())
    for split, digest in hashes.items():
        lines = "".join(f"{en}\t{de}\n" for en, de in splits[split])
        assert hashlib.sha256(lines.encode()).hexdigest() == digest, split
    assert corpus.fingerprint("hard-dev") == hashes["hard-dev"]
    # Fewer are the first of more; other seeds draw others; both directions are read.
    assert corpus.pairs("train", 0, 50) == splits["train"][:50]
    other_seed = corpus.pairs("test", 1, 100)
    assert not {*other_seed} & {*splits["test"][:50], *splits["train"]}
    backwards = next(open_corpus("grammar:dev", "de", "en").pairs())
    assert backwards == splits["dev"][0][::-1]
    with pytest.raises(UserError, match="is English-German; got"):
        open_corpus("grammar:test", "en", "fr")


def test_no_sentence_is_in_two_splits_and_each_has_one_translation(splits):
    assert {name: len(lines) for name, lines in splits.items()} == corpus.SIZES
    german_of = {}
    for en, de in itertools.chain(*splits.values()):
        assert german_of.setdefault(en, de) == de
        for line in (en, de):
            assert re.fullmatch(r"[^\W\d_][\w ,.\']*[.?]", line)
            assert line[0].isupper()
            assert not re.search(r"  | [,.?]|,,|,[.?]|[.?].", line), line
    for hard in (False, True):  # the two texts may share a sentence
        texts = [lines for name, lines in splits.items() if ("hard" in name) == hard]
        assert len({*itertools.chain(*texts)}) == sum(map(len, texts))


def test_the_context_decides_between_the_translations_of_the_harder_text():
    """A verb's object or subject, or an adjective's noun, leaves one translation."""
    words, senses, readings = lexicon.HARD, {}, {}
    for noun in words.nouns:
        for verb in words.verbs:
            name = sentences.verb_name(verb)
            pair = verb.german["infinitive"], noun.singular
            # An object without a dative one; a subject of what has no object.
            if verb.objects & noun.groups and "person" in verb.subjects:
                sense = name, verb.frame.startswith("ditransitive"), noun.english
                readings.setdefault(sense, set()).add(pair)
            elif verb.subjects & noun.groups and not verb.objects:
                sense = name, verb.frame == "rest", "subject", noun.english
                readings.setdefault(sense, set()).add(pair)
            senses.setdefault(name, set()).add(pair[0])
        for adjective in words.adjectives:
            if adjective.groups & noun.groups:
                sense = adjective.english, noun.english
                pair = adjective.german, noun.singular
                readings.setdefault(sense, set()).add(pair)
                senses.setdefault(adjective.english, set()).add(adjective.german)
    assert not [sense for sense, pairs in readings.items() if len(pairs) > 1]
    assert sum(len(german) > 1 for german in senses.values()) > 30
    assert len(words.nouns) > 3 * len(lexicon.EASY.nouns)


def drawn(split, count=60):
    return list(itertools.islice(corpus._draw(split, 0), count))


def test_unseen_is_new_pairs_of_known_words(splits):
    vocabulary = corpus.words(" ".join(f"{en} {de}" for en, de in splits["train"]))
    for en, de in splits["unseen"]:
        assert corpus.words(f"{en} {de}") <= vocabulary
    forms = {}
    for verb in lexicon.EASY.verbs:
        forms.setdefault(sentences.verb_name(verb), set()).update(verb.english.values())
    for sentence in drawn("unseen", 100):
        new_pairs = [pair for pair in sentence.pairs if corpus.held_out(*pair)]
        sentence_words = corpus.words(sentence.english)
        assert new_pairs
        for word, name in new_pairs:  # both words of the pair are really there
            noun = NOUNS[name]
            assert {noun.english, noun.english_plural} & sentence_words, sentence
            assert (forms.get(word, set()) | {word}) & sentence_words, sentence
    for split in ("train", "dev", "test", "long", "agreement"):
        for sentence in drawn(split, 30):
            assert not any(corpus.held_out(*pair) for pair in sentence.pairs)


def test_long_is_longer_than_train_and_agreement_parts_what_must_agree(splits):
    longest = max(len(en.split()) for en, _ in splits["train"])
    assert longest <= corpus.LONGEST
    assert min(len(en.split()) for en, _ in splits["long"]) > longest
    assert max(len(en.split()) for en, _ in splits["agreement"]) <= corpus.LONGEST
    assert all(sentence.apart for sentence in drawn("agreement"))
    assert not all(sentence.apart for sentence in drawn("train"))


# ------------------------------------------------------------------------------ trees

PENN = {"S", "SBAR", "SQ", "SBARQ", "NP", "VP", "PP", "ADJP", "ADVP", "PRT"}
PENN |= {"WHNP", "WHPP", "WHADVP"}
# Drawn by hand from the sentences.
TREES = {
    "en": {
        "(S (PP (IN On) (NP (NNP Friday))) (NP (DT the) (JJ brave) (NN singer)) "
        "(VP (MD will) (VP (VB cry) (PP (IN in) (NP (DT the) (NN hotel))))) (. .))",
        "(S (NP (PRP She)) (VP (VBZ does) (RB not) (VP (VB know) (SBAR (IN whether) "
        "(S (NP (DT a) (NN baker)) (VP (VBD laughed) (PP (IN with) (NP (NNP David)))))"
        "))) (. .))",
    },
    "de": {
        "(S (PP (APPRART Am) (NP (NN Freitag))) (VAFIN wird) "
        "(NP (ART der) (ADJA mutige) (NN Sänger)) "
        "(VP (PP (APPRART im) (NP (NN Hotel))) (VVINF weinen)) (. .))",
        "(S (NP (NP (ART Die) (NN Tische)) (, ,) (SBAR (WHNP (PRELS die)) "
        "(S (NP (ART den) (NN Tanten)) (VVFIN gehören))) (, ,)) (VAFIN sind) "
        "(ADJP (ADJD schwer)) (. .))",
        # the relative clause follows the verb, so it is not in its noun phrase
        "(S (NP (PPOSAT Unsere) (NN Gärtner)) (VAFIN werden) (VP (NP (CARD acht) "
        "(NN Mäuse)) (VVINF ansehen) (, ,) (SBAR (WHNP (PRELS die)) "
        "(S (NP (ART der) (NN Student)) (VVFIN hört)))) (. .))",
    },
}


@pytest.mark.parametrize(("side", "language"), [(0, "en"), (1, "de")])
def test_trees_are_well_formed_with_the_words_of_their_lines(splits, side, language):
    plain, full = set(), []
    for split in ("train", "dev", "test"):
        trees = corpus.trees(split, language, count=100, features=True)
        for pair, tree in zip(splits[split][:100], trees, strict=True):
            # One tree word is one written word, but for Anna 's and can not.
            written = " ".join(tree.words())
            for apart, joined in ((" 's", "'s"), ("can not", "cannot"), (" ,", ",")):
                written = written.replace(apart, joined)
            assert written[:-2] + written[-1] == pair[side]
            for node in tree.plain().nodes():
                assert (node.label in PENN) != node.is_word
            plain.add(str(tree.plain()))
            full.append(bracketed(tree))
    assert TREES[language] <= plain
    # The fingerprints are constants, so the trees must not change under them.
    digest = hashlib.sha256("\n".join(full).encode()).hexdigest()
    assert digest == corpus.TREE_FINGERPRINTS[language]


words = st.text(st.sampled_from("ab()ä'-.,"), min_size=1, max_size=4).filter(
    # What an escaped bracket looks like cannot be told from one.
    lambda word: not any(name in word for name in ("-LRB-", "-RRB-"))
)
labels = st.sampled_from(["S", "NP-SBJ", "-NONE-", ".", ","])


def trees(labels, tags, words):
    """Draws trees of up to twelve words."""
    return st.recursive(
        st.builds(lambda tag, word: Tree(tag, (word,)), tags, words),
        lambda inner: st.builds(
            lambda label, children: Tree(label, tuple(children)),
            labels,
            st.lists(inner, min_size=1, max_size=4),
        ),
        max_leaves=12,
    )


@settings(max_examples=50)
@given(trees(labels, labels, words))
def test_brackets_are_read_as_they_are_written(tree):
    line = bracketed(tree)
    assert parse_bracketed(line) == tree
    assert parse_bracketed(f"( {line.replace(')', ' )')} )") == tree
    if not tree.is_word:
        assert len(tree.words()) == len(tree.tags()) == tree.spans()[0][2]


@pytest.mark.parametrize(
    ("line", "wrong"),
    [
        ("(S (NP I)", "not closed"),
        ("(S (NP I)))", "closes no"),
        ("", "want one tree"),
        ("(S (NP I)) (S (NP I))", "want one tree"),
        ("(S (NP))", "has no word"),
        ("(S (NP I) run)", "'run' beside other children"),
        ("(S ((NP I) (VP run)))", "no label"),
    ],
)
def test_what_is_not_a_tree_is_refused(line, wrong):
    with pytest.raises(UserError, match=wrong):
        parse_bracketed(line)
