"""The benchmarks: their arithmetic, their rows, and that each of them runs."""

import asyncio
import contextlib
import itertools
import json
import operator
import os
import random
import re
import shutil
import subprocess
import sys
import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import sacrebleu
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from benchmarks import (
    alignment,
    bad_client,
    enlarged,
    forecast,
    made_up,
    measuring,
    packed_attention,
    random_translator,
)
from benchmarks.confidence import auroc, pearson, spearman, worst_lines
from benchmarks.decode import search_flops
from benchmarks.end_to_end import _range, grouped_by_length
from benchmarks.gold_links import GoldLinks
from benchmarks.input_pipeline import Padded
from benchmarks.load import Connection, Load, percentile
from benchmarks.measuring import Row
from benchmarks.profile import profile
from benchmarks.reranking import best_weights
from benchmarks.serve import check_peer, differing, drawn_requests
from benchmarks.train_step import WORKS
from t2t_jax.config import ModelConfig
from t2t_jax.data.corpus import file_corpus
from t2t_jax.io.errors import UserError
from t2t_jax.metrics.plain import lower_tokenized
from t2t_jax.metrics.text_measures import text_measures
from t2t_jax.model.layers import project
from tests.commands import Commands
from tests.decoding.small_translator import translator
from tests.small_run import ROOT


def test_work_is_what_its_parts_cost():
    assert WORKS["T"].flops() == pytest.approx(372e9, rel=0.03)  # counted by hand
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


def test_a_row_of_the_forecast_has_its_ratios_and_mfu():
    cost = {
        **{"parameters": 10, "dtype": "float32", "batch": "", "tokens": 256},
        **{"first": 3.0, "seconds": 0.5, "awaited": 0.625, "flops": 1e9},
        **{"memory": 2**30, "planned_memory": 2.0**31, "planned_seconds": 0.25},
        "planned_by": "somebody",
    }
    row = forecast.row("base", cost, 4e9, 16e9)
    assert (row["MFU"], row["MFU of the data sheet"]) == (0.5, 0.125)
    assert (row["ms"], row["awaited ms"], row["forecast ms"]) == (500, 625, 250)
    assert (row["time / forecast"], row["tokens/s"]) == (2, 512)
    assert (row["GiB"], row["memory / forecast"]) == (1, 0.5)
    unknown = dict.fromkeys(("memory", "planned_memory", "planned_seconds"))
    row = forecast.row("base", cost | unknown, 4e9, None)
    assert {row[name] for name in ("GiB", "time / forecast", "memory / forecast")} == {
        None
    }


def test_a_random_translator_writes_so_many_tokens():
    config = ModelConfig(layers=1, width=16, heads=2, hidden=16)
    one = random_translator.random_translator(config, 40, rows=2, source=5, steps=7)
    lines = random_translator.random_lines(3, 5, 40)
    for translation in one.translate(lines, warn=False):
        assert len(translation.text.split()) == 7
    assert one.score([("5 6", one.translate(["5 6"], warn=False)[0])])


def test_contenders_take_turns_and_medians_count(monkeypatch):
    called = []

    def contender(name, values):
        def one():
            called.append(name)
            return values.pop()

        return one

    monkeypatch.setattr(measuring.gc, "collect", lambda: None)  # of all tests' objects
    two = {"a": contender("a", [9.0, 1.0, 2.0]), "b": contender("b", [5.0, 4.0, 6.0])}
    medians = measuring.alternate(two, 3, pause=0)
    assert medians == {"a": 2.0, "b": 5.0}
    assert called == ["a", "b", "b", "a", "a", "b"]
    (row,) = measuring.rows_of("T", "tokens/s", {"ours": 6.0, "b": medians["b"]})
    assert (row.peer_name, row.ratio) == ("b", 1.2)
    assert Row("import", "s", 2.0, 3.0, more_is_better=False).ratio == 1.5


