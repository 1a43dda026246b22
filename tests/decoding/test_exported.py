"""An export for CTranslate2 is a translator like any other, with less to ask for."""

import asyncio
import json
import shutil
import time
import types

import jax
import numpy as np
import pytest

from t2t_jax.decoding.results import Hypothesis
from t2t_jax.decoding.search_options import SearchRequest
from t2t_jax.decoding.translator import Translator
from t2t_jax.io import sealed
from t2t_jax.io.errors import UserError
from t2t_jax.tools.bridges import kept
from t2t_jax.tools.bridges.exports import to_ctranslate2
from t2t_jax.tools.serve.engine import Engine, Limits
from t2t_jax.training.checkpoint import Checkpoints
from t2t_jax.workdir import Workdir
from tests.bridges.exported import translator

LINES = ["the cat sees", "", "a dog sleeps a dog sleeps a dog sleeps", "the dog", " "]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("exported") / "export"
    folder.mkdir()
    to_ctranslate2.write(translator(), folder, {})
    return folder


@pytest.fixture(scope="module")
def exported(folder, tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("T2T_JAX_CACHE", str(tmp_path_factory.mktemp("cache")))
        return Translator.load(folder)


def tokens(translations):
    return [[h.tokens for h in t.hypotheses] for t in translations]


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"nbest": 3},
        {"prefix": "the cat"},
        {"beam": 2, "penalty": "none", "stop": "first"},
        {"alpha": 1.5, "extra_length": 3},
        {"no_repeat_ngram": 2, "repetition_penalty": 1.3, "prefix": "the cat the"},
    ],
    ids=lambda options: next(iter(options), "default"),
)
def test_searches_find_what_jax_finds(exported, options):
    found = exported.translate(LINES, warn=False, **options)
    wanted = translator().translate(LINES, warn=False, **options)
    assert tokens(found) == tokens(wanted)
    for one, other in zip(found, wanted, strict=True):
        assert (one.source, one.ended) == (other.source, other.ended)
        # JAX's probabilities are also of tokens that no search may generate.
        np.testing.assert_allclose(one.score, other.score, rtol=0.01)
    if "no_repeat_ngram" in options:  # and scores are not those of the model alone
        plain = exported.translate(LINES, warn=False, prefix=options["prefix"])
        assert tokens(found) != tokens(plain)
        return
    # And they are their own: of the tokens, the prefix's included.
    decode = exported.config.decode.override(
        alpha=options.get("alpha"), penalty=options.get("penalty")
    )
    scores = exported.score(
        [(t.source, t) for t in found if t.best.tokens],
        alpha=decode.alpha,
        penalty=decode.penalty,
    )
    best = [t.best for t in found if t.best.tokens]
    np.testing.assert_allclose([s.score for s in scores], [h.score for h in best], 1e-4)


def test_a_line_is_the_same_alone_and_in_company(exported):
    """Its limit is its own, though batches have the longest."""
    together = exported.translate(LINES, warn=False)
    alone = [exported.translate([line], warn=False)[0] for line in LINES]
    assert tokens(together) == tokens(alone)
    assert len({len(t.best.tokens) for t in together}) > 2  # they reach their limits


def test_a_beam_is_ranked_by_our_penalty(exported):
    """CTranslate2 ranks by length^(alpha / 2), and unended hypotheses like others."""
    names = [exported.vocabulary.piece(i) for i in (5, 6, 7)]
    end = exported.vocabulary.piece(exported.vocabulary.eos)
    found = types.SimpleNamespace(
        hypotheses=[names, [*names, end], [names[0], end]], scores=[-0.1, -1.95, -2.0]
    )
    search = exported.beam_search(3, beam=3, alpha=1.0)
    hypotheses = exported._hypotheses(search, found, before=-0.5)
    assert [len(h.tokens) for h in hypotheses] == [2, 4, 3]
    assert [h.ended for h in hypotheses] == [True, True, False]
    log_probs = np.array([-2.0 * 2**0.5, -1.95 * 4**0.5, -0.1 * 3**0.5]) - 0.5
    np.testing.assert_allclose([h.log_prob for h in hypotheses], log_probs)
    scores = log_probs / ((5 + np.array([2, 4, 3])) / 6)
    np.testing.assert_allclose([h.score for h in hypotheses], scores)


