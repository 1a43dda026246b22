"""An examination as a whole: laws, repetitions, stretches, overlaps, findings."""

import itertools
import json
import random
from types import SimpleNamespace

import numpy as np
import pytest

from t2t_jax.io.errors import UserError
from t2t_jax.text.view import View
from t2t_jax.tools.doctor import model_scores
from t2t_jax.tools.doctor.examination import (
    Examination,
    ExaminationOptions,
    find_stretches,
)
from t2t_jax.tools.doctor.findings import escaped, findings, findings_page, report
from t2t_jax.tools.doctor.model_scores import ModelScores
from t2t_jax.tools.doctor.overlap import Overlap, ReferenceSet
from t2t_jax.tools.doctor.rules import BIT, RULES
from tests.doctor.made_up import corpus_of

LANGUAGES = "en", "de"
SHIFT = range(300, 330)


@pytest.fixture(scope="module")
def damaged(text):
    pairs = [*text]
    for place in SHIFT:
        pairs[place] = text[place][0], text[place + 2][1]
    pairs[10] = pairs[10][::-1]
    pairs[400] = pairs[401] = pairs[2]
    pairs[402] = pairs[2][0].upper(), pairs[2][1].rstrip(".")
    pairs[403] = pairs[1][0], pairs[5][1]
    pairs[500] = text[500][0], "</script> \x02 <b>" + text[500][1]
    return pairs


@pytest.fixture(scope="module")
def examination(text, damaged):
    corpora = [corpus_of(damaged[:350], "one"), corpus_of(damaged[350:], "two")]
    return Examination(corpora, [ReferenceSet("dev", text[700:720])])


def broken(examination, name):
    return np.flatnonzero(examination.mask_p & np.uint32(BIT[name])).tolist()


def test_repeated_pairs_are_those_that_came_before(damaged, examination):
    pairs, keys, sources = set(), set(), set()
    expected = {"duplicate": [], "near_duplicate": [], "other_target": []}
    for place, pair in enumerate(damaged):
        view = View([pair])
        key = view.source.keys[0], view.target.keys[0]
        if pair in pairs:
            expected["duplicate"].append(place)
        elif key in keys:
            expected["near_duplicate"].append(place)
        elif key[0] in sources and len(view.source.words[0]) >= 3:
            expected["other_target"].append(place)
        pairs.add(pair)
        keys.add(key)
        sources.add(key[0])
    assert {name: broken(examination, name) for name in expected} == expected
    assert {400, 401} <= {*expected["duplicate"]}
    assert 402 in expected["near_duplicate"]
    assert 403 in expected["other_target"]


def test_a_shifted_stretch_is_found_with_its_offset(examination):
    (stretch,) = [s for s in examination.stretches if s.offset]
    assert stretch.offset == -2  # the target of a source stands two lines further up
    assert abs(stretch.begin - SHIFT.start) <= 2
    assert abs(stretch.end - SHIFT.stop) <= 2
    assert broken(examination, "misaligned") == [*range(stretch.begin, stretch.end)]


def test_results_do_not_depend_on_the_size_of_chunks(text, examination):
    references = [ReferenceSet("dev", text[700:720])]
    by_sevens = Examination(
        examination.corpora, references, ExaminationOptions(chunk=7)
    )
    np.testing.assert_array_equal(by_sevens.mask_p, examination.mask_p)
    assert by_sevens.counts == examination.counts
    reasons = [*examination.reasons()]
    assert [*by_sevens.reasons()] == reasons
    assert [p for p, _ in reasons] == np.flatnonzero(examination.dropped_p).tolist()
    assert findings(by_sevens, LANGUAGES) == findings(examination, LANGUAGES)


def test_stretches_do_not_cross_corpora_and_need_evidence():
    odds = np.full(100, 3.0)
    odds[40:60] = -3.0
    (stretch,) = find_stretches(odds, [100])
    assert (stretch.begin, stretch.end) == (40, 60)
    parts = find_stretches(odds, [50, 50])
    assert [(s.begin, s.end) for s in parts] == [(40, 50), (50, 60)]
    odds[40:60] = 3.0
    odds[45:47] = -8.0
    assert not find_stretches(odds, [100])


