"""What a tokenizer and trained models add: pieces, cross-entropies."""

from types import SimpleNamespace

import numpy as np
import pytest

from t2t_jax.data.tokenizers.training import train_tokenizer
from t2t_jax.data.tokenizers.vocabulary import Vocabulary
from t2t_jax.io.errors import UserError
from t2t_jax.tools.doctor import model_scores
from t2t_jax.tools.doctor.examination import Examination, Options
from t2t_jax.tools.doctor.findings import findings
from t2t_jax.tools.doctor.model_scores import ModelScores
from t2t_jax.tools.doctor.overlap import Reference
from t2t_jax.tools.doctor.rules import BIT
from tests.doctor.made_up import MadeUp

LANGUAGES = "en", "de"


class Model:
    """A model with a given cost of each pair."""

    def __init__(self, cost, languages=LANGUAGES):
        data = SimpleNamespace(source=languages[0], target=languages[1])
        task = SimpleNamespace(kind="translation")
        self.config = SimpleNamespace(data=data, task=task)
        self._cost = cost

    def score(self, pairs, warn):
        # Two pieces each, so that a cost a piece is asked for.
        return [
            SimpleNamespace(log_prob=-2 * self._cost(s, t), log_probs=(0, 0))
            for s, t in pairs
        ]


@pytest.fixture
def models(monkeypatch):
    """Three models by the names of their workdirs."""
    known = {
        "forth": Model(lambda s, t: len(s) / 10),
        "back": Model(lambda s, t: len(s) / 5, LANGUAGES[::-1]),
        "other": Model(lambda s, t: 1.0),
    }
    monkeypatch.setattr(
        model_scores, "Translator", SimpleNamespace(load=known.__getitem__)
    )


def test_scores_are_those_of_the_papers(models):
    pairs = [("a" * 10, "b" * 20), ("a" * 30, "b" * 5)]
    found = ModelScores("forth", "back", "other", LANGUAGES).score(pairs)
    own, back = np.array([1.0, 3.0]), np.array([4.0, 1.0])
    np.testing.assert_allclose(found["cross_entropy"], own)
    np.testing.assert_allclose(found["dual"], abs(own - back) + (own + back) / 2)
    np.testing.assert_allclose(found["contrast"], own - 1)
    assert ModelScores("forth", None, None, LANGUAGES).names == ["cross_entropy"]


def test_models_of_another_direction_are_refused(models):
    with pytest.raises(UserError, match=r"--reverse=forth.*from 'en' to 'de'"):
        ModelScores("forth", "forth", None, LANGUAGES)


def test_improbable_pairs_are_accused(models, text):
    pairs = [*text[:200]]
    pairs[20] = "x" * 2_000, pairs[20][1]
    options = Options(scores=ModelScores("forth", None, None, LANGUAGES))
    examination = Examination([MadeUp(pairs)], options=options)
    found = np.flatnonzero(examination.mask_p & np.uint32(BIT["cross_entropy"]))
    assert found.tolist() == [20]
    rules = {r["name"]: r for r in findings(examination, LANGUAGES)["rules"]}
    assert "200.00 nats a token" in rules["cross_entropy"]["examples"][0]["note"]
    assert not {"dual", "contrast"} & {*rules}


def test_pieces_are_counted_and_those_of_dev_looked_up(text):
    lines = [side for pair in text[:300] for side in pair]
    vocabulary = Vocabulary(train_tokenizer(lines, 400))
    pairs = [*text[:100], ("ñandú 鳥鳥鳥鳥", "Vogel")]
    reference = Reference("dev", [("鱼", "Fisch")])
    examination = Examination(
        [MadeUp(pairs)], [reference], Options(vocabulary=vocabulary)
    )
    wanted = sum(map(len, vocabulary.encode([s for s, _ in pairs])))
    assert examination.known.pieces.totals[0, 0] == wanted
    found = np.flatnonzero(examination.mask_p & np.uint32(BIT["many_pieces"]))
    assert found.tolist() == [100]
    row = findings(examination, LANGUAGES)["references"][0]
    unseen = []
    for line, side in (("鱼", 0), ("Fisch", 1)):
        seen = {i for ids in vocabulary.encode([p[side] for p in pairs]) for i in ids}
        unseen += [i not in seen for i in vocabulary.encode([line])[0]]
    assert row["unseen_pieces"] == pytest.approx(np.mean(unseen))
