"""What notebooks call: each is what the commands, or a training step, compute."""

import inspect
import sys
import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import t2t_jax
from t2t_jax import (
    Translator,
    UserError,
    batch_of,
    embeddings_of,
    evaluate,
    load_numpy,
    loss_function,
    to_numpy,
    train,
)
from t2t_jax import config as fields
from t2t_jax.io.atomic import read_checked_json
from t2t_jax.tools.bridges.exports import to_safetensors
from t2t_jax.tools.pages import live_curve, run_plots
from t2t_jax.training.step import initial_state, train_step
from tests.decoding.small_translator import translator
from tests.documents import PYTHON
from tests.small_run import assert_same, config_for, final_parameters, logged

PAIRS = [("the cat sees a dog", "ein Hund"), ("a dog", "die Katze sieht den Hund")]


def test_each_public_name_is_imported_on_first_use_and_documented():
    for name in t2t_jax.__all__:
        assert inspect.getdoc(getattr(t2t_jax, name)), name
    for name, member in inspect.getmembers(Translator):
        if isinstance(member, property):  # the site takes words before it for a type
            assert ": " not in (inspect.getdoc(member) or "").partition("\n")[0], name


def test_the_loss_of_a_batch_is_that_of_a_training_step():
    ours = translator()
    batch = batch_of(PAIRS, ours.vocabulary)
    eos_b = batch["target"][np.arange(2), (batch["target_segment"] > 0).sum(1) - 1]
    assert (eos_b == ours.vocabulary.eos).all()
    bos, loss = ours.vocabulary.bos, loss_function(
        ours.config, ours.model, ours.vocabulary
    )  # fmt: skip
    _, metrics = train_step(
        initial_state(ours.parameters, ours.config),
        {name: jnp.asarray(x) for name, x in batch.items()},
        definition=ours.model.definition,
        config=ours.config,
        bos=bos,
    )
    _, rng = jax.random.split(jax.random.key(ours.config.train.seed))
    value, means = loss(ours.parameters, batch, jax.random.fold_in(rng, 0))
    np.testing.assert_allclose(value, metrics["loss"], 1e-6)
    _, means = loss(ours.parameters, batch)  # without dropout
    scores = ours.score(PAIRS)
    mean = -sum(s.log_prob for s in scores) / sum(len(s.pieces) for s in scores)
    np.testing.assert_allclose(means["nll"], mean, 1e-5)
    with pytest.raises(UserError, match="want a list of"):
        batch_of(["ab"], ours.vocabulary)


@pytest.mark.parametrize("tied", ["all", "none"])
def test_gradients_by_embeddings_and_output_layer_are_those_of_tables(tied):
    ours = translator(tied=tied)
    batch = batch_of(PAIRS, ours.vocabulary)
    loss = loss_function(ours.config, ours.model, ours.vocabulary)
    given = embeddings_of(ours.parameters, batch, ours.vocabulary)
    whole, output = (
        jax.grad(lambda p, e=e: loss(p, batch, embeddings=e)[0])(ours.parameters)
        for e in (None, given)
    )
    sides = jax.grad(lambda e: loss(ours.parameters, batch, embeddings=e)[0])(given)
    shifted = np.roll(batch["target"], 1, 1)
    shifted[:, 0] = ours.vocabulary.bos
    shifted = np.where(batch["target_segment"] > 0, shifted, 0)
    for side, ids in (("source", batch["source"]), ("target", shifted)):
        name = "source_tokens" if (side, tied) == ("source", "none") else "tokens"
        table = output["embedding"][name]
        output["embedding"][name] = table.at[ids].add(sides[side])
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, 0, 1e-5), whole, output)


def test_parameters_go_to_numpy_and_into_a_workdir_and_back(tmp_path, monkeypatch):
    ours = translator()
    arrays = to_numpy(ours.parameters)
    assert arrays["encoder.0.attention.query"].shape == (16, 2, 8)
    model = ours.model
    loaded = Translator(ours.config, ours.vocabulary, model, load_numpy(arrays, model))
    again = Translator.load(loaded.save(str(tmp_path / "run")))
    assert_same(again.parameters, ours.parameters)
    for wrong in (
        {"x": 1.0},
        {"embedding.tokens": np.zeros(3)},
        {"embedding.tokens": arrays["embedding.tokens"] * np.nan},
    ):
        with pytest.raises(UserError, match=next(iter(wrong))):
            load_numpy(arrays | wrong, model)
    with pytest.raises(UserError, match="lacks encoder_norm|embedding.tokens missing"):
        load_numpy({n: x for n, x in arrays.items() if "tokens" not in n}, model)
    with pytest.raises(UserError, match="not empty"):
        ours.save(tmp_path / "run")
    # Nothing is half-written of what cannot be read, such as an export.
    monkeypatch.setattr(Translator, "parameters", "none")
    with pytest.raises(ValueError, match="none"):
        ours.save(tmp_path / "none")
    assert not (tmp_path / "none").exists()


