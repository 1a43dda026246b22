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


def test_the_papers_test_sets_go_with_its_protocol():
    german = said(text_of(FULL_DE, name="wmt14_translate-de-en-test"), averaged=5)
    assert german.startswith(
        "newstest2014 en-de, 3,003 lines: bleu_paper is comparable"
    )
    assert "Table 2 (base 27.3, big 28.4: tokenized, compounds split)" in german
    assert "bleu is not" in german
    assert "wmt14/full" in german
    assert german.endswith("[set identified by its number of lines and first lines]")
    french = said(text_of(FULL_FR, target="fr"))
    assert "Table 2 (base 38.1, big 41.8: tokenized, nothing split)" in french


def test_the_cleaned_set_is_not_the_papers():
    line = said(text_of(CLEANED))
    assert "not comparable with Vaswani et al. 2017" in line
    assert "sacreBLEU scores on wmt14," in line


def test_an_average_is_not_in_table_3():
    assert "(base 25.8, big 26.4: one checkpoint" in said(text_of(DEV), averaged=1)
    line = said(text_of(DEV), averaged=5)
    assert "not comparable with Vaswani et al. 2017, Table 3" in line
    assert "here 5 are" in line
    for averaged in (1, 5):
        assert "perplexity is per subword" in said(text_of(DEV), averaged)


def test_captions_go_with_lower_cased_bleu():
    line = said(text_of(CAPTIONS))
    assert "bleu_lc_tok is comparable with the published 41.02" in line
    assert "bleu and bleu_paper are not" in line
    assert line.endswith("[set identified by its text]")


@pytest.mark.parametrize("known", PUBLISHED)
def test_the_other_direction_has_no_number(known):
    target = "fr" if known is FULL_FR else "de"
    line = said(text_of(known, source=target, target="en"))
    assert "no published number is known for this direction" in line
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


def test_of_any_other_text_only_the_same_lines_compare():
    text = text_of(DEV, name="mine", lines=77, reference_sha256="abcdef123456789")
    line = said(text)
    assert line.startswith("no published number is known for this text")
    assert "these 77 lines (reference sha256 abcdef123456)" in line
    czech = dataclasses.replace(text_of(DEV), target="cs")
    assert said(czech).startswith("no published number is known")
    assert said(text_of(DEV, synthetic=True)).startswith("synthetic text")
