"""A run with a vocabulary for each language, from its text to translations."""

import json

import pytest

from t2t_jax import Translator, UserError, train
from t2t_jax.config import from_config_dict
from t2t_jax.data.tokenizers.training import train_tokenizer
from t2t_jax.run import initialization
from t2t_jax.run.rerun import batch_of_step
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


def test_only_the_tokenizer_of_the_source_is_added(workdir, trained):
    joint, separate = ({p.name for p in w.iterdir()} for w in (trained[0], workdir))
    joint -= {"scores", "translations"}  # there is no test set here
    assert separate - joint == {"source_tokenizer.model"}
    assert joint <= separate


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


def test_the_sentences_of_a_step_are_those_of_the_text(workdir, text):
    sides = (text / f"train.{language}" for language in ("en", "de"))
    lines = [side.read_text(encoding="utf-8").splitlines() for side in sides]
    pairs = set(zip(*lines, strict=True))
    _, found = batch_of_step(workdir, 2)
    assert found
    for line in map(json.loads, found):
        assert (line["source"], line["target"]) in pairs


def test_a_run_starts_from_one_with_the_same_vocabularies(workdir, text, tmp_path):
    def config(data, model=MODEL):
        start = {"init_from": str(workdir)}
        fields = config_for(text, data=data, model=model, train=start)
        return from_config_dict(fields)

    same = config(DATA)
    initialization.check_source(same)
    theirs = Workdir(workdir).vocabulary()
    for ours, side in zip(
        initialization.vocabulary(same).sides, theirs.sides, strict=True
    ):
        assert ours.model == side.model
    with pytest.raises(UserError, match="joint_vocabulary=False there, True here"):
        initialization.check_source(config({}))
    lines = (text / "train.en").read_text(encoding="utf-8").splitlines()
    other = tmp_path / "other.model"
    other.write_bytes(train_tokenizer(lines, 350))
    data = DATA | {"source_vocab_size": 0, "source_tokenizer": str(other)}
    with pytest.raises(UserError, match="data.source_tokenizer=.*other.model differs"):
        initialization.vocabulary(config(data))
