"""Answers of the server's engine are those of a line alone, whatever else it does."""

import asyncio
import dataclasses
import itertools
import random
import time

import hypothesis
import jax
import numpy as np
import pytest
from hypothesis import strategies
from jax.experimental.compilation_cache import compilation_cache
from starlette.testclient import TestClient

from t2t_jax.config import from_config_dict
from t2t_jax.data.tokenizers.vocabulary import Vocabulary
from t2t_jax.decoding.batch_decoding import STRIDE, Bucket, count_lines
from t2t_jax.decoding.batches import Group
from t2t_jax.decoding.constraints import Phrases
from t2t_jax.decoding.search_options import SamplingOptions, SearchRequest
from t2t_jax.decoding.translator import Translator
from t2t_jax.extensions.decoding.adapted import adapted
from t2t_jax.io.errors import UserError
from t2t_jax.tools.serve.app import application
from t2t_jax.tools.serve.engine import (
    CompilingError,
    Engine,
    LateError,
    Limits,
    OverloadedError,
    StoppingError,
    _Lane,
)
from t2t_jax.tools.serve.fair_queue import FairQueue
from t2t_jax.tools.serve.settings import Settings
from tests.decoding.small_translator import translator
from tests.serve.fake_engine import FakeGuesser

WORDS = [
    *("the", "cat", "sees", "a", "dog", "sleeps"),
    *("die", "Katze", "sieht", "den", "Hund", "ein"),
]
BEAM = 3
LIMITS = Limits(
    beams=(BEAM,),
    longest=32,
    phrases=3,
    states=64,
    samples=2,
    sampling=SamplingOptions(temperature=0.7),
)


@pytest.fixture(scope="module")
def engine():
    engine = Engine({"en-de": translator(1)}, LIMITS)
    progress: list[str] = []
    engine.warm_up(progress.append)
    count = len(engine.compiling) + 1
    assert progress[0] == f"compiled 0 of {count} programs"
    assert progress[1].startswith(f"compiled 1 of {count} programs (")
    engine.compile_rest()
    assert progress[-1].startswith(f"compiled {count} of {count} programs (")
    assert engine.compiling == []
    yield engine
    asyncio.run(engine.close())
    assert not engine.queued()
    assert not +engine._tables["en-de"]._users, "states that nobody gave back"


def ask(engine, lines, requests=None, client="a", seconds=60.0):
    requests = requests or [SearchRequest()] * len(lines)
    deadline = time.monotonic() + seconds
    return engine.translate("en-de", lines, requests, client=client, deadline=deadline)


def alone(line, request, model=None):
    model, request = model or translator(1), dataclasses.replace(request, warn=False)
    if count := request.samples:
        request = dataclasses.replace(request, samples=LIMITS.samples)
        (samples,) = model.draw([line], request, LIMITS.sampling)
        return dataclasses.replace(samples, hypotheses=samples.hypotheses[:count])
    return model.choice.translate(model, [line], request)[0]


def drawn(rng):
    """A line, and what may be asked of its translation."""
    line = " ".join(rng.choices(WORDS, k=rng.randrange(9)))
    kind, phrases = rng.randrange(8), [" ".join(rng.sample(WORDS, 2)) for _ in range(2)]
    return line, [
        SearchRequest(),
        SearchRequest(nbest=BEAM),
        SearchRequest(nbest=2),
        SearchRequest(prefix=rng.choice(WORDS), nbest=rng.choice((1, BEAM))),
        SearchRequest(must=tuple(phrases)),
        SearchRequest(must_not=tuple(phrases), nbest=2, prefix="the"),
        SearchRequest(samples=rng.choice((1, 2)), seed=rng.randrange(3)),
        SearchRequest(must_not=tuple(phrases), samples=2, seed=7),
    ][kind]


def test_the_texts_of_a_line_differ_as_alone(engine, monkeypatch):
    decode = Vocabulary.decode
    short = lambda *model: [text[:1] for text in decode(*model)]  # noqa: E731
    monkeypatch.setattr(Vocabulary, "decode", short)  # many hypotheses, few texts
    results = translator(1).search(WORDS, SearchRequest(nbest=BEAM, warn=False))
    equal = set()
    for options in (
        SearchRequest(nbest=2),
        SearchRequest(nbest=BEAM),
        SearchRequest(samples=2),
    ):
        answers = asyncio.run(ask(engine, WORDS, [options] * len(WORDS)))
        assert answers == [alone(word, options) for word in WORDS]
        for answer, beam_result in zip(answers, results, strict=True):
            texts = {h.text for h in answer.hypotheses}
            equal.add((options.samples, len(texts) < len(answer.hypotheses)))
            if not options.samples:
                best = {h.text: h for h in beam_result.hypotheses[::-1]}
                texts = dict.fromkeys(map(str, beam_result.hypotheses))
                expected = [best[text] for text in texts][: options.nbest]
                assert [*answer.hypotheses] == expected
    assert equal == {(0, False), (2, False), (2, True)}


