"""Export to Hugging Face: import gives it back; refusals; with it, its search."""

import json

import jax
import numpy as np
import pytest
import yaml

from t2t_jax.config import Config, Options, changed
from t2t_jax.data.tokenizers.sentencepieces import SYMBOL, lossless, pieces
from t2t_jax.data.tokenizers.training import train_tokenizer
from t2t_jax.data.tokenizers.vocabulary import Vocabulary
from t2t_jax.decoding.translator import Translator
from t2t_jax.evaluation.scores import stored_scores
from t2t_jax.io.atomic import checked_json
from t2t_jax.io.errors import UserError
from t2t_jax.model.model import build
from t2t_jax.tools.bridges import weights
from t2t_jax.tools.bridges.checks import agreement
from t2t_jax.tools.bridges.exports.to_huggingface import readme
from t2t_jax.tools.bridges.formats import ImportRequest
from t2t_jax.tools.bridges.table import EXPORTS, IMPORTS
from t2t_jax.tools.bridges.vocabularies import written
from t2t_jax.tools.bridges.vocabularies.marian import marian_vocabulary
from t2t_jax.tools.bridges.vocabularies.written import huggingface_files
from t2t_jax.workdir import Workdir
from tests.bridges import published_tokenizers
from tests.bridges.exported import needs, run_peer, translator
from tests.decoding.small_translator import TEXT
from tests.test_nasty_lines import NASTY

# Models that MarianMT and Pegasus compute.
MODELS = {
    "post": {},
    "pre": {"norm": "pre", "feed_forward": "silu", "embedding_scale": False},
    "learned": {"positions": "learned", "max_positions": 80, "tied": "none"}
    | {"decoder_layers": 2, "decoder_heads": 4, "decoder_hidden": 8}
    | {"feed_forward": "gelu", "options": Options({"position_offset": 2})},
    "two vocabularies": {"own_source": True},
}


def write(model: Translator, folder, **options):
    folder.mkdir()
    EXPORTS["huggingface"].write(model, folder, options)
    return folder


def read(folder) -> Translator:
    kind = json.loads((folder / "config.json").read_text())["model_type"]
    found = IMPORTS[kind].read(ImportRequest(folder))
    built = build(found.config.model, *found.vocabulary.sizes)
    return Translator(found.config, found.vocabulary, built, found.parameters, [7])


def separate() -> Translator:
    """A translator with two vocabularies whose special pieces have the same ids."""
    ours = translator(True)
    source = Vocabulary(train_tokenizer(TEXT * 20, 280), "source")
    vocabulary = Vocabulary(ours.vocabulary.model, "target", source)
    built = build(ours.config.model, *vocabulary.sizes)
    parameters = jax.tree.map(
        lambda x, like: x[tuple(map(slice, like.shape))], ours.parameters, built.shapes
    )
    return Translator(ours.config, vocabulary, built, parameters, [7])


def model_of(name: str) -> Translator:
    fields = MODELS[name]
    return separate() if fields.get("own_source") else translator(**fields)


@pytest.mark.parametrize("name", MODELS)
def test_an_import_of_an_export_is_the_model(name, tmp_path):
    ours = model_of(name)
    found = read(write(ours, tmp_path / "first"))
    for side, other in zip(found.vocabulary.sides, ours.vocabulary.sides, strict=True):
        assert side.model == other.model
    config, parameters = ours.config.model, ours.parameters
    parameters = weights.sines_first(config, parameters)
    biases = "attention_bias", "output_bias"
    config, parameters = weights.with_biases(config, parameters, *biases)
    wanted = weights.flatten(parameters)
    if name == "learned":  # the rows of no position are left out
        for side in ("encoder", "decoder"):
            table = f"{side}_positions.0.table"
            wanted[table] = wanted[table][2:]
    flat = weights.flatten(found.parameters)
    assert flat.keys() == wanted.keys()
    for key, value in wanted.items():
        np.testing.assert_array_equal(flat[key], value, key)
    for field in ("norm", "tied", "feed_forward", "embedding_scale", "positions"):
        assert getattr(found.config.model, field) == getattr(config, field)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("kind", "lstm"),
        ("norm", "post_final"),
        ("attention", "unscaled"),
        ("positions", "rotary"),
        ("head_width", 4),
    ],
)
def test_other_models_are_refused_by_field(field, value, tmp_path):
    with pytest.raises(UserError, match=rf"config\.model\.{field}=.*--to=ctranslate2"):
        write(translator(**{field: value}), tmp_path / "out")
    assert not any((tmp_path / "out").iterdir())


def test_vocabularies_with_other_special_ids_are_refused(tmp_path):
    with pytest.raises(UserError, match=r"\[3, 2, 0, 1\] in the source"):
        write(translator(True), tmp_path / "out")


