"""`config.model.products="auto"`: timed once, recorded, and read ever after."""

import pytest

from t2t_jax import Translator, train
from t2t_jax.config import changed, from_config_dict
from t2t_jax.costs import products
from t2t_jax.io.errors import UserError
from t2t_jax.workdir import Workdir
from tests.small_run import config_for

SHORT = {"steps": 2, "eval_every": 9, "save_every": 1}


def timed_as(monkeypatch, **seconds):
    """Stubs the timing; returns what it is asked for."""
    calls = []

    def stub(sizes, rows):
        calls.append((sizes, rows))
        return seconds

    monkeypatch.setattr(products, "product_seconds", stub)
    return calls


def test_the_choice_is_recorded_and_kept(text, tmp_path, monkeypatch, capsys):
    config = config_for(
        text, model={"products": "auto"}, train=SHORT, data={"dev": "", "test": ""}
    )
    calls = timed_as(monkeypatch, float32=1.2, bfloat16=1.0)
    train(config, tmp_path)
    assert "products    bfloat16: forward and by inputs" in capsys.readouterr().err
    ((sizes, rows),) = calls
    # Self- and cross-attention, and both feed-forward layers; the logits.
    assert sizes == {(32, 32): 12 + 4, (32, 400): 1}
    assert rows == products.MOST_ROWS
    assert Workdir(tmp_path).config().model.products == "bfloat16"
    assert Translator.load(tmp_path).config.model.products == "bfloat16"

    timed_as(monkeypatch, float32=0.1, bfloat16=1.0)  # another machine, another day
    longer = from_config_dict(config.to_dict())
    train(changed(longer, "train", steps=3), tmp_path)
    assert Workdir(tmp_path).config().model.products == "bfloat16"
    with pytest.raises(UserError, match="model.products: 'bfloat16' there, 'float32'"):
        train(changed(longer, "model", products="float32"), tmp_path)


@pytest.mark.parametrize(("dtype", "timed"), [("float32", 1), ("bfloat16", 0)])
def test_no_rounding_for_a_small_gain_or_bfloat16_activations(
    dtype, timed, monkeypatch, tmp_path
):
    config = from_config_dict({"model": {"products": "auto", "dtype": dtype}})
    calls = timed_as(monkeypatch, float32=1.19, bfloat16=1.0)
    config = products.with_products(config, Workdir(tmp_path))
    assert (config.model.products, len(calls)) == ("float32", timed)


def test_both_types_are_timed():
    seconds = products.product_seconds({(8, 16): 2, (16, 8): 1}, rows=4)
    assert [*seconds] == ["float32", "bfloat16"]
    assert all(s > 0 for s in seconds.values())
