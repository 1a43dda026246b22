"""Nothing is imported or exported that does not compute the same."""

import contextlib
import json

import jax
import numpy as np
import pytest

from t2t_jax import load_config
from t2t_jax.config import Config, changed, from_config_dict
from t2t_jax.decoding.translator import Translator
from t2t_jax.io.errors import UserError
from t2t_jax.parallel import processes
from t2t_jax.run import initialization
from t2t_jax.tools.bridges import exporting, importing
from t2t_jax.tools.bridges.checks import agreement, peer_process
from t2t_jax.tools.bridges.formats import (
    ExportFormat,
    Imported,
    ImportFormat,
    Request,
)
from t2t_jax.workdir import Workdir
from tests.decoding.small_translator import translator
from tests.small_run import write_pairs


class Original:
    """Stands in for another system: answers with our own numbers, plus an error."""

    def __init__(self, ours: Translator):
        self.ours, self.error, self.wrong_token = ours, 0.0, False
        self.wrong_ids: list[int] = []  # lines that its tokenizer splits otherwise

    def run(self, script, task, *, sources, targets=None, **job):
        if task == "logits":
            logits = agreement.logits(self.ours, sources, targets)
            return {f"logits_{i}": x + self.error for i, x in enumerate(logits)}
        search = agreement.float32(self.ours).with_options(
            alpha=job.get("alpha", 0.6), penalty="length", stop="best", extra_length=5
        )
        beam = 1 if task == "greedy" else job["beam"]
        hypotheses = search.translate_ids(sources, beam=beam)
        tokens = [[*h.tokens] for h in hypotheses]
        if self.wrong_token:
            tokens[0][0] = 4 if tokens[0][0] != 4 else 5
        answer = {"tokens": tokens, "texts": [h.text for h in hypotheses]}
        return answer | {"seconds": 0.1, "tokenizer_differs": self.wrong_ids}


@pytest.fixture
def original(monkeypatch):
    ours = translator()
    peer = Original(ours)
    monkeypatch.setattr(peer_process, "run", peer.run)
    monkeypatch.setattr(peer_process, "missing_packages", lambda script: [])
    monkeypatch.setattr(agreement, "RANDOM", 8)
    monkeypatch.setattr(agreement, "LONGEST", 5)

    def read(request):
        return Imported(ours.config, ours.vocabulary, ours.parameters, {}, ("a note",))

    form = ImportFormat("a format", lambda path: path.name == "model", read, "script")
    monkeypatch.setattr(importing, "IMPORTS", {"some": form})
    written = ExportFormat("a format", write, "script", options=("quantization",))
    monkeypatch.setattr(exporting, "EXPORTS", {"some": written})
    return peer


def write(translator, folder, options):
    (folder / "weights").write_bytes(b"123")
    return {}


@pytest.fixture
def request_(tmp_path):
    path = tmp_path / "model"
    path.mkdir()
    (path / "config.json").write_text("{}")
    return Request(path)


def test_an_imported_model_is_an_ordinary_workdir(original, request_, tmp_path, capsys):
    workdir = Workdir(tmp_path / "run")
    importing.import_model(request_, str(workdir))
    loaded = Translator.load(workdir)
    jax.tree.map(
        np.testing.assert_array_equal, loaded.parameters, original.ours.parameters
    )
    facts = json.loads((workdir / "imported.json").read_text())
    assert facts["compared"]["logits"]["difference"] < 1e-4
    greedy = facts["compared"]["greedy"]
    assert greedy["equal"] == greedy["lines"] == 8
    assert facts["notes"] == ["a note"]
    assert [*facts["files"]] == ["config.json"]
    printed = capsys.readouterr().err
    assert "model.layers=1" in printed
    assert "note: a note" in printed
    with pytest.raises(UserError, match=r"imported or .*--config=finetune:"):
        workdir.changes(Config())
    with pytest.raises(UserError, match="is not empty"):
        importing.import_model(request_, workdir)


