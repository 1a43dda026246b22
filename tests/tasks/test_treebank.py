"""Treebanks: layouts that are read, and mistakes that are named."""

import gzip

import pytest

from t2t_jax.config import Config
from t2t_jax.grammar.trees import bracketed
from t2t_jax.io.errors import UserError
from t2t_jax.tasks.parsing import Parsing
from t2t_jax.tasks.treebank import cleaned, open_treebank, read_trees, tree_file

PENN = """
( (S
    (NP-SBJ-1 (DT The) (NN dog) )
    (VP (VBZ seems)
      (S (NP-SBJ (-NONE- *-1) )
        (VP (TO to) (VP (VB bark)))))
    (. .) ))

( (S (NP=2 (-LRB- -LRB-) (NN cat) (-RRB- -RRB-)) (VP (VBZ sleeps) (NP (-NONE- *)))))
"""
PLAIN = [
    "(S (NP (DT The) (NN dog)) (VP (VBZ seems) (S (VP (TO to) (VP (VB bark))))) (. .))",
    "(S (NP (-LRB- -LRB-) (NN cat) (-RRB- -RRB-)) (VP (VBZ sleeps)))",
]


def opened(folder, name="wsj", linearise=bracketed):
    return open_treebank(name, "en", linearise, str(folder))


def test_the_penn_layout_is_read_without_traces_and_functions():
    found = list(read_trees(PENN.splitlines(), "wsj"))
    assert [line for line, _ in found] == [2, 9]
    assert [bracketed(cleaned(tree)) for _, tree in found] == PLAIN


@pytest.mark.parametrize(
    ("line", "clean"),
    [
        ("(TOP (S (NP (NN a))))", "(S (NP (NN a)))"),
        ("(ROOT (S1 (NN a)))", "(TOP (NN a))"),
        ("(NN a)", "(TOP (NN a))"),
        ("(TOP (NN a) (NN b))", "(TOP (NN a) (NN b))"),
        ("(S (NP-SBJ (NP (NN a))))", "(S (NP (NP (NN a))))"),
    ],
)
def test_roots_that_only_mark_a_tree_are_removed(line, clean):
    ((_, tree),) = read_trees([line], "a file")
    assert bracketed(cleaned(tree)) == clean


@pytest.mark.parametrize(
    ("text", "line", "what"),
    [
        ("(S (A a))\n(S (A a)\n(S (A a))", 2, "1 of the brackets"),
        ("(S (A a))\n\n(S (A a)))", 3, "closes no"),
        ("(S (A a))\n(S\n  (A a)\n", 2, "1 of the brackets"),
        # The two mistakes together would be one tree.
        ("(S (A a)\n(S (A a)))", 1, "1 of the brackets"),
        ("(S (A a))\nhello\n", 2, "'hello'"),
        ("(S (A a)) hello\n", 1, "want one tree"),
        ("(S (A a) b)\n", 1, "'b' beside other"),
        ("(S (A a))\n()\n", 2, "no word"),
        ("(S (A a) (NP ))\n", 1, r"\(NP\) has no word"),
        ("(S (A a))\n(S (NP (-NONE- *)))\n", 2, "has traces but no words"),
        ("", 0, "empty; want bracketed trees"),
        ("(S (A a))\n" + 101 * "(S " + "a" + 101 * ")", 2, "more than 100"),
    ],
)
def test_mistakes_are_named_with_their_line(tmp_path, text, line, what):
    (tmp_path / "wsj.trees").write_text(text)
    where = f"wsj.trees, line {line}: " if line else "wsj.trees"
    with pytest.raises(UserError, match=f"{where}.*{what}"):
        list(opened(tmp_path).pairs())


def test_sentences_are_compared_with_their_trees(tmp_path):
    (tmp_path / "wsj.mrg").write_text(PENN)
    text = tmp_path / "wsj.txt"
    text.write_text("The dog seems to bark .\n( cat -RRB- sleeps\n")
    assert [s for s, _ in opened(tmp_path).pairs()] == [
        "The dog seems to bark .",
        "( cat ) sleeps",
    ]
    text.write_text("The dog seems to bark .\n( cat ) slept\n")
    told = "wsj.mrg, line 9: .*differ.*wsj.txt, line 2: word 4 is 'sleeps' in the tree"
    with pytest.raises(UserError, match=told):
        list(opened(tmp_path).pairs())
    text.write_text("The dog seems to bark .\n")
    with pytest.raises(UserError, match="2 trees but .*wsj.txt has 1 lines"):
        list(opened(tmp_path).pairs())


@pytest.mark.parametrize(
    ("place", "wanted"),
    [
        ("grammar:dev", "grammar:trees/dev"),
        ("grammar:trees/dve", "did you mean 'dev'"),
        ("tfds:x:train", "want a prefix"),
        ("wsj.mrg", r"wsj.mrg.mrg does not exist.* has wsj.mrg\."),
    ],
)
def test_places_without_trees(tmp_path, place, wanted):
    (tmp_path / "wsj.mrg").write_text(PENN)
    with pytest.raises(UserError, match=wanted):
        opened(tmp_path, place)


def test_gzip_and_fingerprints(tmp_path):
    (tmp_path / "a.mrg").write_text(PENN)
    with gzip.open(tmp_path / "b.mrg.gz", "wt") as f:
        f.write(PENN)
    a, b = opened(tmp_path, "a"), opened(tmp_path, "b")
    assert list(a.pairs()) == list(b.pairs())
    without_tags = tree_file(tmp_path / "a", Parsing(Config()).linearise)
    assert len({c.fingerprint() for c in (a, b, without_tags)}) == 3
