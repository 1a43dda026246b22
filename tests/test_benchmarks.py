"""The benchmarks: their arithmetic, their rows, and that each of them runs."""

import asyncio
import contextlib
import itertools
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import sacrebleu

from benchmarks import (
    alignment,
    made_up,
    measuring,
    random_translator,
)
from benchmarks.decode import search_flops
from benchmarks.end_to_end import _range, grouped_by_length
from benchmarks.gold_links import GoldLinks
from benchmarks.input_pipeline import Padded
from benchmarks.load import Connection, Load
from benchmarks.measuring import Row
from benchmarks.profile import profile
from benchmarks.reranking import best_weights
from benchmarks.serve import differing
from t2t_jax.config import ModelConfig
from t2t_jax.data.corpus import file_corpus
from t2t_jax.io.errors import UserError
from t2t_jax.metrics.plain import lower_tokenized
from t2t_jax.metrics.text_measures import text_measures
from t2t_jax.model.layers import project
from tests.commands import Commands
from tests.small_run import ROOT


def test_work_is_what_its_parts_cost():
    d, f, v = 16, 32, 100
    model = ModelConfig(layers=1, width=d, heads=2, hidden=f)
    source, steps, beam = 3, 2, 5
    by_hand = source * (4 * d * d + 2 * d * f) + 2 * d * source * source
    by_hand += source * 2 * d * d
    for past in range(1, steps + 1):
        attention = 6 * d * d + 2 * d * past + 2 * d * source
        by_hand += beam * (attention + 2 * d * f + d * v)
    assert search_flops(model, v, beam, [(source, steps)]) == 2 * by_hand


@pytest.mark.slow
def test_a_random_translator_writes_so_many_tokens():
    config = ModelConfig(layers=1, width=16, heads=2, hidden=16)
    small = random_translator.random_translator(config, 40, rows=2, source=5, steps=7)
    lines = random_translator.random_lines(3, 5, 40)
    for translation in small.translate(lines, warn=False):
        assert len(translation.text.split()) == 7


def test_contenders_take_turns_and_medians_count(monkeypatch):
    called = []

    def contender(name, values):
        def measured():
            called.append(name)
            return values.pop()

        return measured

    monkeypatch.setattr(measuring.gc, "collect", lambda: None)  # of all tests' objects
    values = {"a": [9.0, 1.0, 2.0], "b": [5.0, 4.0, 6.0]}
    contenders = {name: contender(name, values[name]) for name in values}
    medians = measuring.alternate(contenders, 3, pause=0)
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


def test_measurements_are_not_overwritten(tmp_path):
    place = tmp_path / "rows.json"
    measuring.publish([Row("T", "tokens/s", 3.0)], str(place))
    content = place.read_bytes()
    assert json.loads(content)["rows"][0]["ours"] == 3.0
    with pytest.raises(UserError, match="is there already"):
        measuring.publish([Row("T", "tokens/s", 4.0)], str(place))
    assert place.read_bytes() == content


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
    planned = np.sort(np.concatenate([pair_p for _, pair_p in plan]))
    np.testing.assert_array_equal(planned, np.arange(300))
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
        best = [
            texts[int(np.argmax(terms_nk @ [1.0, *weights]))]
            for texts, terms_nk in zip(lines, terms, strict=True)
        ]
        return sacrebleu.corpus_bleu(best, [references], tokenize="none").score

    weights, highest = best_weights(terms, sums, grid)
    assert bleu(weights) == pytest.approx(highest)
    assert highest == pytest.approx(max(map(bleu, grid)))


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


async def answering(job, received):
    """Runs a job of clients against a server that answers with a request's text."""

    async def serve(reader, writer):
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = int(re.search(rb"Content-Length: (\d+)", head)[1])
                text = json.loads(await reader.readexactly(length))["text"]
                received.append(text)
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
    result = await Load({"port": port, "path": "/", **job}).run()
    server.close()
    return result


