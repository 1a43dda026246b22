"""Damage is found before it is translated with, scored with or trained on."""

import json
import shutil
from random import Random

import jax
import pytest

from t2t_jax import Translator, UserError
from t2t_jax.config import from_config_dict
from t2t_jax.data import prepare
from t2t_jax.data.corpus import open_corpora
from t2t_jax.data.tokenizers.training import make_tokenizer
from t2t_jax.evaluation.scores import score_set
from t2t_jax.io import sealed
from tests.faults.damage import EVERY, delete, empty, flip, garbage, largest, swap
from tests.small_run import assert_same, config_for, contents, parameters_of


def parameters(workdir, step):
    return workdir / "checkpoints" / "parameters" / str(step)


def put_a_state_there(place):
    delete(place, Random(0))
    shutil.copytree(place.parents[1] / "state" / "12", place)


def test_damaged_parameters_are_named_and_left_out(finished, trained, capsys):
    place = parameters(finished, 12)
    backup = shutil.copytree(place, finished.parent / "kept")
    damages = [lambda place, d=d: d(largest(place), Random(1)) for d in EVERY]
    damages += [put_a_state_there, lambda place: (place / "manifest.json").unlink()]
    for damage in damages:
        damage(place)
        translator = Translator.load(finished)
        message = capsys.readouterr().err
        assert f"warning: {place} is " in message  # damaged, or incomplete
        assert message.endswith("); ignored\n")
        assert translator.steps == Translator.load(finished, "last").steps == (8,)
        shutil.rmtree(place)
        shutil.copytree(backup, place)
        capsys.readouterr()
    expected = parameters_of(trained[0], 8, translator.model.shapes)
    assert_same(jax.device_get(translator.parameters), expected)


def test_what_was_asked_for_and_is_damaged_is_refused(finished, capsys):
    """Another in its place would not be what was asked for."""
    flip(largest(parameters(finished, 8)), Random(2))
    before = contents(finished)
    for checkpoint, intact in ((8, "1 requested"), ("average:2", "2 requested")):
        with pytest.raises(UserError, match=f"of the {intact}"):
            Translator.load(finished, checkpoint)
        assert f"warning: {parameters(finished, 8)} is" in capsys.readouterr().err
    assert Translator.load(finished, 12).steps == (12,)
    assert contents(finished) == before

    empty(largest(parameters(finished, 12)), Random(3))
    (best,) = (finished / "checkpoints" / "best").iterdir()
    flip(largest(best), Random(4))
    for checkpoint in ("average", "best"):
        with pytest.raises(UserError, match="only 0 of .* are intact: choose others"):
            Translator.load(finished, checkpoint)
    assert f"warning: {best} is damaged" in capsys.readouterr().err


def test_parameters_that_took_each_others_place_are_told(finished, capsys):
    swap(parameters(finished, 8), parameters(finished, 12))
    with pytest.raises(UserError, match="only 0 of the 1"):
        Translator.load(finished, 8)
    assert f"warning: {parameters(finished, 8)} is damaged" in capsys.readouterr().err


SCORES, LINES = "scores/test.json", "translations/test.de"


def change_a_score(file, random):
    content = json.loads(file.read_bytes())
    changed = json.dumps(content | {"perplexity": content["perplexity"] + 64})
    file.write_text(changed)


@pytest.mark.parametrize(
    ("damage", "name"), [(garbage, SCORES), (change_a_score, SCORES), (flip, LINES)]
)
def test_damaged_scores_are_kept_beside_and_made_anew(
    finished, trained, text, damage, name
):
    before = {n: (finished / n).read_bytes() for n in (SCORES, LINES)}
    damage(finished / name, Random(5))
    damaged = (finished / name).read_bytes()
    corpus = open_corpora("test", "en", "de", str(text))[0]
    rescored = score_set(Translator.load(finished), corpus, finished)
    assert rescored == trained[1]["test"]
    assert {n: (finished / n).read_bytes() for n in before} == before
    set_aside = {n: (finished / n.replace(".", ".1.")).read_bytes() for n in before}
    assert set_aside == before | {name: damaged}


@pytest.fixture
def prepared(text, tmp_path, monkeypatch):
    """A cache folder with what is prepared of a text, and how that is done."""
    monkeypatch.setenv("T2T_JAX_CACHE", str(tmp_path / "cache"))
    config = from_config_dict(config_for(text)).data
    corpora = open_corpora("train", "en", "de", str(text), weights=True)

    def make():
        vocabulary = make_tokenizer(corpora, config)
        return prepare.training_pairs(corpora, vocabulary, config)

    make()
    return tmp_path / "cache", make


@pytest.mark.parametrize("kind", ["pairs", "tokenizers"])
def test_damaged_text_is_told_and_made_again(prepared, capsys, kind):
    cache, make = prepared
    before = contents(cache)
    folder = next((cache / kind).iterdir())
    names = sorted(name for name, content in contents(folder).items() if content)
    names.remove(sealed.MANIFEST)
    damages = [(damage, names[0]) for damage in EVERY]
    damages += [(delete, sealed.MANIFEST), *((flip, name) for name in names[1:])]
    for damage, name in damages:
        damage(folder / name, Random(6))
        make()
        message = capsys.readouterr().err
        assert f"warning: {folder} is damaged (" in message
        # Besides what was found intact.
        lines = [line for line in message.splitlines() if " found in " not in line]
        assert lines[0].endswith("; building it again")
        assert lines[1:] == ["training the tokenizer"] * (kind == "tokenizers")
        assert contents(cache) == before