def test_answers_are_those_of_a_line_alone_and_nothing_is_compiled(engine):
    rng = random.Random(1)
    pairs = [drawn(rng) for _ in range(40)]

    async def client(number):
        answers = {}
        for n in range(number, len(pairs), 8):
            line, options = pairs[n]
            if rng.random() < 0.2:  # leaves at once
                task = asyncio.ensure_future(ask(engine, [line] * 3, [options] * 3))
                await asyncio.sleep(rng.random() / 50)
                task.cancel()
            (answers[n],) = await ask(engine, [line], [options], client=f"{number % 3}")
        return answers

    async def all_clients():
        several = ask(engine, *zip(*pairs, strict=True), client="array")
        return await asyncio.gather(several, *map(client, range(8)))

    previous = engine.compilations
    in_array, *client_answers = asyncio.run(all_clients())
    assert engine.compilations == previous
    answers = {n: answer for model in client_answers for n, answer in model.items()}
    for n, pair in enumerate(pairs):
        want = alone(*pair)
        for answer in (answers[n], in_array[n]):
            assert answer == want
            actual = [h.tokens for h in answer.hypotheses]
            assert actual == [h.tokens for h in want.hypotheses]


def test_a_line_waits_for_the_states_of_others(engine):
    """Five lines of 20 states each do not fit into a table of 64 at once."""
    options = [SearchRequest(must=(f"{word} the cat sees",)) for word in WORDS[:5]]
    lines = [WORDS[n] for n in range(5)]
    answers = asyncio.run(ask(engine, lines, options))
    assert answers == [*map(alone, lines, options)]


def test_lines_that_are_merged_keep_their_prefixes(engine):
    """They are longer than a stride, so that they count after the batches meet."""
    request = [
        ("the cat sees the dog the dog", SearchRequest(prefix="the cat sees a")),
        ("a dog sleeps a dog sleeps", SearchRequest(prefix="die Katze sieht")),
    ]
    answers, batches = {}, []
    call = type("Call", (), {"dropped": False, "set": answers.update})()
    for number, (text, options) in enumerate(request):
        placed = engine._placed("en-de", translator(1), {number: text}, options)
        line = placed[number]
        assert len(line.constraints.prefix) > STRIDE
        if not number:
            lane = engine._lane_of[line.lane].renewed(translator(1))
        line.call = call
        lane.searched[number] = line
        group = Group([number], lane.bucket, lane.rows, lane.mesh.size)
        batch, _ = lane.advance(lane.begin(group, lane.block(group)))
        batches.append(batch)
    assert [lane.park_or_merge(batch) for batch in batches] == [None, None]
    batch = lane.parked.pop(STRIDE)
    assert count_lines(batch) == 2
    while count_lines(batch):
        batch, finished = lane.advance(batch)
        if finished:
            lane.finish(*finished)
    assert answers == dict(enumerate(alone(*pair) for pair in request))


def test_few_lines_are_searched_in_few_rows(engine, monkeypatch):
    for lane in engine._lanes:
        assert lane.sizes == ([2, 4, 8] if lane.table is None else [2, 8])
    begun, begin = [], Bucket.begin

    def beginning(self, group, block):
        begun.append(group.rows)
        return begin(self, group, block)

    monkeypatch.setattr(Bucket, "begin", beginning)
    for count in 1, 3:
        assert len(asyncio.run(ask(engine, ["a dog"] * count))) == count
    assert begun == [2, 4]


@pytest.fixture
def kept_programs(tmp_path):
    """A folder of compiled programs of its own."""
    names = "jax_compilation_cache_dir", "jax_enable_compilation_cache"
    before = [getattr(jax.config, name) for name in names]
    for name, value in zip(names, (str(tmp_path), False), strict=True):
        jax.config.update(name, value)
    compilation_cache.reset_cache()
    jax.clear_caches()  # or programs are those that JAX has read
    yield tmp_path / "executables"
    for name, value in zip(names, before, strict=True):
        jax.config.update(name, value)
    compilation_cache.reset_cache()


