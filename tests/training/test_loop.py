"""What is told of a stretch of steps is of all of its tokens."""

import numpy as np
import pytest

from t2t_jax.training.loop import Meter


def metrics(loss, tokens, norm=1.0, skipped=0, in_a_row=0):
    return {
        "loss": np.float32(loss),
        "nll": np.float32(loss / 2),
        "tokens": np.int32(tokens),
        "gradient_norm": np.float32(norm),
        "learning_rate": np.float32(loss),
        "skipped": np.int32(skipped),
        "skipped_in_a_row": np.int32(in_a_row),
    }


BATCH = {
    name: np.ones((2, 3), np.int32) for name in ("source_segment", "target_segment")
}


def test_means_are_over_tokens_and_alarms_are_the_worst():
    meter = Meter()
    meter.add(BATCH, metrics(2.0, 30, norm=5.0, skipped=1, in_a_row=3))
    meter.add(BATCH, metrics(4.0, 10, norm=2.0, skipped=2))
    values = meter.read()
    assert values["loss"] == pytest.approx((2.0 * 30 + 4.0 * 10) / 40)
    assert values["perplexity"] == pytest.approx(np.exp((1.0 * 30 + 2.0 * 10) / 40))
    assert (values["gradient_norm"], values["skipped_in_a_row"]) == (5.0, 3.0)
    assert (values["learning_rate"], values["skipped"]) == (4.0, 2.0)
    assert values["tokens_per_second"] == pytest.approx(24 / values["seconds"])


def test_a_reading_starts_anew():
    meter = Meter()
    meter.add(BATCH, metrics(2.0, 30))
    meter.read()
    meter.add(BATCH, metrics(8.0, 10))
    assert meter.read()["loss"] == pytest.approx(8.0)


def test_a_skipped_step_does_not_hide_the_others():
    meter = Meter()
    for loss in (2.0, np.nan, 4.0):
        meter.add(BATCH, metrics(loss, 10, norm=loss, skipped=1))
    values = meter.read()
    assert values["loss"] == pytest.approx(3.0)
    meter.add(BATCH, metrics(np.nan, 10))
    assert np.isnan(meter.read()["loss"])
