"""The benchmarks: their arithmetic, their rows, and that they run without peers."""

import importlib.util
import json
import subprocess
import sys
import types
from pathlib import Path

import numpy as np
import pytest

from benchmarks import decode, language_models, measuring, pages, picture
from benchmarks.decode import search_flops
from benchmarks.end_to_end import _range, grouped_by_length, padded
from benchmarks.measuring import Row
from benchmarks.searches import Search, distinct, parsed, self_bleu
from benchmarks.train_step import WORKS, parsed_batch
from t2t_jax.config import ModelConfig
from t2t_jax.data.shapes import Shape
from t2t_jax.io.errors import UserError
from t2t_jax.tools.verify.random_models import (
    Numbers,
    random_tokens,
    random_translator,
)
from tests.commands import Commands

pytestmark = pytest.mark.usefixtures("quick_compiler")

ROOT = Path(__file__).parent.parent
TINY = ModelConfig(layers=1, width=16, heads=2, hidden=16, dropout=0.0)


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
    table = "\n".join(measuring.markdown([alone.to_json()]))
    assert "0.25" in table
    assert "peer" not in table


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
def test_a_page_of_a_random_model_is_measured():
    decoding = pages.sharpened(random_translator(TINY, 50, 1, 4, 5))
    explanation, page, seconds = pages.explained(decoding, "17 4 23", 1)
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
    model = language_models.BackOff(tmp_path / "arpa")
    assert model.order == 2
    assert model.prob(("<s>",), "a") == pytest.approx(0.5, rel=1e-3)
    assert model.prob(("b", "<s>"), "b") == pytest.approx(0.5 * 0.3, rel=1e-3)
    assert model.prob(("b",), "zebra") == pytest.approx(0.1, rel=1e-3)
    by_hand = np.log(0.5 * 0.8 * 0.2)  # <s> a b </s>; b has no weight of its own
    assert model.log_prob(["a", "b"]) == pytest.approx(by_hand, rel=1e-3)


def test_samples_of_a_back_off_model_have_its_probabilities(tmp_path):
    (tmp_path / "arpa").write_text(ARPA)
    model = language_models.BackOff(tmp_path / "arpa")
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


def test_searches_are_parsed():
    assert parsed("4") == Search(4)
    assert parsed("8:4:0.5") == Search(8, 4, 0.5)
    assert [*map(str, (Search(4), Search(8, 4, 0.5)))] == ["4", "8:4:0.5"]
    for wrong in ("x", "4:2", "4:2:x"):
        with pytest.raises(UserError, match="BEAM:GROUPS:DIVERSITY"):
            parsed(wrong)


def test_quality_is_of_each_model_in_each_program():
    texts = {"ours": ["a b c d e"], "ctranslate2": ["a b c d f"]}
    contest = types.SimpleNamespace(texts=texts, megabytes=lambda program: 2.0)
    rates = {("big", "ours"): 1.0, ("big", "ctranslate2"): 8.0}
    rates |= {("small", "ours"): 2.0, ("small", "ctranslate2"): 12.0}
    both = {"big": contest, "small": contest}
    rows = decode.quality(both, rates, ["a b c d e"], "de")
    assert [row["program"] for row in rows] == ["t2t_jax", "CTranslate2"] * 2
    assert [round(row["BLEU"]) for row in rows] == [100, 67, 100, 67]
    assert [row["times the first"] for row in rows] == [1, 1, 2, 1.5]


# ------------------------------------------------------------------- all run once

