"""The benchmarks: their arithmetic, their rows, and that they run without peers."""

import importlib.util
import json
import subprocess
import sys
import types
from pathlib import Path

import numpy as np
import pytest

from benchmarks import beams, diverse_beams, measuring, ngrams, pages, picture
from benchmarks.decode import search_flops
from benchmarks.diverse_beams import distinct, parsed_searches, self_bleu
from benchmarks.end_to_end import _range, grouped_by_length, padded
from benchmarks.measuring import Row
from benchmarks.train_step import WORKS, parsed_batch
from t2t_jax.config import ModelConfig
from t2t_jax.data.shapes import Shape
from t2t_jax.io.errors import UserError
from t2t_jax.tools.verify.random_models import (
    Numbers,
    random_tokens,
    random_translator,
)
from tests.decoding import small_translator

pytestmark = pytest.mark.usefixtures("quick_compiler")

ROOT = Path(__file__).parent.parent
TINY = ModelConfig(layers=1, width=16, heads=2, hidden=16, dropout=0.0)


def run(name, *arguments):
    command = [sys.executable, "-m", f"benchmarks.{name}", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True)


def test_limits_are_those_of_hand_counts():
    assert WORKS["T"].flops() == pytest.approx(372e9, rel=0.03)
    of_d = search_flops(ModelConfig(), 32_000, 4, [(32, 64)] * 32)
    assert of_d == pytest.approx(680e9, rel=0.03)
    # 372 GFLOP for 1,024 tokens at 186 GFLOP/s take two seconds: 512 tokens/s
    assert measuring.share_of_limit(512, 372e9 / 1024, {"jax": 186e9}) == pytest.approx(
        1.0
    )


def test_a_search_of_one_sentence_costs_what_its_parts_cost():
    d, f, v = 16, 32, 100
    model = ModelConfig(layers=1, width=d, heads=2, hidden=f)
    source, steps, beam = 3, 2, 5
    by_hand = source * (4 * d * d + 2 * d * f) + 2 * d * source * source
    by_hand += source * 2 * d * d
    for past in range(1, steps + 1):
        one = 4 * d * d + 2 * d * past  # self-attention
        one += 2 * d * d + 2 * d * source  # attention to the source
        by_hand += beam * (one + 2 * d * f + d * v)
    assert search_flops(model, v, beam, [(source, steps)]) == 2 * by_hand


def test_rows_hold_ratio_share_and_the_better_side():
    rows = measuring.rows_of("T", "tokens/s", {"ours": 6.0, "a": 4.0, "b": 12.0})
    assert [row.to_json()["ratio"] for row in rows] == [1.5, 0.5]
    assert [row.peer_name for row in rows] == ["a", "b"]
    assert Row("import", "s", 2.0, 3.0, more_is_better=False).ratio == 1.5
    (alone,) = measuring.rows_of("T", "tokens/s", {"ours": 6.0}, share_of_limit=0.25)
    named = {"work", "ours", "peer", "peer_name", "ratio", "share_of_limit"}
    assert named < set(alone.to_json())
    assert alone.to_json()["ratio"] is None
    assert "0.25" in measuring.table([alone])
    assert "peer" not in measuring.table([alone]).replace("MB", "")


def test_contenders_take_turns_and_medians_count(monkeypatch):
    called = []

    def contender(name, values):
        def one():
            called.append(name)
            return values.pop()

        return one

    monkeypatch.setattr(measuring.gc, "collect", lambda: None)  # of all tests' objects
    two = {"a": contender("a", [9.0, 1.0, 2.0]), "b": contender("b", [5.0, 4.0, 6.0])}
    assert measuring.alternate(two, 3, pause=0) == {"a": 2.0, "b": 5.0}
    assert called == ["a", "b", "b", "a", "a", "b"]


def test_measurements_are_not_overwritten(tmp_path):
    place = tmp_path / "rows.json"
    measuring.publish([Row("T", "tokens/s", 3.0)], str(place))
    before = place.read_bytes()
    written = json.loads(before)
    assert written["rows"][0]["ours"] == 3.0
    assert {"date", "command", "commit", "machine", "versions"} < written.keys()
    assert {"processor", "cores", "instructions"} < written["machine"].keys()
    with pytest.raises(UserError, match="is there already"):
        measuring.publish([Row("T", "tokens/s", 4.0)], str(place))
    assert place.read_bytes() == before


def test_names_and_batches_that_are_wrong_are_told():
    assert measuring.chosen(["", "a"], ["a", "b"], "peers") == ["a"]
    with pytest.raises(UserError, match="--peers='marien'.*marianmt"):
        measuring.chosen(["marien"], ["marianmt"], "peers")
    assert parsed_batch("32x64") == Shape(32, 64, 64)
    for wrong in ("32", "0x4", "ax4", "1x2x3"):
        with pytest.raises(UserError, match="ROWSxLENGTH"):
            parsed_batch(wrong)