def test_overlaps_are_those_of_a_comparison_of_all_pairs(text):
    rng = random.Random(0)
    references = [ReferenceSet("dev", text[:60])]
    train = []
    for source, target in text[:40]:  # one word of a side is another one
        words = source.split()
        words[rng.randrange(len(words))] = "otherwise"
        train.append((" ".join(words), target))
    train += text[100:300]
    overlap = Overlap(references)
    near = {place: index for place, index, _ in overlap.near(View(train), 0.6)}

    def shingles(pair):
        grams = set()
        for number, words in enumerate(side.words[0] for side in View([pair]).sides):
            grams |= {(number, w) for w in words}
            grams |= {(number, *word_pair) for word_pair in itertools.pairwise(words)}
        return grams

    dev = [shingles(pair) for pair in text[:60]]
    expected = {}
    for place, pair in enumerate(train):
        pair_shingles = shingles(pair)
        best = max(len(pair_shingles & d) / len(pair_shingles | d) for d in dev)
        if best >= 0.6:
            expected[place] = best
    assert {*near} <= {*expected}  # none is found that is not there
    assert len(near) >= 0.85 * len(expected) > 25
    for place, index in near.items():
        assert index <= expected[place] + 1e-9


def test_findings_are_json_and_are_shown(examination):
    content = findings(examination, LANGUAGES)
    assert json.loads(json.dumps(content)) == content
    rules = {rule["name"]: rule for rule in content["rules"]}
    (example,) = rules["swapped"]["examples"]
    assert (example["corpus"], example["line"]) == ("one", 11)
    assert [line for line, *_ in example["lines"]] == [9, 10, 11, 12, 13]
    printed = "\n".join(report(content, 1))
    assert "swapped: one, line 11" in printed
    assert "<U+0002>" in printed
    assert "\x02" not in printed
    html = findings_page(content)
    assert "</script> " not in html  # what a user wrote is packed
    assert "packed-program" in html


def test_the_verdict_counts_a_pair_once(text):
    """A pair whose two sides are in the dev set, and nearly in it, is one pair."""
    examination = Examination([corpus_of([*text])], [ReferenceSet("dev", [*text[:3]])])
    examination.mask_p[:] = 0
    examination.mask_p[:3] = BIT["overlap"] | BIT["near_overlap"]
    sentences = findings(examination, LANGUAGES)["verdict"]
    assert any(
        line.startswith("3 pairs are lines of dev or test") for line in sentences
    )


def test_a_text_of_one_pair_is_examined():
    examination = Examination([corpus_of([("a", "b")])])
    assert findings(examination, LANGUAGES)["pairs"] == 1
    assert {*examination.counts} == {*RULES}


def test_text_cannot_steer_a_terminal():
    assert escaped("a\x1b[31m\u202eb") == "a<U+001B>[31m<U+202E>b"
    assert escaped("schön 👍") == "schön 👍"


# ------------------------------------------------------------------ scores of models


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
    by_workdir = {
        "forth": Model(lambda s, t: len(s) / 10),
        "back": Model(lambda s, t: len(s) / 5, LANGUAGES[::-1]),
        "other": Model(lambda s, t: 1.0),
    }
    monkeypatch.setattr(
        model_scores, "Translator", SimpleNamespace(load=by_workdir.__getitem__)
    )


def test_scores_are_those_of_the_papers(models):
    pairs = [("a" * 10, "b" * 20), ("a" * 30, "b" * 5)]
    scores = ModelScores("forth", "back", "other", LANGUAGES).score(pairs)
    forward, backward = np.array([1.0, 3.0]), np.array([4.0, 1.0])
    np.testing.assert_allclose(scores["cross_entropy"], forward)
    np.testing.assert_allclose(
        scores["dual"], abs(forward - backward) + (forward + backward) / 2
    )
    np.testing.assert_allclose(scores["contrast"], forward - 1)
    assert ModelScores("forth", None, None, LANGUAGES).names == ["cross_entropy"]


def test_models_of_another_direction_are_refused(models):
    with pytest.raises(UserError, match=r"--reverse=forth.*from 'en' to 'de'"):
        ModelScores("forth", "forth", None, LANGUAGES)


def test_improbable_pairs_are_accused(models, text):
    pairs = [*text[:200]]
    pairs[20] = "x" * 2_000, pairs[20][1]
    options = ExaminationOptions(scores=ModelScores("forth", None, None, LANGUAGES))
    examination = Examination([corpus_of(pairs)], options=options)
    accused = np.flatnonzero(examination.mask_p & np.uint32(BIT["cross_entropy"]))
    assert accused.tolist() == [20]
    rules = {r["name"]: r for r in findings(examination, LANGUAGES)["rules"]}
    assert "200.00 nats a token" in rules["cross_entropy"]["examples"][0]["note"]
    assert not {"dual", "contrast"} & {*rules}
