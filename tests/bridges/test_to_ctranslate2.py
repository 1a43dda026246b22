"""Export to CTranslate2: its names of our arrays, refusals; with it, its numbers."""

import sys
import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from t2t_jax import config as fields
from t2t_jax.data.tokenizers.training import train_tokenizer
from t2t_jax.data.tokenizers.vocabulary import Vocabulary
from t2t_jax.decoding.translator import Translator
from t2t_jax.io.errors import UserError
from t2t_jax.model.model import build
from t2t_jax.model.positions import sinusoids
from t2t_jax.search.algorithm import never_generated
from t2t_jax.tools.bridges import weights
from t2t_jax.tools.bridges.checks import agreement, peer_process
from t2t_jax.tools.bridges.exports import to_ctranslate2
from t2t_jax.tools.bridges.exports.to_ctranslate2 import _tokenizer_code
from t2t_jax.tools.bridges.vocabularies.fairseq import (
    fsmt_vocabulary,
)
from t2t_jax.tools.bridges.vocabularies.written import sentencepiece_files
from tests.bridges import bpe_folders
from tests.bridges import published_tokenizers as published
from tests.bridges.exported import needs, random_like

TEXT = [f"The {a} {b} sees  the {b}." for a in ("old", "young") for b in ("cat", "dog")]
NASTY = ["", " ", "a  b ", "\u2581", "\uf8fe\uf8fd\u2581\uf8fe", "<s> </s> <unk>"]
NASTY += ["x́👩‍👩‍👧"]
SMALL = {"layers": 2, "width": 16, "heads": 2, "hidden": 24, "dtype": "float32"}
# Each choice that CTranslate2 has, in as few models as possible.
VARIANTS = {
    "paper": {},
    "biases": {"norm": "pre", "attention_bias": True, "output_bias": True}
    | {"tied": "target", "feed_forward": "silu", "embedding_scale": False}
    | {"norm_epsilon": 1e-2},
    "sides": {"norm": "post_final", "tied": "none", "feed_forward": "gelu"}
    | {"encoder_layers": 1, "decoder_heads": 4, "decoder_hidden": 8, "head_width": 6}
    | {"options": {"sinusoid_layout": "half", "position_offset": 2}},
    "learned": {"norm": "pre", "norm_kind": "rms", "feed_forward": "swiglu"}
    | {"positions": "learned", "max_positions": 100, "options": {"position_offset": 2}},
    "rotary": {"positions": "rotary", "feed_forward": "geglu"}
    | {"options": {"rotary_base": 100.0}},
    "relative": {"positions": "relative", "options": {"relative_clip": 3}},
}


@pytest.fixture(scope="module")
def vocabularies():
    """A joint one, and one with a vocabulary of the source."""
    source, target = (
        Vocabulary(train_tokenizer(TEXT * 10, size)) for size in (300, 290)
    )
    return target, Vocabulary(target.model, source=source)


def translator_of(vocabularies, **model):
    """A translator whose parameters all have values of their own."""
    separate = model.get("tied") == "none"
    vocabulary = vocabularies[separate]
    config = fields.from_config_dict(
        {
            "model": SMALL | model,
            "data": {"joint_vocabulary": not separate},
            "decode": {"max_source": 40, "extra_length": 8},
        }
    )
    built = build(config.model, *vocabulary.sizes)
    return Translator(config, vocabulary, built, random_like(built.shapes, 0.5, 1))


@pytest.mark.parametrize("variant", VARIANTS)
def test_its_arrays_are_all_of_our_parameters(vocabularies, variant):
    translator = translator_of(
        vocabularies, **VARIANTS[variant] | {"output_bias": True}
    )
    rules = to_ctranslate2.rules(translator.config.model)
    tensors = weights.write(rules, translator.parameters)
    read = weights.flatten(weights.read(rules, tensors, translator.model, "x"))
    for name, ours in weights.flatten(translator.parameters).items():
        # No position reads the rows before the offset.
        unread = 2 if variant == "learned" and name.endswith("table") else 0
        np.testing.assert_array_equal(read[name][unread:], ours[unread:], name)


def test_positions_are_a_table_and_banned_tokens_have_a_bias(vocabularies):
    translator = translator_of(vocabularies, **VARIANTS["sides"])
    config = translator.config.model
    arrays = to_ctranslate2.variables(config, translator.parameters, 49, (0, 1))
    for side in ("encoder", "decoder"):
        table = arrays[f"{side}/position_encodings/encodings"]
        np.testing.assert_array_equal(table, sinusoids(58, 16, "half")[2:])
    bias = arrays["decoder/projection/bias"]
    assert bias[:3].tolist() == [-60_000, -60_000, 0]
    assert np.isfinite(bias.astype(np.float16)).all()


@pytest.mark.parametrize(
    ("model", "options", "message"),
    [
        ({"kind": "lstm"}, {}, "config.model.kind='lstm'.*--to=saf"),
        ({"positions": "alibi"}, {}, "config.model.positions='alibi'"),
        ({"value_width": 4}, {}, "config.model.value_width=4"),
        ({}, {"quantization": "int7"}, "--quantization=int7.*'int8'"),
        # A package without its parts cannot be imported from.
        ({}, {}, r"pip install 't2t_jax\[peers\]'"),
    ],
)
def test_refusals_write_nothing(
    vocabularies, model, options, message, tmp_path, monkeypatch
):
    monkeypatch.setitem(sys.modules, "ctranslate2.specs", None)
    monkeypatch.setitem(sys.modules, "ctranslate2", types.ModuleType("ctranslate2"))
    with pytest.raises(UserError, match=message):
        to_ctranslate2.write(translator_of(vocabularies, **model), tmp_path, options)
    assert sys.modules.get("torch", "not hidden") is not None
    assert not [*tmp_path.iterdir()]