@pytest.mark.parametrize("damage", [{"error": 0.1}, {"wrong_token": True}])
def test_what_does_not_agree_is_not_imported(original, request_, tmp_path, damage):
    vars(original).update(damage)
    with pytest.raises(UserError, match=r"does not compute .* Nothing was written"):
        importing.import_model(request_, Workdir(tmp_path / "run"))
    assert not (tmp_path / "run").exists()


@pytest.fixture
def absent(original, monkeypatch):
    """The other system is not installed."""
    monkeypatch.setattr(peer_process, "missing_packages", lambda script: ["torch"])


def test_without_the_library_it_says_so(absent, request_, tmp_path, capsys):
    importing.import_model(request_, Workdir(tmp_path / "run"))
    assert "nothing was compared with the original: torch" in capsys.readouterr().err
    facts = json.loads((tmp_path / "run" / "imported.json").read_text())
    assert "torch" in facts["compared"]["not_compared"]


def test_an_interrupted_import_starts_again(absent, request_, tmp_path, monkeypatch):
    def stop(*arguments):
        raise KeyboardInterrupt

    workdir = Workdir(tmp_path / "run")
    with monkeypatch.context() as patch:
        patch.setattr(Workdir, "store", stop)
        with pytest.raises(KeyboardInterrupt):
            importing.import_model(request_, workdir)
    assert not workdir.has_run()
    importing.import_model(request_, workdir)
    assert workdir.has_run()


def test_what_cannot_be_imported_is_refused(original, request_, tmp_path):
    with pytest.raises(UserError, match="no such format; did you mean 'some'"):
        importing.chosen_format(request_.path, "soem")
    workdir = Workdir(tmp_path / "run")
    (workdir / "checkpoints").mkdir(parents=True)
    (workdir / "config.json").touch()
    with pytest.raises(UserError, match="is a workdir already, .* as --workdir="):
        importing.chosen_format(tmp_path / "run", "")
    (request_.path / "model.bin").touch()
    with pytest.raises(UserError, match="has model.bin, as exports for CTranslate2"):
        importing.chosen_format(request_.path.rename(tmp_path / "exported"), "")


@pytest.mark.parametrize(
    ("name", "given", "flag"),
    [
        ("marian", {"tokenizer": "x"}, "tokenizer"),
        ("t2t_jax-safetensors", {"model": {"heads": 2}}, "config.model.heads"),
    ],
)
def test_flags_that_a_format_does_not_read_are_refused(request_, name, given, flag):
    message = f"--{flag} has no effect with --format={name}"
    with pytest.raises(UserError, match=message):
        importing.import_model(request_._replace(**given), Workdir("none"), name)


@pytest.fixture
def pairs(tmp_path):
    long = "a dog " * 99  # would be cut, and is not compared
    lines = [("the cat sees the dog", "die Katze"), ("", ""), ("a dog", "ein")]
    write_pairs(tmp_path, set=[*lines, (long, long)])
    return str(tmp_path / "set")


def test_an_export_that_agrees_gets_its_name(original, pairs, tmp_path):
    output = tmp_path / "out" / "model"
    exporting.export(original.ours, "some", str(output), pairs)
    facts = json.loads((output / "agreement.json").read_text())
    assert facts["agrees"]
    assert facts["greedy"]["equal"] == facts["greedy"]["lines"] == 2
    assert facts["beam"]["different"] == []
    assert facts["beam"]["bleu"]["difference"] == 0
    assert [p.name for p in output.parent.iterdir()] == ["model"]
    with pytest.raises(UserError, match="exists; name a new folder"):
        exporting.export(original.ours, "some", output, pairs)


def test_an_export_that_disagrees_keeps_its_files_elsewhere(original, pairs, tmp_path):
    original.wrong_token = True
    output = tmp_path / "model"
    for name in ("model.failed", "model.failed.1"):
        with pytest.raises(UserError, match=rf"Its files are in .*{name},"):
            exporting.export(original.ours, "some", output, pairs)
        assert (tmp_path / name / "weights").read_bytes() == b"123"
    assert not output.exists()


NAN = float("nan")