def test_clients_send_each_request_and_keep_the_answers_in_order():
    texts = ["a", "bad", "ü", "slow"]
    requests = [{"body": {"text": text}, "lines": 2} for text in texts]
    requests[3]["leave"] = 0.01
    sent = []
    job = {"requests": requests, "clients": 3, "count": 6, "keep": True}
    result = asyncio.run(answering(job, sent))
    assert sorted(sent) == sorted([*texts, "a", "bad"])
    right = [[200, "a"], [500, "bad"], [200, "ü"], [0, ""], [200, "a"], [500, "bad"]]
    assert [*map(list, result["answers"])] == right
    assert result["statuses"] == {"200": 3, "500": 2, "0": 1}
    assert result["lines_per_second"] * result["seconds"] == pytest.approx(3 * 2)


def test_loops_count_what_the_clock_covers():
    requests = [{"body": {"text": "slow"}, "lines": 30, "leave": None}]
    job = {"requests": requests, "clients": 2, "seconds": 0.1, "warm": 0.3}
    result = asyncio.run(answering(job | {"pause": 0.4}, []))
    # Each client sends in the warm-up, and again while the clock runs.
    assert result["statuses"]["200"] >= 2
    # Little's law: what the clients wait for, of what the clock covers in part, too.
    latency = result["p50_ms"] / 1e3
    assert result["lines_per_second"] * latency == pytest.approx(2 * 30, rel=0.15)
    requests, sent = [requests[0] | {"leave": 0.4}], []
    job = {"requests": requests, "rate": 200, "seconds": 0.2, "warm": 0.1}
    result = asyncio.run(answering(job, sent))  # an open loop sends whoever waits
    assert len(sent) > 20  # of 60 expected; in a closed loop it would be one
    assert 0 < result["statuses"]["0"] < len(sent)  # without those of the warm-up


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


def test_an_answer_that_is_not_that_of_the_line_alone_is_counted():
    def alone(line, options):
        return "refused" if line == "long" else [{"text": line * options.get("n", 1)}]

    def row(line, text):
        return {"source": line, "hypotheses": [{"text": text}]}

    refused = {"source": "long", "error": "39"}, {"source": "a", "error": "x"}
    cases = [
        ({"lines": ["a", "b"], "n": 2}, [row("a", "aa"), row("b", "b")]),
        ({"lines": ["a", "long"]}, [row("a", "a"), refused[0]]),
        ({"lines": ["a", "long"]}, [refused[1], row("long", "l")]),
    ]
    requests = [{"body": body} for body, _ in cases] + [{"body": {"lines": ["a"]}}] * 3
    answers = [(200, json.dumps({"translations": rows})) for _, rows in cases]
    answers += [(status, "{}") for status in (0, 429, 500)]
    right = {"lines": 6, "different": 3, "left": 1, "refused": 1, "failed": 1}
    assert differing(requests, answers, alone) == right


# ------------------------------------------------------------------- all run once

