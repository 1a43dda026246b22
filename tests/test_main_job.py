"""The README's main job, as it stands there: tiny learns its language."""

import pytest

from t2t_jax import load_config, train


@pytest.mark.slow
def test_tiny_learns_its_language(tmp_path):
    """About three minutes on two cores. Bounds are those the project promises."""
    scores = train(load_config("configs/tiny.py"), tmp_path / "work")
    assert scores["test"]["bleu"] >= 90
    assert scores["unseen"]["bleu"] >= 80
    assert scores["agreement"]["bleu"] >= 80