def test_tokens_of_one_name_are_refused(vocabularies):
    tokens = {"eos_token": "</s>", "unk_token": "<unk>"}
    names = to_ctranslate2.piece_names(vocabularies[0], tokens)
    assert names == [vocabularies[0].piece(i) for i in range(290)]
    with pytest.raises(UserError, match="several tokens named <0x41>"):
        to_ctranslate2.piece_names(vocabularies[0], tokens | {"eos_token": "<0x41>"})


@pytest.fixture
def stored(tmp_path, monkeypatch):
    """Writes a vocabulary's files; runs the README's code, which may import pieces."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(sys.modules, "pieces", None)
    del sys.modules["pieces"]  # that of another test, and of this one at its end

    def write(vocabulary):
        files, described = sentencepiece_files(vocabulary)
        for name, content in files.items():
            (tmp_path / name).write_bytes(content)
        usage = {}
        exec(_tokenizer_code(vocabulary, described), usage)
        return [*files], usage["encode"], usage["decode"]

    return write


@pytest.mark.parametrize("separate", [False, True])
def test_the_readme_tokenizes_as_we_do(vocabularies, stored, separate):
    vocabulary = vocabularies[separate]
    (*names, code), encode, decode = stored(vocabulary)
    assert names == (["source.spm", "target.spm"] if separate else ["tokenizer.model"])
    assert code == "pieces.py"
    for line in [*NASTY, *TEXT]:
        assert encode(line) == vocabulary.source.pieces(line)
        assert decode(vocabulary.pieces(line)) == line


@pytest.mark.parametrize("kind", published.FOLDERS)
def test_the_readme_tokenizes_as_published_tokenizers_do(tmp_path, stored, kind):
    config = published.FOLDERS[kind](tmp_path)
    languages = published.LANGUAGES.get(kind, ())
    vocabulary = published.reader(kind)(tmp_path, config, *languages)
    (_, encode, decode), source = stored(vocabulary), vocabulary.source
    ids = {source.piece(i): i for i in range(len(source))}
    lines = [*published.nasty_lines(60), ">>deu<< a dog </s> the ", *NASTY, *TEXT]
    lines += [">> a dog", "<s> a <pad>"]
    encoded = source.encode(lines)
    targets = vocabulary.encode(lines)
    targets.append([vocabulary.unknown, *targets[-1]])
    for row, line in enumerate(lines):
        found = [ids.get(piece, source.unknown) for piece in encode(line)]
        assert found == encoded[row], line
    for row, text in zip(targets, vocabulary.decode(targets), strict=True):
        assert decode([vocabulary.piece(i) for i in row]) == text


def test_byte_pairs_come_with_the_tables_of_both_sides(tmp_path, stored):
    vocabulary = fsmt_vocabulary(tmp_path, bpe_folders.fsmt(tmp_path))
    names, encode, decode = stored(vocabulary)
    assert names == ["tokenizer.model", "source_tokenizer.model"]
    for line in ["don't see the cat", *TEXT]:
        assert encode(line) == vocabulary.source.pieces(line)
        (text,) = vocabulary.decode(vocabulary.encode([line]))
        assert decode(vocabulary.pieces(line)) == text


@needs("ctranslate2")
@pytest.mark.parametrize("variant", VARIANTS)
def test_it_gives_our_probabilities_and_tokens(vocabularies, variant, tmp_path):
    translator = translator_of(vocabularies, **VARIANTS[variant])
    peer = to_ctranslate2.write(translator, tmp_path, {})
    job = {"model": str(tmp_path), "threads": 1} | peer
    random = np.random.default_rng(2)
    sources, targets = (
        [[*map(int, random.integers(4, 290, n)), 2] for n in lengths]
        for lengths in ([1, 2, 7, 19, 30], [12, 3, 25, 6, 1])
    )
    result = peer_process.run(
        "ctranslate2_peer", "log_probs", sources=sources, targets=targets, **job
    )
    found = result["log_probs"]
    inputs = [[1, *ids[:-1]] for ids in targets]
    for row, logits_tv in enumerate(agreement.logits(translator, sources, inputs)):
        banned = [*never_generated(translator.vocabulary)]
        wanted_tv = jax.nn.log_softmax(jnp.asarray(logits_tv).at[:, banned].add(-6e4))
        wanted_t = wanted_tv[np.arange(len(targets[row])), np.array(targets[row])]
        np.testing.assert_allclose(found[row], wanted_t, atol=1e-4)
    limits = [len(ids) + 8 for ids in sources]
    theirs = peer_process.run(
        "ctranslate2_peer", "greedy", sources=sources, limits=limits, **job
    )
    ours = [h.tokens for h in translator.translate_ids(sources, beam=1)]
    compared = agreement.compare_greedy(
        translator, sources, ours, theirs["tokens"], limits
    )
    assert compared.equal == 5
    assert len({tuple(tokens) for tokens in ours}) > 3