PARTS = {
    "tiny": "--config=configs/tiny.py --config.model.layers=1 --config.model.width=16 "
    "--config.model.heads=2 --config.model.hidden=16",
    "small": "<tiny> --config.data.vocab_size=340",
    "on": "--config.data.train={text}/train --config.data.dev={text}/dev",
    "peak": "--rounds=1 --peak_sizes=256",
    "model": "--workdir={work} --test={text}/test --lines=3",
    "terms": "--workdir={work} --test={text}/train --lines=3 --rounds=1",
    "lines": "--workdir={work} --lines={text}/test.en --beam=2",
}
# The benchmark, perhaps a variant of it, and flags, of which PARTS names some.
RUNS = """
train_step: <small> <peak> --batch=4x8 --peers= --nomemory
train_step by operation: <small> --batch=4x8 --profile
forecast: <small> --peak_sizes=256 --steps=1 --config.data.row_length=16
  --config.data.batch_tokens=128
decode: <tiny> <peak> --peers= --vocab=300 --rows=2 --source=4 --steps=6
decode of text: <peak> --peers= <model>
end_to_end: <small> <on> --parts=2 --peak_sizes=256 --peers=
batching: <small> <peak> --wmt=200 --steps=1 --config.data.batch_tokens=4096
  --config.data.buckets=2
input_pipeline: <small> --rounds=1 --wmt=2000 --batches=2
prepare: --rounds=1 --pairs=1000 --vocab_size=300
startup: --config=configs/tiny.py --rounds=1 --pairs=1000 --vocab=300 --tokens=2048
languages: --served=en,de --test={text}/train
layers: --layer=attention --rounds=1 --lengths=32 --attention=dense
layers of kernels: --layer=kernel --rounds=1 --lengths=32 --tokens=64
layers of lstm: --layer=lstm <peak> --sizes=2x4x8 --peers=
variants: <small> <on> --rounds=1 --only=norm=pre --steps=2
gradient_sums: <small> <on> --devices=2 --steps=1
packed_attention: --rows=2 --length=32 --heads=2 --width=8
carried: --write={data}/programs --slice=cpu:1 --presets=tiny
checkpointing: --preset=tiny --rounds=1
searches: <model> --rounds=1 --searches=1,2
searches with diversity: <model> --rounds=1 --diversity --searches=2,2:2:0.5
alignment: --workdir={work} --test=grammar:test --lines=3
markup: --workdir={work} --test=grammar:test --lines=3
preserving: --workdir={work} --test={data}/placed --part=placeholders
preserving of terms: <terms> --plain={work} --part=terms
preserving of speed: <terms> --part=speed
confidence: <model> --measures=log_prob
reranking: <model> --dev={text}/dev --samples=2 --nbest=2
robustness: --workdir={work} --test={text}/test --damage=capitals
doctor: --input={text}/train --dev={text}/dev
doctor of made-up text: --pairs=500 --words=6
pages: --workdir={work} --test={text}/test --rounds=1 --pieces=6
markup_pages: --workdir={work} --pages={data}
parsing: --test=grammar:trees/unseen
language_models: --workdir={work} --grammatical --samples=2
multi30k: --data={data} --translations={data}/test_2016_flickr.de
serve: <lines> --rounds=1 --peers= --most=8 --longest=32 --seconds=0.5 --warm=0.1
  --clients=2 --array=4 --bits=20 --soak=20
serve_faults: <lines> --faults='truncated bodies,large bodies,SIGTERM'
serve_bad_client: <lines> --longest=32 --serve=--phrases=0 --minutes=0.1
  --kinds='500 lines,mutations'
"""
RUNS = RUNS.strip().replace("\n  ", " ")
RUNS = dict(line.split(": ", 1) for line in RUNS.splitlines())


def arguments(flags, **places):
    """The words of flags, with the parts that they name, and some places."""
    while "<" in flags:
        flags = re.sub("<(.*?)>", lambda match: PARTS[match[1]], flags)
    return shlex.split(flags.format(**places))


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
    words = arguments(RUNS[name], text=text, work=work, data=tmp_path)
    output = tmp_path / "rows.json"
    module = name.partition(" ")[0]
    process = benchmark_commands(module, *words, f"--output={output}")
    assert process.returncode == 0, process.stderr[-3000:]
    written = json.loads(output.read_text())
    assert written["rows"]
    assert written["command"].startswith(f"python -m benchmarks.{module} ")
    assert written["machine"]["processor"] in process.stdout


@pytest.mark.slow
def test_two_devices_take_twice_the_rows(tmp_path):
    flags = arguments(f"{RUNS['train_step']} --devices=2 --output={tmp_path}/rows.json")
    out = subprocess.check_output(
        [sys.executable, "-m", "benchmarks.train_step", *flags],
        cwd=ROOT,
        env=os.environ | {"JAX_NUM_CPU_DEVICES": "2"},
        text=True,
    )
    assert "a step of 64 target tokens" in out
    (row,) = json.loads((tmp_path / "rows.json").read_text())["rows"]
    assert row["work"].endswith("4x8, 2 devices")


@pytest.mark.slow
def test_a_program_that_was_compiled_before_is_run(benchmark_commands, tmp_path):
    program, output = tmp_path / "programs/1_tiny_dense", tmp_path / "read.json"
    write = arguments(RUNS["carried"], data=tmp_path)
    for flags in (write, (f"--read={program}", "--steps=1", f"--output={output}")):
        process = benchmark_commands("carried", *flags)
        assert process.returncode == 0, process.stderr[-3000:]
    (row,) = json.loads(output.read_text())["rows"]
    assert 5 < row["loss"] < 10  # of random parameters: log 3,000 is 8


def test_every_benchmark_runs_in_a_test():
    files = {file.stem for file in (ROOT / "benchmarks").glob("*.py")}
    shared = """__init__ measuring results peers made_up chart profile load serve_peers
        enlarged gold_links sentence_attention bad_client trainer random_translator
        picture"""
    assert files - {*shared.split()} == {name.partition(" ")[0] for name in RUNS}
