"""Precision at a confidence, and `min_precision` of requests."""

import asyncio
import dataclasses
import math

import numpy as np
import pytest
from scipy import stats

from t2t_jax.decoding.results import Hypothesis, Translation
from t2t_jax.tools.serve import precision
from t2t_jax.tools.serve.engine import OverloadedError
from tests.serve.fake_engine import FakeEngine

PAIRS = [("a dog", "<de> a dog")] * 40 + [("low", "x")] * 15 + [("bad", "x")]


def measured(rows):
    """Of rows (log-probability, is it good?)."""
    results = [
        Translation("", (Hypothesis("ab" if good else "", 0.0, p, True, (1,)),))
        for p, good in rows
    ]
    return precision.Precision([("", "ab")] * len(rows), results, 50.0)


def test_the_lower_end_is_that_of_wilsons_formula():
    for good, count in ((0, 7), (3, 7), (7, 7), (900, 1000)):
        share, z2 = good / count, stats.norm.ppf(0.95) ** 2 / count
        spread = math.sqrt(z2 * (share * (1 - share) + z2 / 4))
        low = (share + z2 / 2 - spread) / (1 + z2)
        assert precision.wilson_low(good, count) == pytest.approx(low, abs=1e-9)


def test_a_precision_is_that_of_the_best_limit_which_a_line_meets():
    rng = np.random.default_rng(1)
    logs = np.round(-rng.exponential(size=200), 1)  # some are equal
    rows = [(p, rng.random() < math.exp(p)) for p in logs]
    table, good = measured(rows), np.array([good for _, good in rows])
    limits = [*sorted({*logs})]
    low = [
        precision.wilson_low(good[logs >= x].sum(), (logs >= x).sum()) for x in limits
    ]
    for number, limit in enumerate(limits):
        for confidence in (math.exp(limit), math.exp(limit) + 1e-6):
            assert table.at(confidence) == pytest.approx(max(low[: number + 1]))
    assert table.at(math.exp(limits[0]) - 1e-6) == 0
    assert measured([(-0.1, True)] * 2).at(1.0) < 0.5  # two lines say little
    assert measured([]).at(1.0) == 0


def test_a_line_of_too_low_a_precision_is_refused(client):
    engine = FakeEngine("en-de", "de-en")
    engine.limits = dataclasses.replace(engine.limits, queue=30)  # fewer than PAIRS
    c = client(engine, dev={"en-de": PAIRS})
    ask = {"lines": ["a", "low", "", "bad"], "direction": "en-de", "provenance": True}

    def post(**fields):
        return c.post("/v1/translate", json=ask | {"min_precision": 0.7} | fields)

    assert (c.get("/ready").status_code, post().status_code) == (503, 503)
    service = c.app.state.service

    async def measure_while_the_queue_is_full():
        engine.raises = OverloadedError(0.01)
        task = asyncio.create_task(service.measure())
        await asyncio.sleep(0.05)
        assert engine.calls
        assert not task.done()
        engine.raises = None
        await task

    asyncio.run(measure_while_the_queue_is_full())
    assert {len(lines) for _, lines, _, _ in engine.calls} == {30, 26}
    facts = c.get("/v1/directions").json()["directions"][0]["precision"]
    assert (facts["lines"], facts["good"], facts["good_chrf"]) == (55, 40, 50)
    sure, unsure, blank, bad = (answer := post().json())["translations"]
    assert sure["precision"] == pytest.approx(precision.wilson_low(40, 40))
    assert unsure["precision"] == pytest.approx(precision.wilson_low(40, 55))
    refused = ["refused" in row for row in (sure, unsure, blank, bad)]
    assert refused == [False, True, False, False]
    assert unsure["hypotheses"][0]["text"] == ""
    assert answer["provenance"]["precision"] == facts
    for fields, message in (
        ({"direction": "de-en"}, "--dev=de-en=PREFIX, a dev set"),
        ({"beam": 1}, "with beam=4"),
        ({"min_precision": 90}, "want a share, 0 to 1"),
    ):
        assert (post(**fields).status_code, message in post(**fields).text) == (
            400,
            True,
        )
    # Other parameters are measured again; answers without the field go on.
    service.measured["en-de"] = None, service.measured["en-de"][1]
    assert post().status_code == 503
    assert "precision" not in post(min_precision=None).json()["translations"][0]
    asyncio.run(service.measure())
    assert post().status_code == 200