@pytest.mark.parametrize(
    ("weights", "damage", "bleu", "agrees"),
    [
        # Only float32 must have the same tokens; any must split lines alike.
        ("float32", {"wrong_token": True}, (), False),
        ("int8", {"wrong_token": True}, (), True),
        ("int8", {"wrong_ids": [1]}, (), False),
        # The bounds of the lost BLEU: quantized weights have to show that they lost
        # none, others only must not have lost any for certain.
        ("float32", {}, (-6.0, -1.1), False),
        ("float32", {}, (-1.1, 0.9), True),
        ("int8", {}, (-1.1, 0.9), False),
        ("int8", {}, (-0.9, 0.1), True),
        ("float32", {}, (NAN, NAN), False),
    ],
)
def test_an_export_has_to_show_that_it_agrees(
    original, pairs, tmp_path, monkeypatch, weights, damage, bleu, agrees
):
    vars(original).update(damage)
    if bleu:
        lost = dict(zip(("low", "high"), bleu, strict=True))
        lost |= {"score": 20.0, "baseline_score": 25.0}
        monkeypatch.setattr(exporting.measures, "compared", lambda *_: {"bleu": lost})
    refused = pytest.raises(UserError, match="does not agree")
    with contextlib.nullcontext() if agrees else refused:
        exporting.export(
            original.ours, "some", tmp_path / "model", pairs, quantization=weights
        )


def test_a_rule_that_cannot_fail_says_so(
    original, pairs, tmp_path, monkeypatch, capsys
):
    for ours, told in ((1.0, True), (1.1, False)):
        lost = {"low": 0.0, "high": 0.0, "score": 0.0, "baseline_score": ours}
        monkeypatch.setattr(
            exporting.measures, "compared", lambda *_, lost=lost: {"bleu": lost}
        )
        exporting.export(
            original.ours, "some", tmp_path / str(ours), pairs, quantization="int8"
        )
        assert ("ours has no more to lose" in capsys.readouterr().err) == told


def test_an_export_is_compared_in_the_models_own_search_and_says_so(
    original, pairs, tmp_path, capsys, monkeypatch
):
    searches = []

    def check(translator, *_):
        decode = translator.config.decode
        searches.append((decode.beam, decode.alpha, decode.penalty))
        return {}, "", True

    monkeypatch.setattr(exporting, "CHECKS", {"greedy": check, "beam": check})
    for penalty, alpha in (("gnmt", 0.9), ("none", 0)):
        ours = original.ours.with_options(beam=2, alpha=0.9, penalty=penalty)
        exporting.export(ours, "some", tmp_path / penalty, pairs)
        assert searches[-2:] == [(2, alpha, "length")] * 2
        assert (
            "compared on 2 lines of set, with beam 2 and the penalty 'length', "
            f"alpha {alpha:g}"
        ) in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"beam": 4}, r"--beam has no effect with --to=some.*--quantization"),
        ({"quantization": "int8"}, "needs text with translations; give --test"),
    ],
)
def test_what_cannot_be_exported_is_refused(original, tmp_path, arguments, message):
    with pytest.raises(UserError, match=message):
        exporting.export(original.ours, "some", tmp_path / "x", **arguments)
    assert not any(tmp_path.iterdir())


def test_a_failing_peer_leaves_nothing(original, pairs, tmp_path, monkeypatch):
    def fail(*arguments, **job):
        raise UserError("the other system could not compute")

    monkeypatch.setattr(peer_process, "run", fail)
    before = {*tmp_path.iterdir()}
    with pytest.raises(UserError, match="could not compute"):
        exporting.export(original.ours, "some", tmp_path / "new" / "x", pairs)
    assert {*tmp_path.iterdir()} == before


def test_peers_know_nothing_of_us():
    for script in peer_process.SCRIPTS.glob("*.py"):
        assert "t2t_jax" not in script.read_text(), script