def test_the_peers_batches_hold_every_pair_once_within_the_budget():
    random = np.random.default_rng(1)
    source, target = random.integers(1, 40, (2, 500))
    batches = grouped_by_length(source, target, 200, seed=3)
    assert sorted(np.concatenate(batches)) == [*range(500)]
    for batch in batches:
        assert len(batch) * max(source[batch].max(), target[batch].max()) <= 200
    computed = sum(len(b) * (source[b].max() + target[b].max()) for b in batches)
    assert (source.sum() + target.sum()) / computed > 0.7  # unsorted: about 0.5
    tokens = padded([[5, 6], [7], [8, 9, 4]], np.array([2, 1]))
    np.testing.assert_array_equal(tokens, [[8, 9, 4], [7, 0, 0]])
    parts = [_range(10, number, 3) for number in range(3)]
    assert parts == [(0, 3), (3, 6), (6, 10)]


@pytest.mark.parametrize("beam", [1, 4])
def test_a_random_model_makes_all_steps(beam):
    translator = random_translator(TINY, 60, rows=8, source=32, steps=40)
    tokens = random_tokens((8, 31), 60)
    lines = Numbers(60).decode(tokens.tolist())
    found = translator.translate(lines, beam=beam, warn=False)
    assert [len(each.best.tokens) for each in found] == [40] * 8


PEERS = ("torch", "transformers", "ctranslate2")


@pytest.mark.skipif(
    not all(map(importlib.util.find_spec, PEERS)), reason="the extra [peers] is missing"
)
@pytest.mark.slow
@pytest.mark.parametrize("norm", ["post", "pre"])
def test_the_peers_get_our_model(norm):
    """In a process without TensorFlow: see `peers.py`."""
    command = [sys.executable, "-m", "tests.peers", norm]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]


def test_without_the_peers_it_is_told_what_to_install(monkeypatch):
    from benchmarks import peers

    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(UserError, match=r"pip install -e '\.\[peers\]'"):
        peers.need("torch")


@pytest.mark.slow
def test_a_step_is_measured_without_peers(tmp_path):
    place = tmp_path / "rows.json"
    sizes = {"layers": 1, "width": 16, "heads": 2, "hidden": 16}
    done = run(
        "train_step",
        "--config=configs/tiny.py",
        *(f"--config.model.{name}={size}" for name, size in sizes.items()),
        "--config.data.vocab_size=300",
        *(
            "--batch=4x8",
            "--peers=",
            "--rounds=1",
            "--nomemory",
            "--peak_sizes=256",
            f"--output={place}",
        ),
    )
    assert done.returncode == 0, done.stderr[-2000:]
    (row,) = json.loads(place.read_text())["rows"]
    assert row["work"] == "tiny 4x8"
    assert row["ours"] > 0
    assert 0 < row["share_of_limit"] < 1
    assert row["peer"] is None


@pytest.mark.slow
@pytest.mark.parametrize("name", ["train_step", "decode", "end_to_end", "startup"])
def test_help_tells_the_flags(name):
    told = run(name, "--help").stdout
    assert "--output" in told


def test_a_picture_has_a_panel_for_each_work_and_its_limit():
    common = {"work": "T", "share_of_limit": 0.5}
    rows = [
        measuring.Row(unit="tokens/s", ours=20.0, peer=10.0, peer_name="a", **common),
        measuring.Row(unit="tokens/s", ours=20.0, peer=25.0, peer_name="b", **common),
        measuring.Row(unit="sentences/s", ours=2.0, peer=1.0, peer_name="a", **common),
        measuring.Row(work="alone", unit="s", ours=1.0),
    ]
    found = picture.panels(rows)
    assert found == {
        "T\ntokens/s": {"t2t_jax": 20.0, "a": 10.0, "b": 25.0, "limit": 40.0}
    }
    (axis,) = picture.drawn(found).axes
    assert [bar.get_width() for bar in axis.patches] == [10, 20, 25]  # fastest on top


def test_a_picture_of_something_else_is_refused(tmp_path):
    (tmp_path / "x.json").write_text('{"work": "T"}')
    with pytest.raises(UserError, match="x.json: not the rows of a benchmark"):
        picture.read(str(tmp_path / "x.json"))


@pytest.mark.slow
def test_a_page_of_a_random_model_has_all_parts_and_their_seconds():
    decoding = pages.sharpened(random_translator(TINY, 50, 1, 4, 5))
    explanation, page, seconds = pages.explained(decoding, "17 4 23", 1)
    assert {*seconds} == {*pages.PARTS, "explain, in all"}
    assert all(first > 0 for first, _ in seconds.values())
    assert page.startswith("<!")
    assert "4 and 5 pieces" in pages.sharpness(explanation)
    rows = pages.rows_of("base 30", 200e3, 1e5, seconds)
    assert rows[0].to_json()["ratio"] == 2  # half of what is allowed