def test_a_profile_has_the_products_of_the_program_and_no_more_than_its_time():
    def loss(table_vd, x_btd):
        def layer(x_btd, _):
            return jnp.tanh(project(x_btd, table_vd, None)), None

        return jax.lax.scan(layer, x_btd, None, 3)[0].sum()

    gradient, arrays = (
        jax.jit(jax.grad(loss)),
        (jnp.ones((32, 32)), jnp.ones((2, 40, 32))),
    )
    jax.block_until_ready(gradient(*arrays))
    began = time.perf_counter()
    rows = profile(lambda: gradient(*arrays), 5)
    assert sum(row["ms"] for row in rows) <= 1e3 * (time.perf_counter() - began) / 5
    products = [row for row in rows if row["operation"].startswith("product")]
    assert {row["function"] for row in products} == {"project"}
    flops = sum(row["GFLOP/s"] * row["ms"] * 1e6 for row in products)
    assert flops == pytest.approx(
        3 * 3 * (2 * 80 * 32 * 32)
    )  # forward and both factors
    assert sum(row["share"] for row in rows) == pytest.approx(1)


def test_attention_by_sentences_that_is_wrong_is_refused():
    check = packed_attention.check
    check("encoder", [np.ones(3)], [np.full(3, 1.04)], 0.05)
    for wrong in (1.1, np.nan):
        with pytest.raises(UserError, match="encoder: attention by sentences differs"):
            check("encoder", [np.full(3, wrong)], [np.ones(3)], 0.05)


def test_measurements_are_not_overwritten(tmp_path):
    place = tmp_path / "rows.json"
    measuring.publish([Row("T", "tokens/s", 3.0)], str(place))
    before = place.read_bytes()
    assert json.loads(before)["rows"][0]["ours"] == 3.0
    with pytest.raises(UserError, match="is there already"):
        measuring.publish([Row("T", "tokens/s", 4.0)], str(place))
    assert place.read_bytes() == before


def test_the_peers_batches_hold_every_pair_once_within_the_budget():
    random = np.random.default_rng(1)
    source, target = random.integers(1, 40, (2, 500))
    batches = grouped_by_length(source, target, 200, seed=3)
    assert sorted(np.concatenate(batches)) == [*range(500)]
    for batch in batches:
        assert len(batch) * max(source[batch].max(), target[batch].max()) <= 200
    computed = sum(len(b) * (source[b].max() + target[b].max()) for b in batches)
    assert (source.sum() + target.sum()) / computed > 0.7  # unsorted: about 0.5
    assert [_range(10, number, 3) for number in range(3)] == [(0, 3), (3, 6), (6, 10)]


def test_the_padded_peer_has_every_pair_once_and_fits_the_budget():
    pairs = made_up.random_pairs(made_up.lengths(300), 1000)
    padded = Padded(pairs, batch_tokens=512)
    plan = padded.plan()
    found = np.sort(np.concatenate([pair_p for _, pair_p in plan]))
    np.testing.assert_array_equal(found, np.arange(300))
    padded.plan = lambda: plan
    real = computed = 0
    for batch, (_, pair_p) in zip(padded.feed(), plan, strict=False):
        for side in ("source", "target"):
            ragged = getattr(pairs, side)
            for row, pair in zip(batch[side], pair_p, strict=False):
                np.testing.assert_array_equal(row[row > 0], ragged[pair])
            assert batch[side].size <= 512
            real += np.count_nonzero(batch[side])
            computed += batch[side].size
    assert real / computed == pytest.approx(padded.efficiency(plan))


@settings(max_examples=40)
@given(st.lists(st.integers(0, 4), min_size=3, max_size=12), st.data())
def test_statistics_of_confidence_are_those_of_their_definitions(values, data):
    x = np.array(values, float)
    y = np.array(data.draw(st.permutations(range(len(values)))), float)
    if np.ptp(x):
        assert spearman(x, y) == pytest.approx(stats.spearmanr(x, y).statistic)
        assert pearson(x, y) == pytest.approx(stats.pearsonr(x, y).statistic)
    bad = worst_lines(y, 0.3)
    wins = [(a < b) + (a == b) / 2 for a in x[bad] for b in x[~bad]]
    assert auroc(x, bad) == pytest.approx(np.mean(wins))


