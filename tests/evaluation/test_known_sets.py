"""The line that says what a score may stand beside."""

import dataclasses

import pytest

from t2t_jax.evaluation.provenance import PUBLISHED, ScoredText, compare_with

FULL_DE, FULL_FR, CLEANED, DEV, CAPTIONS = PUBLISHED


def text_of(known, source="en", target="de", **changed):
    """The published set, as far as its hashes tell."""
    unknown = "0" * 64
    text = ScoredText(
        known.name,
        *(source, target, known.lines),
        *(known.whole.get(side, unknown) for side in (source, target)),
        *(known.first[side] for side in (source, target)),
    )
    return dataclasses.replace(text, **changed)


def said(text, averaged=1):
    line = compare_with(text, averaged)
    assert "\n" not in line
    return line


# The set, what differs from it, the checkpoints averaged, and words of the line.
SAID = [
    (FULL_DE, {"name": "wmt14_translate-de-en-test"}, 5)
    + (["newstest2014 en-de, 3,003 lines: bleu_paper is comparable", "bleu is not"],),
    (FULL_DE, {}, 5, ["(base 27.3, big 28.4: tokenized, compounds split)"]),
    (FULL_DE, {}, 5, ["[set identified by its number of lines and first lines]"]),
    (FULL_FR, {"target": "fr"}, 1, ["(base 38.1, big 41.8: tokenized, nothing split)"]),
    (CLEANED, {}, 1, ["not comparable with Vaswani et al. 2017", "scores on wmt14,"]),
    (DEV, {}, 1, ["(base 25.8, big 26.4: one checkpoint", "perplexity is per subword"]),
    (DEV, {}, 5, ["not comparable with Vaswani et al. 2017, Table 3", "here 5 are"]),
    (CAPTIONS, {}, 1, ["bleu_lc_tok is comparable with the published 41.02"]),
    (CAPTIONS, {}, 1, ["bleu and bleu_paper are not", "[set identified by its text]"]),
    *(
        (known, {"source": "de", "target": "en"}, 1, ["for this direction"])
        for known in PUBLISHED
        if known is not FULL_FR
    ),
    (FULL_FR, {"source": "fr", "target": "en"}, 1, ["for this direction"]),
    (DEV, {"synthetic": True}, 1, ["synthetic text"]),
    (DEV, {"name": "mine", "lines": 77, "reference_sha256": "abcdef123456789"}, 1)
    + (["no published", "these 77 lines (reference sha256 abcdef123456)"],),
]


@pytest.mark.parametrize(("known", "changed", "averaged", "words"), SAID)
def test_a_line_says_what_a_score_is_comparable_with(known, changed, averaged, words):
    line = said(text_of(known, **changed), averaged)
    assert all(part in line for part in words)
    if "no published" in line:
        assert "is comparable" not in line


@pytest.mark.parametrize("known", PUBLISHED)
def test_a_set_that_was_changed_is_not_that_set(known):
    target = "fr" if known is FULL_FR else "de"
    other = "1" * 64
    fewer = said(text_of(known, target=target, lines=500))
    assert f"not {known.name} despite its name: 500 lines instead of" in fewer
    assert f"{known.lines:,}" in fewer
    for side in ("source_first", "reference_first"):
        line = said(text_of(known, target=target, **{side: other}))
        assert f"not {known.name} despite its name: the text differs" in line
    for side in ("source_sha256", "reference_sha256") if known.whole else ():
        line = said(text_of(known, target=target, **{side: other}))
        assert f"starts like {known.name}, but the text differs" in line
        assert "is comparable" not in line