def test_rows_that_change_a_bit_are_not_used(kept_programs, monkeypatch):
    tried = Engine({"en-de": translator(1)}, Limits((BEAM,), 32, phrases=0))
    (lane,) = tried._lanes
    scores = {8: 0.1, 4: 0.1, 2: 0.1 + 1e-9}
    monkeypatch.setattr(lane, "_try", lambda rows: {0: (np.array(scores[rows]),)})
    for rows in (8, 4, 2):
        lane.compile(rows)
    assert lane.sizes == [4, 8]


def test_short_lines_come_first_and_a_second_start_compiles_nothing(
    kept_programs, monkeypatch
):
    limits = Limits((BEAM,), 64, phrases=1)
    first = Engine({"en-de": translator(1)}, limits)
    first.warm_up()
    pair = "the cat", alone("the cat", SearchRequest())

    async def refused(engine):
        assert await ask(engine, [pair[0]]) == [pair[1]]
        with pytest.raises(CompilingError, match="up to 64 tokens.*retry") as error:
            await ask(engine, [pair[0], "the cat sees " * 15])
        assert error.value.retry_after > 0
        # It is the next after what is being compiled.
        assert "up to 64 tokens, 8 lines" in engine.compiling[1]
        with pytest.raises(CompilingError, match="with constraints"):
            await ask(engine, [pair[0]], [SearchRequest(must=("a",))])
        with pytest.raises(CompilingError, match="details"):
            await engine.details(
                "en-de", [pair], client="a", deadline=time.monotonic() + 60
            )
        await engine.close()

    asyncio.run(refused(first))
    # What another process has found out is not tried again.
    monkeypatch.setattr(_Lane, "_try", None)
    second = Engine({"en-de": translator(1)}, limits)
    second.warm_up()
    asyncio.run(refused(second))
    # But for a program that was damaged, or another one.
    names = {file.name for file in kept_programs.glob("*.program")}
    for file in kept_programs.glob("*.program"):
        file.write_bytes(file.read_bytes()[:-9])
    third = Engine({"en-de": translator(1)}, limits)
    third.warm_up()
    assert asyncio.run(ask(third, [pair[0]])) == [pair[1]]
    asyncio.run(third.close())
    assert {file.name for file in kept_programs.glob("*.program")} == names
    with pytest.raises(TypeError, match="not callable"):
        Engine(
            {"en-de": translator(1)}, dataclasses.replace(limits, beams=(2,))
        ).warm_up()


REFUSED = {
    "has 2": SearchRequest(samples=3),
    "without beam": SearchRequest(samples=2, must=("a",)),
    "this server has 3": SearchRequest(search={"beam": 2}),
    "want 1 to 3": SearchRequest(nbest=4),
    "at most 3 phrases": SearchRequest(must=("a", "b", "c", "d")),
    "63 states": SearchRequest(must=("the cat sees the dog " * 8,)),
}


def test_what_is_not_in_the_list_is_refused_line_by_line(engine):
    lines = ["the cat"] * len(REFUSED) + ["the cat " * 40, "the cat", " "]
    requests = [*REFUSED.values(), *[SearchRequest()] * 3]
    *refused, right, blank = asyncio.run(ask(engine, lines, requests))
    for answer, message in zip(refused, [*REFUSED, "at most 31"], strict=True):
        assert isinstance(answer, UserError)
        assert message in str(answer)
    assert right == alone("the cat", SearchRequest())
    assert blank.text == ""


def test_details_are_scores_and_links_of_the_translator(engine):
    lines = ["the cat sees", "a dog"]

    async def both():
        answers = await ask(engine, lines)
        pairs = [*zip(lines, answers, strict=True)]
        deadline = time.monotonic() + 60
        return pairs, await engine.details(
            "en-de", pairs, client="a", deadline=deadline
        )

    pairs, details = asyncio.run(both())
    assert [answer.score for answer in details] == translator(1).score(pairs)
    assert [answer.alignment for answer in details] == translator(1).align(pairs)


def test_an_error_of_a_batch_is_that_of_its_lines_alone(engine, monkeypatch):
    advance = Bucket.advance

    def fails(self, batch):
        numbers = batch.line_b[batch.line_b >= 0].tolist()
        searched = getattr(self, "searched", {})
        if any(n in searched and searched[n].text == "a a a" for n in numbers):
            raise RuntimeError("out of memory")
        return advance(self, batch)

    monkeypatch.setattr(Bucket, "advance", fails)
    constrained = SearchRequest(prefix="the")  # in another batch

    async def both():
        bad, good = ask(engine, ["a a a"]), ask(engine, ["a dog"], [constrained])
        return await asyncio.gather(bad, good, return_exceptions=True)

    bad, good = asyncio.run(both())
    assert "out of memory" in str(bad)
    assert good == [alone("a dog", constrained)]


