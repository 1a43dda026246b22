"""Trees of the built-in corpus: their words are the lines, their brackets are read."""

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from t2t_jax.grammar import corpus
from t2t_jax.grammar.trees import Tree, bracketed, parse_bracketed
from t2t_jax.io.errors import UserError

PENN = {"S", "SBAR", "SQ", "SBARQ", "NP", "VP", "PP", "ADJP", "ADVP", "PRT"}
PENN |= {"WHNP", "WHPP", "WHADVP"}


@pytest.fixture(scope="module")
def sample():
    """The first lines of each split, with their trees: (line, tree)."""
    return {
        language: [
            (pair[side], tree)
            for split in ("train", "dev", "test")
            for pair, tree in zip(
                corpus.pairs(split, count=100),
                corpus.trees(split, language, count=100, features=True),
                strict=True,
            )
        ]
        for side, language in enumerate(("en", "de"))
    }


@pytest.mark.parametrize("language", ["en", "de"])
def test_trees_are_well_formed_with_the_words_of_their_lines(sample, language):
    tags = set()
    for line, tree in sample[language]:
        # One tree word is one written word, but for Anna 's and can not.
        written = " ".join(tree.words())
        for apart, joined in ((" 's", "'s"), ("can not", "cannot"), (" ,", ",")):
            written = written.replace(apart, joined)
        assert written[:-2] + written[-1] == line
        assert tree.label.split("-")[0] in ("S", "SQ", "SBARQ")
        for node in tree.plain().nodes():
            if node.is_word:
                tags.add(node.label)
            else:
                assert node.label in PENN
                assert not any(isinstance(child, str) for child in node.children)
        spans = tree.spans()
        assert spans[0][1:] == (0, len(tree.words()))
        assert all(start < end for _, start, end in spans)
    # Few tags, none of which is a label of a phrase.
    assert len(tags) < 45
    assert not tags & PENN
    # The fingerprints are constants, so the trees must not change under them.
    trees = "\n".join(bracketed(tree) for _, tree in sample[language])
    digest = hashlib.sha256(trees.encode()).hexdigest()
    assert digest == corpus.TREE_FINGERPRINTS[language]


# Drawn by hand from the sentences.
GOLD = [
    "(S (PP (IN On) (NP (NNP Friday))) (NP (DT the) (JJ brave) (NN singer)) "
    "(VP (MD will) (VP (VB cry) (PP (IN in) (NP (DT the) (NN hotel))))) (. .))",
    "(S (PP (APPRART Am) (NP (NN Freitag))) (VAFIN wird) "
    "(NP (ART der) (ADJA mutige) (NN Sänger)) "
    "(VP (PP (APPRART im) (NP (NN Hotel))) (VVINF weinen)) (. .))",
    "(S (NP (PRP She)) (VP (VBZ does) (RB not) (VP (VB know) (SBAR (IN whether) "
    "(S (NP (DT a) (NN baker)) (VP (VBD laughed) (PP (IN with) (NP (NNP David)))))"
    "))) (. .))",
    "(S (NP (NP (ART Die) (NN Tische)) (, ,) (SBAR (WHNP (PRELS die)) "
    "(S (NP (ART den) (NN Tanten)) (VVFIN gehören))) (, ,)) (VAFIN sind) "
    "(ADJP (ADJD schwer)) (. .))",
    "(S (NP (PPER Sie)) (VVFIN weiß) (PTKNEG nicht) (, ,) (SBAR (KOUS ob) "
    "(S (NP (ART ein) (NN Bäcker)) (PP (APPR mit) (NP (NE David))) "
    "(VVFIN lachte))) (. .))",
    # the relative clause follows the verb, so it is not in its noun phrase
    "(S (NP (PPOSAT Unsere) (NN Gärtner)) (VAFIN werden) (VP (NP (CARD acht) "
    "(NN Mäuse)) (VVINF ansehen) (, ,) (SBAR (WHNP (PRELS die)) "
    "(S (NP (ART der) (NN Student)) (VVFIN hört)))) (. .))",
]


def test_a_linguist_would_draw_the_same(sample):
    drawn = {str(tree.plain()) for pairs in sample.values() for _, tree in pairs}
    assert {*GOLD} <= drawn


words = st.text(st.sampled_from("ab()ä'-.,"), min_size=1, max_size=4).filter(
    # What an escaped bracket looks like cannot be told from one.
    lambda word: not any(name in word for name in ("-LRB-", "-RRB-"))
)
labels = st.sampled_from(["S", "NP-SBJ", "-NONE-", ".", ","])
trees = st.recursive(
    st.builds(lambda label, word: Tree(label, (word,)), labels, words),
    lambda inner: st.builds(
        lambda label, children: Tree(label, tuple(children)),
        labels,
        st.lists(inner, min_size=1, max_size=4),
    ),
    max_leaves=12,
)


@given(trees)
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
        ("word", "want one tree"),
        ("(S (NP I)) (S (NP I))", "want one tree"),
        ("(S (NP))", "has no word"),
        ("(S (NP I) run)", "'run' beside other children"),
        ("(S (NP I run))", "'I' beside other children"),
        ("(S ((NP I) (VP run)))", "no label"),
    ],
)
def test_what_is_not_a_tree_is_refused(line, wrong):
    with pytest.raises(UserError, match=wrong):
        parse_bracketed(line)


def test_function_tags_are_features():
    tree = parse_bracketed("(S (NP-SBJ=1 (-LRB- -LRB-) (PRP I)) (-NONE- *))")
    assert str(tree.plain()) == "(S (NP (-LRB- -LRB-) (PRP I)) (-NONE- *))"
    assert tree.words() == ["(", "I", "*"]
    assert tree.spans() == [("S", 0, 3), ("NP-SBJ=1", 0, 2)]
