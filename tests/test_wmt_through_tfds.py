"""`configs/base.py` and `big.py` as written, on a tiny data set in TFDS's format."""

import importlib.util
import json

import pytest

from t2t_jax import Translator, load_config, train
from t2t_jax.grammar import corpus
from tests.small_run import FIELDS, ROOT

pytestmark = pytest.mark.skipif(
    not importlib.util.find_spec("tensorflow"), reason="TensorFlow is missing"
)


@pytest.fixture(scope="module")
def _wmt14(tmp_path_factory):
    from tests.data.test_tfds import write

    folder = tmp_path_factory.mktemp("tfds")
    lines = [(german, english) for english, german in corpus.pairs("dev")]
    splits = {
        "train": lines[:200],
        "validation": lines[200:210],
        "test": lines[210:220],
    }
    write(folder, splits)
    write(folder, splits, "fr-en")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TFDS_DATA_DIR", str(folder))
        yield


@pytest.mark.usefixtures("_wmt14")
@pytest.mark.slow
@pytest.mark.parametrize("path", ["configs/base.py", "configs/big.py:fr-en"])
def test_the_papers_configs_read_their_own_data(path, tmp_path):
    small = {"vocab_size": 400, "batch_tokens": 1_024, "row_length": 64}
    config = load_config(
        ROOT / path,
        model=FIELDS["model"],
        data=small,
        train={"steps": 2, "save_every": 1, "eval_every": 2, "dev_lines": 2},
        decode={"beam": 2, "extra_length": 4},
    )
    scores = train(config, tmp_path / "work")
    language = "fr" if ":" in path else "de"
    name = f"wmt14_translate-{language}-en-test"
    assert scores[name]["lines"] == 10
    metrics = [json.loads(line) for line in (tmp_path / "work/metrics.jsonl").open()]
    assert metrics[-1]["kind"] == "dev"
    translator = Translator.load(tmp_path / "work")
    target = translator.config.data.target
    assert (tmp_path / f"work/translations/{name}.{target}").exists()