def test_too_late_too_many_and_too_slow(engine):
    with pytest.raises(LateError):
        asyncio.run(ask(engine, ["the cat"] * 300, seconds=0.02))

    async def slow():
        long_line = asyncio.ensure_future(ask(engine, ["the cat sees"] * 2000))
        while not engine._finished or engine.queued() < 100:
            await asyncio.sleep(0.01)
        with pytest.raises(OverloadedError) as refused:
            await ask(engine, ["a dog"] * 500, client="b", seconds=0.2)
        assert refused.value.retry_after >= 1
        long_line.cancel()

    asyncio.run(slow())
    count = engine.limits.queue + 1
    with pytest.raises(UserError, match="20,001 lines or sentences; want at most"):
        asyncio.run(ask(engine, ["a"] * count))


@pytest.mark.parametrize("must", [(), ("a",)])
def test_phrases_that_never_fit_are_not_built(engine, must, monkeypatch):
    built = []
    for table in engine._tables.values():
        monkeypatch.setattr(table._phrases, "forbidden", built.append)
        monkeypatch.setattr(table._phrases, "required", built.append)
    monkeypatch.setattr(Phrases, "_automaton", lambda *_: built.append(_))
    count = tuple(chr(0x4E00 + n) for n in range(5_000))
    options = SearchRequest(must=must, must_not=count)
    (refused,) = asyncio.run(ask(engine, ["the cat"], [options]))
    assert "of 63 states" in str(refused)
    assert not built


def test_what_a_client_waits_for_counts_before_it_is_encoded(engine, monkeypatch):
    monkeypatch.setattr(engine, "_rate", lambda: 100.0)
    deadline = time.monotonic() + 20

    async def run():
        with engine.expected("bad", 1_500, deadline):
            assert engine.queued() == 1_500
            with pytest.raises(OverloadedError) as refused:
                await ask(engine, ["a dog"] * 600, client="bad", seconds=20)
            assert refused.value.retry_after == pytest.approx(15, abs=0.2)
            # Others wait for as many lines of it as they have themselves.
            with engine.expected("good", 900, deadline):
                pass
            with pytest.raises(OverloadedError):
                await ask(engine, ["a"] * 1_100, client="good", seconds=20)
        with engine.expected("bad", 3_000, deadline):  # alone it may try
            pass
        monkeypatch.setattr(engine, "_rate", lambda: 0.0)  # as after the start
        with (
            engine.expected("bad", 800, deadline),
            engine.expected("good", 800, deadline),
            pytest.raises(OverloadedError),
        ):
            await ask(engine, ["a dog"] * 300, client="bad", seconds=20)

    asyncio.run(run())
    assert not engine.queued()


TEXTS = [
    "the cat sees. a dog sleeps!\n\n the dog %s sleeps",
    "<p>the <b>cat</b> sees</p> a {dog}",
    "  a dog  ",
    "",
]


@pytest.mark.parametrize(
    "options",
    [
        {"markup": "html", "split": "sentences"},
        {"placeholders": True, "nbest": 2},
    ],
)
def test_texts_are_those_of_the_translator(engine, options):
    client = TestClient(
        application(engine, Settings(), FakeGuesser()), base_url="http://127.0.0.1"
    )
    answer = client.post("/v1/translate", json={"lines": TEXTS, **options}).json()
    results = translator(1).translate(TEXTS, warn=False, **options)
    rows = [[h["text"] for h in row["hypotheses"]] for row in answer["translations"]]
    assert rows == [[*map(str, each.hypotheses)] for each in results]


def test_new_parameters_are_for_lines_that_come_later():
    engine = Engine({"en-de": translator(1)}, Limits((BEAM,), 32, phrases=0))
    new_translator = translator(2)  # making it compiles something
    engine.warm_up()
    engine.compile_rest()

    async def before_and_after():
        first = asyncio.ensure_future(ask(engine, ["the cat sees"] * 40))
        while not engine.rows().any():
            await asyncio.sleep(0.001)
        previous = engine.rows()
        engine.reload("en-de", new_translator)
        assert (engine.rows() >= previous).all()  # counters never fall
        second = await ask(engine, ["the cat sees"])
        third = asyncio.ensure_future(ask(engine, ["a dog sleeps"] * 20))
        await asyncio.sleep(0)  # it begins, and is accepted
        await engine.close()  # answers what was taken
        with pytest.raises(StoppingError):
            await ask(engine, ["a dog"])
        assert engine.compilations == 0
        used, computed = engine.rows()
        assert 61 <= used <= computed  # a stride at least for each line
        return await first, second, await third

    first, second, third = asyncio.run(before_and_after())
    assert first == [alone("the cat sees", SearchRequest())] * 40
    assert second == [alone("the cat sees", SearchRequest(), translator(2))]
    assert first[0] != second[0]
    assert third == [alone("a dog sleeps", SearchRequest(), translator(2))] * 20
    with pytest.raises(UserError, match="has changed"):
        engine.reload("en-de", translator(1, layers=2))