def test_weights_of_reranking_are_those_of_the_highest_bleu_on_the_whole_set():
    words = ["der", "Hund", "sieht", "die", "Katze", "nicht"]
    rng = np.random.default_rng(0)
    lines = [[" ".join(rng.choice(words, 7)) for _ in range(4)] for _ in range(5)]
    references = [" ".join(rng.choice(words, 7)) for _ in lines]
    terms = [rng.normal(size=(4, 4)) for _ in lines]
    sums = [
        text_measures("de")["bleu"].statistics(texts, [("", reference)] * 4)
        for texts, reference in zip(lines, references, strict=True)
    ]
    grid = [*itertools.product((0.0, 0.5, 2.0), (0.0, 1.0), (-0.3, 0.0))]

    def bleu(weights):
        chosen = [
            texts[int(np.argmax(terms_nk @ [1.0, *weights]))]
            for texts, terms_nk in zip(lines, terms, strict=True)
        ]
        return sacrebleu.corpus_bleu(chosen, [references], tokenize="none").score

    weights, found = best_weights(terms, sums, grid)
    assert bleu(weights) == pytest.approx(found)
    assert found == pytest.approx(max(map(bleu, grid)))


def test_gold_links_are_those_of_lines_of_one_text(tmp_path):
    sums = {}
    for language, lines in (("en", ["a", "b c"]), ("de", ["x", "y z"])):
        (tmp_path / f"t.{language}").write_text("\n".join(lines))
        sums[language] = alignment.hashed(lines)
    stored = {"set": "t", "source": "en", "target": "de", "lines": {"2": "0-1 1p0"}}
    path = tmp_path / "gold.json"
    path.write_text(json.dumps(stored | {"sha256": sums}))
    corpus = file_corpus(tmp_path / "t", "de", "en")
    gold = [GoldLinks([(1, 0)], [(1, 0), (0, 1)])]
    assert alignment.with_gold(corpus, path) == ([("y z", "b c")], gold)
    (tmp_path / "t.en").write_text("a\nb d\n")
    for name, wrong in ((path, "another text"), ("", "has no gold links")):
        with pytest.raises(UserError, match=wrong):
            alignment.with_gold(corpus, name)


async def answering(job, seen):
    """Runs a job of clients against a server that answers with a request's text."""

    async def serve(reader, writer):
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = int(re.search(rb"Content-Length: (\d+)", head)[1])
                text = json.loads(await reader.readexactly(length))["text"]
                seen.append(text)
                await asyncio.sleep(job.get("pause", 5) if text == "slow" else 0)
                status = "500 no" if text == "bad" else "200 OK"
                body = text.encode()
                writer.write(
                    f"HTTP/1.1 {status}\r\ncontent-length: {len(body)}\r\n\r\n".encode()
                    + body
                )
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    done = await Load({"port": port, "path": "/", **job}).run()
    server.close()
    return done


def test_clients_send_each_request_and_keep_the_answers_in_order():
    texts = ["a", "bad", "ü", "slow"]
    requests = [{"body": {"text": text}, "lines": 2} for text in texts]
    requests[3]["leave"] = 0.01
    seen = []
    job = {"requests": requests, "clients": 3, "count": 6, "keep": True}
    done = asyncio.run(answering(job, seen))
    assert sorted(seen) == sorted([*texts, "a", "bad"])
    right = [[200, "a"], [500, "bad"], [200, "ü"], [0, ""], [200, "a"], [500, "bad"]]
    assert [*map(list, done["answers"])] == right
    assert done["statuses"] == {"200": 3, "500": 2, "0": 1}
    assert done["lines_per_second"] * done["seconds"] == pytest.approx(3 * 2)


def test_a_closed_loop_has_an_answer_for_each_client_and_counts_what_it_covers():
    seen = []
    requests = [{"body": {"text": "slow"}, "lines": 30, "leave": None}]
    job = {"requests": requests, "clients": 2, "seconds": 0.1, "warm": 0.3}
    done = asyncio.run(answering(job | {"pause": 0.4}, seen))
    # Each client sends in the warm-up, and again while the clock runs.
    assert done["statuses"]["200"] >= 2
    assert done["seconds"] > 0.1
    # Little's law: what the clients wait for, of what the clock covers in part, too.
    latency = done["p50_ms"] / 1e3
    assert done["lines_per_second"] * latency == pytest.approx(2 * 30, rel=0.15)


def test_an_open_loop_can_be_regular():
    job = {"requests": [{"body": {"text": "a"}, "lines": 1}], "keep": True}
    done = asyncio.run(
        answering(job | {"rate": 20, "regular": True, "seconds": 0.52}, [])
    )
    assert done["answers"] == [(200, "a")] * 10


