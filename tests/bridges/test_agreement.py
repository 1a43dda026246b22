"""Agreement of two systems: greedy tokens, ties, texts."""

import numpy as np
import pytest

from t2t_jax.tools.bridges.checks import agreement
from tests.decoding.small_translator import translator

pytestmark = pytest.mark.usefixtures("quick_compiler")
LINES = ["the cat sees the dog", "a dog sleeps"]


@pytest.fixture(scope="module")
def ours():
    return translator()


@pytest.fixture(scope="module")
def greedy(ours):
    sources = ours.vocabulary.source.encode(LINES, end=True)
    found = [h.tokens for h in ours.translate_ids(sources, beam=1)]
    limits = [len(ids) + ours.config.decode.extra_length for ids in sources]
    return sources, found, limits


def test_another_token_disagrees_unless_it_is_as_probable(ours, greedy, monkeypatch):
    sources, found, limits = greedy
    result = agreement.compare_greedy(ours, sources, found, found, limits)
    assert (result.equal, result.ties, result.agrees) == (2, 0, True)
    other = [list(row) for row in found]
    other[1][1] = other[1][1] - 1
    result = agreement.compare_greedy(ours, sources, found, other, limits)
    ((line, at, mine, theirs, gap),) = result.different
    assert (line, at, mine, theirs) == (1, 1, found[1][1], other[1][1])
    # The gap is that of the teacher-forced logits after the common prefix.
    inputs = [[ours.vocabulary.bos, found[1][0]]]
    logits = agreement.logits(ours, [sources[1]], inputs)[0][-1]
    assert gap == pytest.approx(float(logits[mine] - logits[theirs]), abs=1e-4)
    assert not result.agrees
    monkeypatch.setattr(agreement, "TIE", abs(gap) + 1e-3)
    assert agreement.compare_greedy(ours, sources, found, other, limits).agrees


def test_an_end_without_eos_is_a_difference_except_at_the_limit(ours, greedy):
    sources, found, limits = greedy
    short = [found[0], found[1][:1]]
    assert not agreement.compare_greedy(ours, sources, found, short, limits).agrees
    # There, some systems force EOS.
    full = [list(range(4, 4 + limit)) for limit in limits]
    forced = [[*row[:-1], ours.vocabulary.eos] for row in full]
    assert agreement.compare_greedy(ours, sources, full, forced, limits).agrees


@pytest.mark.parametrize("silenced", ["both", "theirs"])
def test_silenced_tokens_hide_no_difference(ours, greedy, silenced):
    """A logit of -1e9 must not stretch the tolerance of the others."""
    mine = np.full((2, len(ours.vocabulary)), 0.5, np.float32)
    theirs = mine.copy()
    theirs[:, 5] = -1e9
    if silenced == "both":
        mine[:, 5] = -100
    result = agreement.compare_logits(ours, [mine], {"logits_0": theirs})
    assert result.agrees == (silenced == "both")
    for wrong in (0.501, np.nan):
        theirs[0, 7] = wrong
        assert not agreement.compare_logits(ours, [mine], {"logits_0": theirs}).agrees