def test_scores_confidence_and_links_are_jaxs(exported):
    pairs = [(line, text) for line in LINES[:3] for text in ("die Katze", "ein")]
    unended = Hypothesis("die", 0, 0, False, translator().vocabulary.encode(["die"])[0])
    pairs += [(LINES[0], unended), ("", "die"), (LINES[0], "")]
    for method in ("confidence", "score"):
        own, wanted = (getattr(t, method)(pairs) for t in (exported, translator()))
        if method == "score":
            own, wanted = ([s.log_prob for s in scores] for scores in (own, wanted))
        np.testing.assert_allclose(own, wanted, rtol=0.01)
    assert exported.align(pairs) == translator().align(pairs)
    assert exported.align_units(pairs) == translator().align_units(pairs)
    with pytest.raises(UserError, match="no parameters to look into"):
        exported.attention("the cat")


REFUSED = {
    "must: ": lambda t, folder: t.translate(LINES, must="a"),
    "must_not: ": lambda t, folder: t.translate(LINES, must_not="a"),
    "sampling: ": lambda t, folder: t.sample(LINES),
    "groups=3: ": lambda t, folder: t.translate(LINES, groups=3),
    "confidence=entropy: .*ask for confidence=log_prob": (
        lambda t, folder: t.confidence([("a", "b")], "entropy")
    ),
    "extra_length=6: .* at most 5": lambda t, folder: t.translate(
        LINES, extra_length=6
    ),
    "layer=0: ": lambda t, folder: t.align([("a", "b")], layer=0),
    "--checkpoint=3: .* has 7": lambda t, folder: Translator.load(folder, 3),
    "--dtype=bfloat16: .* has float32": (
        lambda t, folder: Translator.load(folder, dtype="bfloat16")
    ),
    "--weights=int8: .* has float32": (
        lambda t, folder: Translator.load(folder, weights="int8")
    ),
    "engine=jax: .* is an export": lambda t, folder: Translator.load(
        folder, engine="jax"
    ),
    "engine='ct'; .*ctranslate2": lambda t, folder: Translator.load(
        folder, engine="ct"
    ),
    "no parameters to look into": lambda t, folder: Translator.load([folder, folder]),
    "is not trained": lambda t, folder: Workdir(folder).changes(t.config),
}


@pytest.mark.parametrize("message", REFUSED)
def test_what_it_cannot_do_is_refused(exported, folder, message):
    with pytest.raises(UserError, match=message):
        REFUSED[message](exported, folder)


def test_a_damaged_export_is_not_opened(folder, tmp_path):
    copy = shutil.copytree(folder, tmp_path / "copy")
    with (copy / "model.bin").open("ab") as file:
        file.write(b"\0")
    with pytest.raises(UserError, match=r"model\.bin has .*export it again"):
        Translator.load(copy)
    content = json.loads((folder / "config.json").read_text())
    (copy / "config.json").write_text(json.dumps(content))
    (copy / "model.bin").write_bytes(b"of another version")
    sealed.seal(copy, **sealed.notes(folder))
    with pytest.raises(UserError, match="does not open it: .*export it again"):
        Translator.load(copy)


def test_its_provenance_names_the_engine(exported, folder):
    provenance = exported.provenance()
    assert provenance["engine"] == {
        "name": "ctranslate2",
        "version": exported.facts["version"],
        "export_sha256": sealed.fingerprint(folder),
        "weights": "float32",
    }
    own = translator().provenance()
    assert {k: v for k, v in provenance.items() if k != "engine"} == own