SMALL = (
    "--config=configs/tiny.py",
    *("--config.model.layers=1", "--config.model.width=16", "--config.model.heads=2"),
    *("--config.model.hidden=16", "--config.data.vocab_size=300"),
)
OF_TEXT = ("--config.data.train={text}/train", "--config.data.dev={text}/dev")
MODEL = ("--workdir={work}", "--test={text}/test", "--lines=3")
ONCE = ("--rounds=1",)
PEAK = (*ONCE, "--peak_sizes=256")
RUNS = {
    "train_step": (*SMALL, *PEAK, "--batch=4x8", "--peers=", "--nomemory"),
    "decode": (
        *(*SMALL[:-1], *PEAK, "--peers=", "--vocab=300"),
        *("--rows=2", "--source=4", "--steps=6"),
    ),
    "decode of text": (*PEAK, "--peers=", *MODEL),
    "end_to_end": (*SMALL, *OF_TEXT, "--parts=2", "--peak_sizes=256", "--peers="),
    "batching": (
        *(*SMALL, *PEAK, "--wmt=200", "--steps=1"),
        *("--config.data.batch_tokens=4096", "--config.data.buckets=2"),
    ),
    "input_pipeline": (*SMALL, *ONCE, "--wmt=2000", "--batches=2"),
    "prepare": (*ONCE, "--pairs=1000", "--vocab_size=300"),
    "startup": (
        *("--config=configs/tiny.py", *ONCE, "--pairs=1000", "--vocab=300"),
        "--tokens=256",
    ),
    "layers": ("--layer=attention", *ONCE, "--lengths=32", "--attention=dense"),
    "layers of lstm": ("--layer=lstm", *PEAK, "--sizes=2x4x8", "--peers="),
    "variants": (*SMALL, *OF_TEXT, *ONCE, "--only=norm=pre", "--steps=2"),
    "checkpointing": ("--preset=tiny", *ONCE),
    "searches": (*MODEL, *ONCE, "--searches=1,2"),
    "searches with diversity": (
        *(*MODEL, *ONCE, "--diversity", "--searches=2,2:2:0.5"),
    ),
    "confidence": (*MODEL, "--measures=log_prob"),
    "reranking": (*MODEL, "--dev={text}/dev", "--samples=2", "--nbest=2"),
    "robustness": (*MODEL[:2], "--damage=capitals"),
    "doctor": ("--input={text}/train", "--dev={text}/dev"),
    "doctor of made-up text": ("--pairs=500", "--words=6"),
    "pages": (*MODEL[:2], *ONCE, "--pieces=6"),
    "parsing": ("--test=grammar:trees/unseen",),
    "language_models": ("--workdir={work}", "--grammatical", "--samples=2"),
    "multi30k": ("--data={data}", "--translations={data}/test_2016_flickr.de"),
}


@pytest.fixture(scope="session")
def benchmark_commands():
    return Commands("benchmarks")


@pytest.mark.slow  # python -m pytest -m slow tests/test_benchmarks.py
@pytest.mark.parametrize("name", RUNS)
def test_it_runs(name, benchmark_commands, trained, text, tmp_path):
    """Each benchmark, small; its results have rows and conditions."""
    from t2t_jax.metrics.plain import lower_tokenized

    line = "Ein Hund läuft."
    (tmp_path / "test_2016_flickr.de").write_text(f"{line}\n")
    (papers,) = lower_tokenized([line], "de")
    (tmp_path / "test_2016_flickr.lc.norm.tok.de").write_text(f"{papers}\n")
    places = {"text": text, "work": trained[0], "data": tmp_path}
    arguments = [word.format(**places) for word in RUNS[name]]
    output = tmp_path / "rows.json"
    module = name.partition(" ")[0]
    done = benchmark_commands(module, *arguments, f"--output={output}")
    assert done.returncode == 0, done.stderr[-3000:]
    written = json.loads(output.read_text())
    assert written["rows"]
    assert written["command"].startswith(f"python -m benchmarks.{module} ")
    assert written["machine"]["processor"] in done.stdout


def test_every_benchmark_runs_in_a_test():
    files = {file.stem for file in (ROOT / "benchmarks").glob("*.py")}
    shared = {"__init__", "measuring", "results", "peers", "made_up", "chart"}
    assert files - shared - {"picture"} == {name.partition(" ")[0] for name in RUNS}


def test_the_script_for_a_card_tells_what_it_wants():
    script = ROOT / "benchmarks" / "on_a_card.sh"  # tests/launch runs shellcheck
    done = subprocess.run(["bash", script, "--x"], capture_output=True, text=True)
    assert done.returncode == 2
    assert "want --wheels=DIR" in done.stderr