def test_a_connection_that_the_server_has_closed_is_opened_again():
    async def posted() -> list[tuple]:
        async def serve(reader, writer):
            await reader.readuntil(b"\r\n\r\n{}")
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\na")
            writer.close()

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        connection, answers = Connection(server.sockets[0].getsockname()[1]), []
        for _ in range(2):
            answers.append(await connection.post("/", b"{}"))
            await asyncio.sleep(0.1)  # until the end of the connection has come
            connection.close_if_ended()
        server.close()
        return answers

    assert asyncio.run(posted()) == [(200, b"a")] * 2


def test_bad_requests_are_at_the_limits_and_within():
    """None is refused for its bytes alone, which would test nothing else."""
    drawn = bad_client.requests_by_kind(["A dog."] * 9, "en", "de", random.Random(0))
    bodies = [each.body for requests in drawn.values() for each in requests]
    assert max(map(len, bodies)) == bad_client.BYTES
    changed = [bad_client.mutated(body, random.Random(0)) for body in bodies]
    assert max(map(len, changed)) <= bad_client.BYTES
    assert sum(map(operator.ne, bodies, changed)) > len(bodies) / 2


def test_an_open_loop_sends_whoever_waits():
    seen = []
    requests = [{"body": {"text": "slow"}, "lines": 1, "leave": 0.4}]
    job = {"requests": requests, "rate": 200, "seconds": 0.2, "warm": 0.1}
    done = asyncio.run(answering(job, seen))
    assert len(seen) > 20  # of 60 expected; in a closed loop it would be one
    assert done["lines_per_second"] == 0
    assert 0 < done["statuses"]["0"] < len(seen)  # without those of the warm-up


@pytest.mark.parametrize(
    "name", ["ctranslat", "ctranslate2:int4:1x1", "libretranslate:2"]
)
def test_a_peer_that_there_is_not_is_refused(name):
    for right in ("ctranslate2", "libretranslate:best", "ctranslate2-queue:int8:1x2"):
        assert check_peer(right) == right
    with pytest.raises(UserError, match="did you mean|want libre|want ctranslate2,"):
        check_peer(name)


def test_an_enlarged_model_computes_what_it_did_before(monkeypatch):
    small = translator(norm="pre", positions="rotary")
    model = small.config.model
    monkeypatch.setattr(enlarged, "WIDTH", 4 * model.width)
    monkeypatch.setattr(enlarged, "HIDDEN", 2 * model.hidden)
    monkeypatch.setattr(enlarged, "LAYERS", model.layers + 1)
    made = enlarged.enlarged(small)
    assert made.model.count() > 8 * small.model.count()
    pairs = [("a dog runs", "ein hund"), ("two", "zwei katzen schlafen")]
    before, after = ([s.log_prob for s in each.score(pairs)] for each in (small, made))
    np.testing.assert_allclose(after, before, rtol=1e-4)
    monkeypatch.setattr(enlarged, "WIDTH", model.width + 2)
    with pytest.raises(UserError, match="cannot grow|heads"):
        enlarged.enlarged(small)


@given(st.lists(st.floats(0, 9), min_size=1), st.sampled_from([0.5, 0.95, 0.99]))
def test_a_percentile_is_the_smallest_value_that_enough_do_not_exceed(values, share):
    value = percentile(values, share)
    assert sum(each <= value for each in values) >= share * len(values)
    assert sum(each < value for each in values) < share * len(values)


def test_an_answer_that_is_not_that_of_the_line_alone_is_counted():
    def alone(line, options):
        return (
            "refused" if line == "long" else [{"text": line * options.get("nbest", 1)}]
        )

    def row(line, text):
        return {"source": line, "hypotheses": [{"text": text}]}

    requests = [
        {"body": {"lines": ["a", "b"], "nbest": 2}},
        {"body": {"lines": ["a", "long"]}},
        {"body": {"lines": ["a", "long"]}},
        *({"body": {"lines": ["a"]}} for _ in range(3)),
    ]
    answers = [
        (200, {"translations": [row("a", "aa"), row("b", "b")]}),
        (200, {"translations": [row("a", "a"), {"source": "long", "error": "39"}]}),
        (200, {"translations": [{"source": "a", "error": "x"}, row("long", "l")]}),
        *((status, {}) for status in (0, 429, 500)),
    ]
    counts = differing(requests, [(s, json.dumps(b)) for s, b in answers], alone)
    right = {"lines": 6, "different": 3, "left": 1, "refused": 1, "failed": 1}
    assert counts == right


