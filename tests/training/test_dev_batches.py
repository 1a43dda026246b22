"""A dev set is batched as training is, and refused early where it cannot be."""

import dataclasses

import numpy as np
import pytest

from t2t_jax import UserError, train
from t2t_jax.config import Config, DataConfig
from t2t_jax.data.filling import ragged
from t2t_jax.data.pairs import Pairs
from t2t_jax.training.validation import dev_plan
from tests.small_run import config_for


@pytest.mark.parametrize("batching", ["packed", "bucketed"])
def test_dev_batches_are_of_the_kind_of_the_config(batching):
    lengths = np.random.default_rng(0).integers(2, 60, (2, 300))
    pairs = Pairs(*(ragged([[5] * n for n in side]) for side in lengths), {})
    data = DataConfig(batch_tokens=1_024, row_length=64, batching=batching, buckets=4)
    plan = dev_plan(pairs, Config(data=data))
    assert (len(plan.shapes) > 1) == (batching == "bucketed")
    assert sorted(np.concatenate([x.pair_p for x in plan])) == [*range(300)]


def test_the_longest_dev_line_fits_whatever_the_budget():
    pairs = Pairs(ragged([[5] * 700, [6]]), ragged([[7], [8] * 300]), {})
    for batching in ("packed", "bucketed"):
        data = DataConfig(batch_tokens=256, row_length=16, batching=batching)
        plan = dev_plan(pairs, dataclasses.replace(Config(), data=data))
        assert max(shape.source for shape in plan.shapes) >= 700


def test_a_dev_line_beyond_learned_positions_is_refused_before_training(text, tmp_path):
    folder = tmp_path / "text"
    folder.mkdir()
    for file in text.iterdir():
        (folder / file.name).write_bytes(file.read_bytes())
    for language in ("en", "de"):
        with open(folder / f"dev.{language}", "a", encoding="utf-8") as f:
            f.write("der Hund " * 100 + "\n")
    model = {"positions": "learned", "max_positions": 120}
    config = config_for(folder, model=model)
    with pytest.raises(UserError, match="rows of the dev set have up to"):
        train(config, tmp_path / "work")
    assert not (tmp_path / "work/config.json").exists()