def test_adapters_are_directions_that_share_their_base():
    base = translator(1)
    train = {"adapter": "lora", "options": {"lora_rank": 2, "lora_weights": "all"}}
    train = from_config_dict({"train": train}).train
    config = dataclasses.replace(base.config, train=train)
    factors = train.variant("adapter").model(base.model, config).shapes

    def changed(seed):
        draw = np.random.default_rng(seed).standard_normal
        arrays = jax.tree.map(lambda x: draw(x.shape, np.float32), factors)
        return adapted(base, arrays, config)

    models = {"en-de": base, "a": changed(1), "b": changed(2)}
    engine = Engine(models, Limits((BEAM,), 32, phrases=0))
    assert engine.directions["b"].source == "en"
    assert engine._executables["a"] is engine._executables["b"]
    assert engine._executables["a"] is not engine._executables["en-de"]
    engine.warm_up()
    engine.compile_rest()
    lines, request = ["the cat sees", "a dog sleeps"], SearchRequest()

    async def answers():
        deadline = time.monotonic() + 60
        limits = {"client": "c", "deadline": deadline}
        rows = [
            await engine.translate(name, lines, [request] * 2, **limits)
            for name in models
        ]
        assert engine.compilations == 0
        await engine.close()
        return rows

    rows = asyncio.run(answers())
    for model, row in zip(models.values(), rows, strict=True):
        assert row == [alone(line, request, model) for line in lines]
    assert rows[0] != rows[1] != rows[2]


def test_models_that_do_not_fit_are_refused(monkeypatch):
    monkeypatch.setattr(
        "t2t_jax.tools.serve.engine.device_memory", lambda device: 1 << 10
    )
    with pytest.raises(UserError, match=r"1 models take .* this device has"):
        Engine({"en-de": translator(1)}, LIMITS)


@hypothesis.given(
    strategies.lists(strategies.tuples(*[strategies.integers(0, 2)] * 2), max_size=40)
)
def test_clients_and_their_calls_take_turns(puts):
    queue = FairQueue()
    for n, (client, call) in enumerate(puts):
        queue.put(f"{client}", call, n)
    assert len(queue) == len(puts)
    popped = []
    while queue:
        n = queue.pop()
        if n % 7 == 3 and n not in popped:  # is put back, and comes again at once
            queue.put_first(f"{puts[n][0]}", puts[n][1], n)
            assert queue.pop() == n
        popped.append(n)
    assert sorted(popped) == [*range(len(puts))]
    for level in (lambda n: puts[n][0], lambda n: puts[n]):
        for group, members in itertools.groupby(sorted(popped, key=level), key=level):
            members = [n for n in popped if level(n) == group]
            if level(members[0]) == puts[members[0]]:
                assert members == sorted(members)  # a call keeps its order
    # While a client has items, no other one comes twice before it.
    for at in range(len(popped)):
        waiting = {puts[new_translator][0] for new_translator in popped[at:]}
        turn = [
            puts[new_translator][0] for new_translator in popped[at : at + len(waiting)]
        ]
        assert len({*turn}) == len(waiting)


def test_a_call_that_is_removed_leaves_the_others():
    queue = FairQueue()
    for n in range(6):
        queue.put("a", n % 2, n)
    assert queue.remove("a", 0) == 3
    assert queue.remove("b", 0) == 0
    assert [queue.pop() for _ in range(3)] == [1, 3, 5]
    assert not queue
    assert queue.next() is None


@pytest.mark.slow
def test_answers_do_not_depend_on_the_number_of_devices(eight_devices):
    single_device = translator(1)
    several = Translator(
        single_device.config,
        single_device.vocabulary,
        single_device.model,
        single_device.parameters,
        single_device.steps,
        jax.devices()[:2],
    )
    engine = Engine({"en-de": several}, LIMITS)
    engine.warm_up()
    engine.compile_rest()
    rng = random.Random(2)
    pairs = [drawn(rng) for _ in range(24)]

    async def run():
        answers = await ask(engine, *zip(*pairs, strict=True))
        assert engine.compilations == 0
        await engine.close()
        return answers

    assert asyncio.run(run()) == [alone(*pair) for pair in pairs]