def test_drawn_requests_have_every_option_and_some_leave():
    options = [{}, {"nbest": 2}]
    drawn = drawn_requests(["a", "b", "c"], options, 200)
    assert drawn == drawn_requests(["a", "b", "c"], options, 200)
    assert {len(each["body"]["lines"]) for each in drawn} >= {1, 2, 3}
    assert {each["body"].get("nbest") for each in drawn} == {None, 2}
    assert 5 < sum(each["leave"] is not None for each in drawn) < 50


# ------------------------------------------------------------------- all run once

SMALL = (
    "--config=configs/tiny.py",
    *("--config.model.layers=1", "--config.model.width=16", "--config.model.heads=2"),
    *("--config.model.hidden=16", "--config.data.vocab_size=340"),
)
OF_TEXT = ("--config.data.train={text}/train", "--config.data.dev={text}/dev")
MODEL = ("--workdir={work}", "--test={text}/test", "--lines=3")
ONCE = ("--rounds=1",)
PEAK = (*ONCE, "--peak_sizes=256")
RUNS = {
    "train_step": (*SMALL, *PEAK, "--batch=4x8", "--peers=", "--nomemory"),
    "forecast": (
        *(*SMALL, "--peak_sizes=256", "--steps=1", "--config.data.row_length=16"),
        "--config.data.batch_tokens=128",
    ),
    "train_step by operation": (*SMALL, "--batch=4x8", "--profile"),
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
        "--tokens=2048",
    ),
    "languages": ("--served=en,de", "--test={text}/train"),
    "layers": ("--layer=attention", *ONCE, "--lengths=32", "--attention=dense"),
    "layers of kernels": ("--layer=kernel", *ONCE, "--lengths=32", "--tokens=64"),
    "layers of lstm": ("--layer=lstm", *PEAK, "--sizes=2x4x8", "--peers="),
    "variants": (*SMALL, *OF_TEXT, *ONCE, "--only=norm=pre", "--steps=2"),
    "gradient_sums": (*SMALL, *OF_TEXT, "--devices=2", "--steps=1"),
    "packed_attention": ("--rows=2", "--length=32", "--heads=2", "--width=8"),
    "carried": ("--write={data}/programs", "--slice=cpu:1", "--presets=tiny"),
    "checkpointing": ("--preset=tiny", *ONCE),
    "searches": (*MODEL, *ONCE, "--searches=1,2"),
    "searches with diversity": (
        *(*MODEL, *ONCE, "--diversity", "--searches=2,2:2:0.5"),
    ),
    "alignment": (*MODEL[:1], "--test=grammar:test", "--lines=3"),
    "markup": (*MODEL[:1], "--test=grammar:test", "--lines=3"),
    "preserving": (*MODEL[:1], "--test={data}/placed", "--part=placeholders"),
    "preserving of terms": (
        *(MODEL[0], "--test={text}/train", *MODEL[2:], *ONCE, "--plain={work}"),
        "--part=terms",
    ),
    "preserving of speed": (
        *(MODEL[0], "--test={text}/train", *MODEL[2:], *ONCE, "--part=speed"),
    ),
    "confidence": (*MODEL, "--measures=log_prob"),
    "reranking": (*MODEL, "--dev={text}/dev", "--samples=2", "--nbest=2"),
    "robustness": (*MODEL[:2], "--damage=capitals"),
    "doctor": ("--input={text}/train", "--dev={text}/dev"),
    "doctor of made-up text": ("--pairs=500", "--words=6"),
    "pages": (*MODEL[:2], *ONCE, "--pieces=6"),
    "markup_pages": (*MODEL[:1], "--pages={data}"),
    "parsing": ("--test=grammar:trees/unseen",),
    "language_models": ("--workdir={work}", "--grammatical", "--samples=2"),
    "multi30k": ("--data={data}", "--translations={data}/test_2016_flickr.de"),
    "serve": (
        *("--workdir={work}", "--lines={text}/test.en", *ONCE, "--peers=", "--most=8"),
        *("--longest=32", "--beam=2", "--seconds=0.5", "--warm=0.1", "--clients=2"),
        *("--array=4", "--bits=20", "--soak=20"),
    ),
    "serve_faults": (
        *("--workdir={work}", "--lines={text}/test.en", "--beam=2"),
        "--faults=truncated bodies,large bodies,SIGTERM",
    ),
    "serve_bad_client": (
        *("--workdir={work}", "--lines={text}/test.en", "--beam=2", "--longest=32"),
        *("--serve=--phrases=0", "--minutes=0.1", "--kinds=500 lines,mutations"),
    ),
}