ARPA = """\\data\\
ngram 1=5
ngram 2=3

\\1-grams:
-1.0\t<unk>\t0
0\t<s>\t-0.30103
-0.69897\t</s>\t0
-0.39794\ta\t-0.1549
-0.52288\tb\t0

\\2-grams:
-0.30103\t<s> a
-0.09691\ta b
-1.0\ta </s>

\\end\\
"""


def test_a_back_off_model_is_read_as_it_is_written(tmp_path):
    (tmp_path / "arpa").write_text(ARPA)
    model = ngrams.BackOff(tmp_path / "arpa")
    assert model.order == 2
    assert model.prob(("<s>",), "a") == pytest.approx(0.5, rel=1e-3)
    assert model.prob(("b", "<s>"), "b") == pytest.approx(0.5 * 0.3, rel=1e-3)
    assert model.prob(("b",), "zebra") == pytest.approx(0.1, rel=1e-3)
    by_hand = np.log(0.5 * 0.8 * 0.2)  # <s> a b </s>; b has no weight of its own
    assert model.log_prob(["a", "b"]) == pytest.approx(by_hand, rel=1e-3)


def test_samples_of_a_back_off_model_have_its_probabilities(tmp_path):
    (tmp_path / "arpa").write_text(ARPA)
    model = ngrams.BackOff(tmp_path / "arpa")
    rng = np.random.default_rng(0)
    lines = [model.sample(rng) for _ in range(4_000)]
    # What is known after <s> has its own probability; shorter histories have the rest.
    begins = np.mean([line[:1] == ["a"] for line in lines])
    assert begins == pytest.approx(0.5, abs=0.03)
    rest = [line for line in lines if line[:1] != ["a"]]
    shares = np.array([0.2, 0.3]) / 0.5  # of the unigrams, without the unknown and a
    assert np.mean([not line for line in rest]) == pytest.approx(shares[0], abs=0.04)
    after = [line[1:2] for line in lines if line[:1] == ["a"]]
    assert np.mean([word == ["b"] for word in after]) == pytest.approx(0.8, abs=0.03)


def test_diversity_of_n_best_lists_by_hand():
    alike, apart = ["a b c d e"] * 2, ["a b c d e", "f g h i j"]
    assert distinct([alike], 1) == 5 / 10
    assert distinct([alike, apart], 2) == (4 / 8 + 8 / 8) / 2
    assert distinct([["a", ""]], 2) == 0  # no 2-gram at all
    assert self_bleu([alike], "en") == pytest.approx(100)
    assert self_bleu([apart], "en") < 10
    assert self_bleu([["alone"]], "en") == 0
    # A line with fewer translations than others has no reference in some places.
    assert self_bleu([alike, [*alike, alike[0]]], "en") == pytest.approx(100)


def test_searches_are_read_and_the_plain_beam_is_the_first():
    assert parsed_searches(["4:0.5", "1", "2"]) == [(1, None), (4, 0.5), (2, None)]
    with pytest.raises(UserError, match="--searches has 'x'; want GROUPS:DIVERSITY"):
        parsed_searches(["x"])


@pytest.mark.slow  # compiles several searches
def test_beams_are_compared(monkeypatch, capsys, text):
    """Both programs, but for reading flags, with a random model."""
    translator = small_translator.translator(1)
    common = {"workdir": "unread", "test": f"{text}/test", "lines": 3}
    common |= dict.fromkeys(("checkpoint", "dtype", "alpha", "penalty", "stop"))
    given = {
        beams: {"beam": None, "beams": ["1", "2"], "show": 1}
        | dict.fromkeys(("groups", "diversity")),
        diverse_beams: {"beam": 2, "searches": ["2:0.5"], "rounds": 1},
    }
    for module, own in given.items():
        monkeypatch.setattr(module.Translator, "load", lambda *_: translator)
        flags = Flags(**common | own)
        monkeypatch.setattr(module, "flags", types.SimpleNamespace(FLAGS=flags))
        module.main([])
    told = capsys.readouterr().out.splitlines()
    rows = [line for line in told if line.startswith(("   1", "   2", "| 1", "| 2"))]
    assert len(rows) == 4
    assert all(len(row.split("|")) - 2 == len(diverse_beams.HEADS) for row in rows[2:])
    assert rows[2].endswith("1.00 |")
    flags = Flags(**common | given[beams] | {"beam": 4})
    monkeypatch.setattr(beams, "flags", types.SimpleNamespace(FLAGS=flags))
    with pytest.raises(UserError, match="--beams=1,4,10"):
        beams.main([])


class Flags(types.SimpleNamespace):
    """Values of flags, read by attribute or, as `.value`, by item."""

    def __getitem__(self, name):
        return types.SimpleNamespace(value=getattr(self, name))