def test_the_card_has_a_valid_header_and_the_scores_of_these_parameters(tmp_path):
    ours = translator()
    # Without quotes, YAML reads Norwegian as false.
    config = changed(ours.config, "data", target="no")
    ours = Translator(config, ours.vocabulary, ours.model, ours.parameters, [7])
    mine = {"parameters_sha256": ours.provenance()["parameters_sha256"][0]}
    shared = {"bleu": 12.5, "signature": "nrefs:1|eff:no", "bleu_paper": 9, "ter": 70}
    folder = tmp_path / "scores"
    folder.mkdir()
    for name, beam, more in (
        ("news", 1, mine),
        ("news.1", 5, mine),  # an earlier search
        ("older", 7, {"parameters_sha256": "0"}),
    ):
        search = {"decode": ours.decode_options() | {"beam": beam}}
        (folder / f"{name}.json").write_bytes(checked_json(shared | search | more))
    scores = stored_scores(Workdir(tmp_path))
    card = readme(ours, {"max_length": 99, "length_penalty": 0.48}, scores)
    _, header, text = card.split("---\n", 2)
    assert yaml.safe_load(header)["language"] == ["en", "no"]
    for beam in (1, 5):
        search = f"beam {beam}, length penalty 'gnmt' with alpha 0.6"
        assert f"| news | BLEU | 12.50 | {search} | `nrefs:1\\|eff:no` |" in text
    assert "beam 7" not in text
    # Of scores that mean nothing in the language nothing is shown.
    assert "BLEU as in the paper" in text
    config = changed(ours.config, "data", target="ja")
    ours = Translator(config, ours.vocabulary, ours.model, ours.parameters, [7])
    scores["news"]["parameters_sha256"] = ours.provenance()["parameters_sha256"][0]
    card = readme(ours, {"max_length": 99, "length_penalty": 0.48}, scores)
    assert "| news | BLEU |" in card
    assert "BLEU as in the paper" not in card
    assert "| TER |" not in card


@pytest.mark.parametrize("separate", [False, True])
def test_an_imported_marian_gets_its_tokenizer_back(separate, tmp_path):
    config = published_tokenizers.marian(tmp_path, separate=separate)
    files = huggingface_files(marian_vocabulary(tmp_path, config), Config())
    names = ["source.spm", "target.spm", "vocab.json"]
    for name in names + ["target_vocab.json"] * separate:
        content = (tmp_path / name).read_bytes()
        if name.endswith(".json"):
            assert json.loads(files.pop(name)) == json.loads(content)
        else:
            assert files.pop(name) == content
    assert list(files) == ["tokenizer_config.json"]
    assert json.loads(files["tokenizer_config.json"])["separate_vocabs"] is separate


def test_tokenizer_json_has_the_ids_and_all_merges():
    model = train_tokenizer(["aaaa bcbc <2de> <2"] * 20, 275, ("<2", "<2de>"))
    assert lossless(model)
    found = json.loads(written.tokenizer_json(model, 2))
    vocabulary = Vocabulary(model)
    names = [vocabulary.piece(i) for i in range(len(vocabulary))]
    assert found["model"]["vocab"] == {name: i for i, name in enumerate(names)}
    assert [p.name for p in pieces(model) if p.kind == SYMBOL] == ["<2", "<2de>"]
    # The longer symbol is tried first.
    assert found["pre_tokenizer"]["pattern"]["Regex"] == "<2de>|<2"
    merges = found["model"]["merges"]
    assert {a + b for a, b in merges} == {
        p.name for p in pieces(model) if p.kind == 1 and len(p.name) > 1
    }
    ranks = [names.index(a + b) for a, b in merges]
    assert ranks == sorted(ranks)


@needs("torch", "transformers")
@pytest.mark.parametrize("name", MODELS)
def test_it_translates_as_we_do(name, tmp_path):
    ours = agreement.float32(model_of(name)).with_options(
        beam=4, alpha=0.6, penalty="length", stop="best"
    )
    folder = write(ours, tmp_path / "out")
    lines = [*TEXT[:2], *(line[:6] for line in [*NASTY.values()][:6])]
    sources = ours.vocabulary.source.encode(lines, end=True)
    limits = [len(row) + 5 for row in sources]
    job = {"lines": lines, "sources": sources, "limits": limits}
    theirs = run_peer("huggingface", "greedy", folder, **job)["tokens"]
    tokens = [hypothesis.tokens for hypothesis in ours.translate_ids(sources, beam=1)]
    compared = agreement.compare_greedy(ours, sources, tokens, theirs, limits)
    assert compared.agrees, compared
    # With the folder's own tokenizer.
    found = run_peer("huggingface", "beam", folder, beam=4, alpha=0.6, **job)
    if ours.vocabulary.joint:
        assert not found["tokenizer_differs"]
        assert found["texts"] == ours.vocabulary.decode(found["tokens"])