@pytest.fixture(scope="session")
def benchmark_commands():
    return Commands("benchmarks")


@pytest.mark.slow  # python -m pytest -m slow tests/test_benchmarks.py
@pytest.mark.parametrize("name", RUNS)
def test_it_runs(name, benchmark_commands, trained, text, tmp_path):
    """Each benchmark, small; its results have rows and conditions."""
    line = "Ein Hund läuft."
    (tmp_path / "test_2016_flickr.de").write_text(f"{line}\n")
    (tmp_path / "page.html").write_text("<p>A <b>dog</b><script>a</script>")
    (tmp_path / "placed.en").write_text("Open %s.\n")
    (tmp_path / "placed.de").write_text("Öffne %s.\n")
    (papers,) = lower_tokenized([line], "de")
    (tmp_path / "test_2016_flickr.lc.norm.tok.de").write_text(f"{papers}\n")
    work = shutil.copytree(trained[0], tmp_path / "work")  # some store scores in it
    places = {"text": text, "work": work, "data": tmp_path}
    arguments = [word.format(**places) for word in RUNS[name]]
    output = tmp_path / "rows.json"
    module = name.partition(" ")[0]
    done = benchmark_commands(module, *arguments, f"--output={output}")
    assert done.returncode == 0, done.stderr[-3000:]
    written = json.loads(output.read_text())
    assert written["rows"]
    assert written["command"].startswith(f"python -m benchmarks.{module} ")
    assert written["machine"]["processor"] in done.stdout


@pytest.mark.slow
def test_two_devices_take_twice_the_rows(benchmark_commands, tmp_path):
    output = tmp_path / "rows.json"
    work = *SMALL, *PEAK, "--batch=4x8", "--peers=", "--nomemory", "--devices=2"
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.train_step", *work, f"--output={output}"],
        cwd=ROOT,
        env=os.environ | {"JAX_NUM_CPU_DEVICES": "2"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert "a step of 64 target tokens" in done.stdout
    (row,) = json.loads(output.read_text())["rows"]
    assert row["work"].endswith("4x8, 2 devices")
    done = benchmark_commands("train_step", *work[:-1], "--devices=99")
    assert "--devices=99: want at most the " in done.stderr


@pytest.mark.slow
def test_a_program_that_was_compiled_before_is_run(benchmark_commands, tmp_path):
    written = "--slice=cpu:1", "--presets=tiny", f"--write={tmp_path}/programs"
    done = benchmark_commands("carried", *written)
    assert done.returncode == 0, done.stderr[-3000:]
    program, output = tmp_path / "programs/1_tiny_dense", tmp_path / "read.json"
    read = f"--read={program}", "--steps=1", f"--output={output}"
    done = benchmark_commands("carried", *read)
    assert done.returncode == 0, done.stderr[-3000:]
    (row,) = json.loads(output.read_text())["rows"]
    assert 5 < row["loss"] < 10  # of random parameters: log 3,000 is 8
    done = benchmark_commands("carried", f"--read={tmp_path}/none")
    assert "No such file or directory; want a file of --write" in done.stderr


def test_every_benchmark_runs_in_a_test():
    files = {file.stem for file in (ROOT / "benchmarks").glob("*.py")}
    shared = {
        *("__init__", "measuring", "results"),
        *("peers", "made_up", "chart", "profile", "load", "serve_peers", "enlarged"),
        *("gold_links", "sentence_attention", "bad_client"),
        *("trainer", "random_translator"),
    }
    assert files - shared - {"picture"} == {name.partition(" ")[0] for name in RUNS}