def test_an_export_of_weights_comes_back_without_a_warning(tmp_path, capsys):
    ours = translator()
    folder = tmp_path / "export"
    folder.mkdir()
    to_safetensors.write(ours, folder, {})
    back = t2t_jax.import_model(str(folder), str(tmp_path / "run"))
    assert_same(back.parameters, ours.parameters)
    printed = capsys.readouterr().err
    assert "bit for bit" in printed
    assert "warning" not in printed


def test_evaluate_has_the_scores_of_the_workdir(trained, text):
    workdir, scores = trained
    ours, stored = Translator.load(workdir), scores["test"]
    scored = evaluate(ours, text / "test")["test"]
    for name in ("bleu", "chrf", "perplexity", "bleu_interval", "signature"):
        assert scored[name] == stored[name]
    sides = [(text / f"test.{side}").read_text().splitlines() for side in ("en", "de")]
    pairs = [*zip(*sides, strict=True)]
    by_pairs = evaluate(ours, pairs, intervals=False)["pairs"]
    assert by_pairs["bleu"] == stored["bleu"]
    assert "bleu_interval" not in by_pairs
    with pytest.raises(UserError, match="names no test set"):
        evaluate(ours, "")


def test_after_step_sees_each_loss_and_ends_a_run_that_continues(
    trained, text, tmp_path, monkeypatch
):
    monkeypatch.setitem(sys.modules, "tensorflow", None)
    seen = {}

    def after_step(step, loss, metrics, state):
        assert loss is metrics["loss"]
        seen[step] = float(loss)
        return step == 5

    config, workdir = config_for(text), tmp_path / "run"
    assert train(config, workdir, after_step, test=()) == {}
    assert [*seen] == [1, 2, 3, 4, 5]
    counted = [entry["step"] for entry in logged(workdir, "train")]
    assert counted == [3, 5]
    for wrong in (lambda step, state: None, 5):
        with pytest.raises(UserError, match="after_step=.* want after_step.step, loss"):
            train(config, tmp_path / "none", wrong)
    assert "test" in train(config, workdir)
    with jax.default_device(jax.devices()[0]):
        assert_same(*(final_parameters(w, text) for w in (workdir, trained[0])))


def test_progress_in_a_notebook_is_one_output(trained, monkeypatch):
    shown = []
    handle = types.SimpleNamespace(update=lambda data, raw: shown.append(data))
    ipython = types.SimpleNamespace(
        display=lambda data, raw, display_id: (shown.append(data), handle)[1]
    )
    stream = type("OutStream", (), {"__module__": "ipykernel.iostream"})()
    monkeypatch.setitem(sys.modules, "IPython.display", ipython)
    monkeypatch.setattr(run_plots, "figure", lambda _: types.SimpleNamespace(
        _repr_png_=lambda: b"curve"))  # fmt: skip
    assert live_curve.live_curve(trained[0]) is None
    monkeypatch.setattr(sys, "stderr", stream)
    curve = live_curve.live_curve(trained[0])
    for line in ("step 1", "step 2"):
        curve.show(line)
    curve.close()
    assert [data["text/plain"] for data in shown] == ["step 1", "step 2", "step 2"]
    assert "base64,Y3VydmU=" in shown[-1]["text/html"]


def test_the_loop_of_the_page_trains_a_workdir(text, tmp_path, monkeypatch, capsys):
    (block,) = [b for b in PYTHON if 'save("runs/mine")' in b.code]
    assert len([line for line in block.code.splitlines() if line]) <= 30
    small = config_for(text, train={"steps": 8, "warmup": 2})
    monkeypatch.setattr(t2t_jax, "load_config", lambda *_, **__: small, raising=False)
    monkeypatch.chdir(tmp_path)
    names = {"__name__": "page"}
    exec(compile(block.code, str(block), "exec"), names)
    first, last = (
        names["loss"](p, names["batch"])[0]
        for p in (names["model"].init(names["rngs"][0]), names["parameters"])
    )
    assert last < first - 0.1
    assert read_checked_json(tmp_path / "runs/mine/config.json")
    saved = Translator.load("runs/mine")
    assert_same(saved.parameters, names["parameters"])
    assert saved.config.model == fields.from_config_dict(small).model