def test_an_import_can_be_trained_further(
    original, absent, request_, tmp_path, monkeypatch
):
    ours = changed(original.ours.config, "data", source="fr", max_length=128)
    ours = changed(ours, "model", dropout=0.3)
    member = original.ours.members[0]._replace(config=ours)
    monkeypatch.setattr(original.ours, "members", (member,))
    importing.import_model(request_, Workdir(tmp_path / "run"))
    config = from_config_dict(load_config(f"finetune:{tmp_path / 'run'}"))
    assert config.model == changed(ours, "model", dropout=0.1).model
    assert config.decode == changed(ours, "decode", average=1).decode
    for field in ("source", "target", "joint_vocabulary", "max_length"):
        assert getattr(config.data, field) == getattr(ours.data, field), field
    assert config.train.init_from == str(tmp_path / "run")
    # Fewer steps have less warmup: the learning rate reaches its peak, and falls.
    assert (config.train.warmup, config.train.eval_every) == (100, 250)
    short = load_config(f"finetune:{tmp_path / 'run'}", train={"steps": 65}).train
    assert (short.warmup, short.eval_every) == (7, 16)

    # Of several processes only the first reads it, so it may not wait for others.
    def wait(*arguments, **options):
        raise AssertionError("waits for the other processes")

    for name in ("from_first", "bytes_from_first", "arrays_from_first"):
        monkeypatch.setattr(processes, name, wait)
    ours = original.ours
    read = initialization.hook(config, ours.model, ours.vocabulary)
    jax.tree.map(np.testing.assert_array_equal, read(), ours.parameters)


# --------------------------------------------------------------------------- agreement

LINES = ["the cat sees the dog", "a dog sleeps"]


@pytest.fixture(scope="module")
def greedy():
    ours = translator()
    sources = ours.vocabulary.source.encode(LINES, end=True)
    rows = [h.tokens for h in ours.translate_ids(sources, beam=1)]
    limits = [len(ids) + ours.config.decode.extra_length for ids in sources]
    return ours, sources, rows, limits


def test_another_token_disagrees_unless_it_is_as_probable(greedy, monkeypatch):
    ours, sources, rows, limits = greedy
    result = agreement.compare_greedy(ours, sources, rows, rows, limits)
    assert (result.equal, result.ties, result.agrees) == (2, 0, True)
    changed_rows = [list(row) for row in rows]
    changed_rows[1][1] -= 1
    result = agreement.compare_greedy(ours, sources, rows, changed_rows, limits)
    ((line, place, token, peer_token, gap),) = result.different
    assert (line, place, token, peer_token) == (1, 1, rows[1][1], rows[1][1] - 1)
    # The gap is that of the teacher-forced logits after the common prefix.
    inputs = [[ours.vocabulary.bos, rows[1][0]]]
    logits = agreement.logits(ours, [sources[1]], inputs)[0][-1]
    assert gap == pytest.approx(float(logits[token] - logits[peer_token]), abs=1e-4)
    assert not result.agrees
    monkeypatch.setattr(agreement, "TIE", abs(gap) + 1e-3)
    assert agreement.compare_greedy(ours, sources, rows, changed_rows, limits).agrees


def test_an_end_without_eos_is_a_difference_except_at_the_limit(greedy):
    ours, sources, rows, limits = greedy
    short = [rows[0], rows[1][:1]]
    assert not agreement.compare_greedy(ours, sources, rows, short, limits).agrees
    # There, some systems force EOS.
    full = [list(range(4, 4 + limit)) for limit in limits]
    forced = [[*row[:-1], ours.vocabulary.eos] for row in full]
    assert agreement.compare_greedy(ours, sources, full, forced, limits).agrees


@pytest.mark.parametrize("silenced", ["both", "theirs"])
def test_silenced_tokens_hide_no_difference(silenced):
    """A logit of -1e9 must not stretch the tolerance of the others."""
    ours = translator()
    our_tv = np.full((2, len(ours.vocabulary)), 0.5, np.float32)
    peer_tv = our_tv.copy()
    peer_tv[:, 5] = -1e9
    if silenced == "both":
        our_tv[:, 5] = -100
    result = agreement.compare_logits(ours, [our_tv], {"logits_0": peer_tv})
    assert result.agrees == (silenced == "both")
    for wrong in (0.501, np.nan):
        peer_tv[0, 7] = wrong
        result = agreement.compare_logits(ours, [our_tv], {"logits_0": peer_tv})
        assert not result.agrees