def test_a_server_answers_with_it(exported):
    engine = Engine({"en-de": exported}, Limits((3,), 32))
    engine.warm_up()
    requests = {
        "default": SearchRequest(),
        "nbest": SearchRequest(nbest=3),
        "prefix": SearchRequest(prefix="the cat"),
        "must": SearchRequest(must=("the",)),
    }
    lines = LINES * 8

    async def run():
        deadline, answers = time.monotonic() + 60, {}
        asked = {
            name: engine.translate(
                "en-de", lines, [request] * len(lines), client=name, deadline=deadline
            )
            for name, request in requests.items()
        }
        answers = dict(zip(asked, await asyncio.gather(*asked.values()), strict=True))
        pairs = [(LINES[0], answers["default"][0])]
        details = await engine.details("en-de", pairs, client="a", deadline=deadline)
        aligned = await engine.align_units(
            "en-de",
            [(LINES[0], answers["default"][0].best)],
            client="a",
            deadline=deadline,
        )
        engine.reload("en-de", exported)
        again = await engine.translate(
            "en-de", lines[:1], [SearchRequest()], client="a", deadline=deadline
        )
        await engine.close()
        return answers, details, aligned, again

    answers, details, aligned, again = asyncio.run(run())
    for name in ("default", "nbest", "prefix"):
        request = requests[name]
        wanted = exported.translate(
            lines, nbest=request.nbest, prefix=request.prefix, warn=False
        )
        assert tokens(answers[name]) == tokens(wanted)
    assert {type(answer) for answer in answers["must"]} == {UserError}
    assert tokens(again) == tokens(answers["default"][:1])
    pairs = [(LINES[0], again[0])]
    assert [d.score.pieces for d in details] == [exported.score(pairs)[0].pieces]
    assert [d.alignment for d in details] == exported.align(pairs)
    assert aligned == exported.align_units(pairs)


def test_an_error_of_a_batch_is_of_no_other_line(exported, monkeypatch):
    engine, decode = Engine({"en-de": exported}, Limits((3,), 32)), exported.decode

    def fails_together(search, sources, constraints, **options):
        if len(sources) > 1:
            raise RuntimeError("one of them")
        return decode(search, sources, constraints, **options)

    monkeypatch.setattr(exported, "decode", fails_together)

    async def run():
        engine.warm_up()
        answers = await engine.translate(
            "en-de",
            LINES * 4,
            [SearchRequest()] * len(LINES * 4),
            client="a",
            deadline=time.monotonic() + 60,
        )
        await engine.close()
        return answers

    answers = asyncio.run(run())
    monkeypatch.undo()
    assert tokens(answers) == tokens(exported.translate(LINES * 4, warn=False))


def test_a_workdir_is_exported_once(monkeypatch, tmp_path, capsys):
    """And again if the export is damaged; `auto` takes the quicker engine."""
    monkeypatch.setenv("T2T_JAX_CACHE", str(tmp_path / "cache"))
    exports = []

    def export(made, name, output, **options):
        exports.append(name)
        output.mkdir(parents=True)
        to_ctranslate2.write(made, output, options)

    monkeypatch.setattr(kept, "export", export)
    workdir, original = Workdir(tmp_path / "work"), translator()
    with workdir.hold():
        checkpoints = Checkpoints(workdir, keep_parameters=1, keep_best=1)
        checkpoints.save_parameters(jax.tree.map(np.asarray, original.parameters), 7)
        checkpoints.close()
        workdir.store(original.config, original.vocabulary, {})
    first = Translator.load(workdir, engine="ctranslate2")
    again = Translator.load(workdir, engine="auto")
    assert exports == ["ctranslate2"]
    assert (kept.ratio(first) > 1) == (again.engine == "ctranslate2")
    (kept_folder,) = (tmp_path / "cache/exports").iterdir()
    (kept_folder / "README.md").write_text("changed")
    Translator.load(workdir, engine="ctranslate2")
    assert len(exports) == 2
    monkeypatch.setattr(kept, "ratio", lambda translator: 0.5)
    assert Translator.load(workdir, engine="auto").engine == "jax"
    assert "since CTranslate2 is 0.5 times as quick" in capsys.readouterr().err
    with pytest.raises(UserError, match="an ensemble of several"):
        Translator.load([workdir, workdir], engine="ctranslate2")
