"""Every model of `MODELS` is searched, scored, explained and ensembled alike."""

import numpy as np
import pytest

from t2t_jax.decoding.translator import Translator
from t2t_jax.io.errors import UserError
from t2t_jax.model.model import MODELS
from tests.decoding.small_translator import translator

LINES = ["the cat sees the dog", "a dog sleeps", "the dog sees a cat", "a cat"]


# The searches of Transformers have tests of their own; compiling is what takes long.
SLOW = ["conv", "bytenet", "neural_gpu"]


@pytest.fixture(
    scope="module",
    params=[kind for kind in MODELS if kind not in ("transformer", *SLOW)]
    + [pytest.param(kind, marks=pytest.mark.slow) for kind in SLOW],
)
def tiny(request):
    return translator(1, kind=request.param)


def test_searches_find_the_probabilities_of_teacher_forcing(tiny):
    """Also those of a Transformer and this model together."""
    if not tiny.model.generates:
        with pytest.raises(UserError, match="generates no text to search for"):
            tiny.translate(LINES)
        return
    pair = Translator.ensemble([translator(1), tiny])
    results = pair.translate(LINES, nbest=3, warn=False)
    pairs = [(t.source, h) for t in results for h in t.hypotheses]
    assert len(pairs) > len(LINES)
    scores = [member.score(pairs) for member in (pair, translator(1), tiny)]
    for (_, hypothesis), ensemble_score, *member_scores in zip(
        pairs, *scores, strict=True
    ):
        mean = np.mean(np.exp([s.log_probs for s in member_scores]), axis=0)
        np.testing.assert_allclose(ensemble_score.log_probs, np.log(mean), atol=3e-4)
        assert ensemble_score.log_prob == pytest.approx(hypothesis.log_prob, abs=1e-3)
