"""A run with a vocabulary for each language, from its text to translations."""

import pytest

from t2t_jax import Translator, UserError, train
from t2t_jax.config import from_config_dict
from t2t_jax.data.tokenizers.training import train_tokenizer
from t2t_jax.run import initialization
from t2t_jax.workdir import Workdir
from tests.small_run import config_for

pytestmark = pytest.mark.usefixtures("compiled_once", "quick_compiler")

MODEL = {"tied": "target"}
DATA = {"joint_vocabulary": False, "source_vocab_size": 380, "test": "", "dev": ""}


@pytest.fixture(scope="module")
def workdir(text, tmp_path_factory):
    """A run that was stopped after 1 step and continued."""
    workdir = tmp_path_factory.mktemp("separate") / "work"
    for steps in (1, 2):
        fields = {"steps": steps, "save_every": 1}
        train(config_for(text, model=MODEL, data=DATA, train=fields), workdir)
    return workdir


def test_a_translator_has_both_vocabularies(workdir):
    translator = Translator.load(workdir)
    assert translator.vocabulary.sizes == (400, 380)
    (found,) = translator.translate(["The cat sleeps."], warn=False)
    pair = "The cat sleeps.", "Die Katze schläft."
    assert translator.score([pair, ("a", found)])[0].pieces[-1] == "</s>"
    assert {j for _, j in translator.align([pair])[0].links} == {0, 1, 2}
    maps = translator.attention(*pair)
    for side, pieces, line in (
        (translator.vocabulary.source, maps.source, pair[0]),
        (translator.vocabulary, maps.target, pair[1]),
    ):
        assert pieces == (*side.pieces(line), "</s>")


def test_a_run_starts_from_one_with_the_same_vocabularies(workdir, text, tmp_path):
    def config(data):
        start = {"init_from": str(workdir)}
        return from_config_dict(config_for(text, data=data, model=MODEL, train=start))

    same = config(DATA)
    initialization.check_source(same)
    ours, theirs = initialization.vocabulary(same), Workdir(workdir).vocabulary()
    assert [side.model for side in ours.sides] == [side.model for side in theirs.sides]
    with pytest.raises(UserError, match="joint_vocabulary=False there, True here"):
        initialization.check_source(config({}))
    lines = (text / "train.en").read_text(encoding="utf-8").splitlines()
    other = tmp_path / "other.model"
    other.write_bytes(train_tokenizer(lines, 350))
    data = DATA | {"source_vocab_size": 0, "source_tokenizer": str(other)}
    with pytest.raises(UserError, match="data.source_tokenizer=.*other.model differs"):
        initialization.vocabulary(config(data))
