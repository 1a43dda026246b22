"""Answers of the server that are translated again, and what is said if they differ."""

import copy
import dataclasses
import functools
import json
import math
import operator
import types

import pytest

from t2t_jax import Translator, UserError
from t2t_jax.config import Config, changed
from t2t_jax.decoding.results import Hypothesis, Translation
from t2t_jax.extensions.run import answers
from t2t_jax.io.messages import say
from t2t_jax.workdir import Workdir

LINES = ["The dog sees the cat.", " ", "A child laughs.", "The dog sleeps."]
ASKED = {"lines": LINES, "nbest": 2, "must": [["Hund"], [], [], ["Katze"]]}


def exchange_of(translator, request, translations):
    """A request to /v1/translate and its response, as JSON has them."""
    rows = [
        {"source": t.source, "hypotheses": [*map(dataclasses.asdict, t.hypotheses)]}
        for t in translations
    ]
    for hypothesis in (h for row in rows for h in row["hypotheses"]):
        for name in ("score", "log_prob"):
            if not math.isfinite(hypothesis[name]):
                hypothesis[name] = None
    response = {"translations": rows, "provenance": translator.provenance()}
    return json.loads(json.dumps({"request": request, "response": response}))


def searched(translator, request=ASKED):
    lines, nbest, must = (request[name] for name in ("lines", "nbest", "must"))
    translations = translator.translate(lines, nbest=nbest, must=must)
    return exchange_of(translator, request, translations)


@pytest.fixture(scope="module")
def answer(trained):
    return searched(Translator.load(trained[0], "8").with_options(beam=2))


@pytest.fixture
def file(tmp_path):
    return tmp_path / "answer.json"


def altered(exchange, value, *path):
    """A copy with another value at a path of keys."""
    copied = {"": copy.deepcopy(exchange)}
    *keys, last_key = "", *path
    functools.reduce(operator.getitem, keys, copied)[last_key] = value
    return copied[""]


def repeated(trained, file, answer):
    file.write_text(json.dumps(answer))
    return answers.repeat([Workdir(trained[0])], *answers.read_exchanges(file)[0])


def test_an_answer_comes_to_the_same_bits_with_its_own_options(trained, file, answer):
    other = copy.deepcopy(answer)
    other["response"]["translations"].append({"source": "x", "error": "too long"})
    other["request"]["lines"].append("x")
    other["request"] |= {"must": [*other["request"]["must"], []], "min_precision": 0.9}
    other["response"]["provenance"]["precision"] = {"lines": 1014, "good": 612}
    refused = other["response"]["translations"][2]  # by min_precision
    refused["refused"] = True
    for row in refused["hypotheses"]:
        row |= {"text": "", "tokens": []}
    assert repeated(trained, file, other) == (3, "")
    refused["hypotheses"][0]["score"] = -9.0  # by which it is compared all the same
    different = repeated(trained, file, other).different
    assert "line 3, hypothesis 1, score: -9.0 then" in different


def test_the_first_bit_that_differs_is_named(trained, file, answer):
    rows = answer["response"]["translations"]
    for name, value in (
        ("score", math.nextafter(rows[2]["hypotheses"][1]["score"], 0)),
        ("text", "Ein Kind."),
        ("tokens", [2]),
        ("ended", None),
    ):
        path = "response", "translations", 2, "hypotheses", 1, name
        different = repeated(trained, file, altered(answer, value, *path)).different
        assert different.startswith(f"line 3, hypothesis 2, {name}: "), different
    result = repeated(trained, file, altered(answer, 1, "request", "nbest"))
    assert result.different == "line 1, hypotheses: 2 then, 1 now"


def test_samples_are_drawn_again(trained, file):
    translator = Translator.load(trained[0], "8")
    request = {"lines": LINES, "samples": 1, "seed": 5, "must_not": ["Hund"]}
    drawn = translator.sample(
        LINES, samples=2, seed=5, temperature=0.7, must_not=["Hund"], warn=False
    )
    exchange = exchange_of(translator, request, drawn)
    for row in exchange["response"]["translations"]:
        del row["hypotheses"][1:]  # one is asked for, of the two that are drawn
    sampling = {"temperature": 0.7, "samples": 2}
    exchange["response"]["provenance"]["sampling"] = sampling
    assert repeated(trained, file, exchange) == (3, "")
    exchange["request"]["seed"] = 6
    assert repeated(trained, file, exchange).different


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"lines": ["a", "b"]}, "2 lines were asked for, and 1 answered"),
        ({"lines": ["other\x1b[2J"]}, r"line 1: 'other\x1b[2J' was asked for, and 'a'"),
        ({"lines": None, "text": "a"}, "the text is not that of its lines"),
        ({"beam": 2}, "beam: 2 asked, 4 answered"),
        ({"direction": "de-en"}, "direction: 'de-en' asked, 'en-de' answered"),
        ({}, ""),
    ],
)
def test_what_was_asked_is_compared(change, words, file, made_up):
    made_up["request"] |= change
    different = repeated((None,), file, made_up).different
    assert (different[: len(words)], bool(different)) == (words, bool(words))


@pytest.fixture
def made_up(monkeypatch):
    """An answer of a translator that repeats lines, and has no model."""

    class Echo:
        def with_options(self, **decode):
            changed(Config(), "decode", **decode)
            return self

        def tagged(self, tag):
            return self

        def provenance(self):
            return {"parameters_sha256": ["0"]}

        def translate(self, lines, nbest, beam, **_):
            best = Hypothesis("A", -1.0, -2.0, True, (5, 2))
            return [Translation(line, (best,) * nbest) for line in lines]

        def sample(self, lines, samples, **_):
            return self.translate(lines, samples, 1)

    monkeypatch.setattr(Translator, "load", lambda *_: None)
    monkeypatch.setattr(Translator, "ensemble", lambda _: Echo())
    workdir = types.SimpleNamespace(config=Config)
    monkeypatch.setitem(globals(), "Workdir", lambda _: workdir)
    best = {"text": "A", "score": -1.0, "log_prob": -2.0, "ended": True}
    row = {"source": "a", "hypotheses": [best | {"tokens": [5, 2]}]}
    origin = {"checkpoints": [[8]], "parameters_sha256": ["0"], "dtype": ["float32"]}
    origin |= {"decode": {"beam": 4, "alpha": 0.6, "max_source": 64}, "tag": "<2de>"}
    origin |= {"sampling": {"samples": 0, "top_k": 0}, "weights": ["float32"]}
    request = {"lines": ["a"], "nbest": 1, "prefix": [""], "must": [[]], "seed": 0}
    response = {"direction": "en-de", "translations": [row], "provenance": origin}
    return {"request": request, "response": response}


def paths_of(value, path=()):
    yield path
    if isinstance(value, dict | list):
        pairs = value.items() if isinstance(value, dict) else enumerate(value)
        for key, item in pairs:
            yield from paths_of(item, (*path, key))


def test_any_file_is_repeated_or_refused_in_a_sentence(file, made_up):
    assert repeated((None,), file, made_up) == (1, "")
    deep = json.loads("[" * 400 + "]" * 400)
    values = None, True, -1, 10**9 + 1, 1e300, "x\x1b", [], {}, [[]], ["x", 1], deep
    for path in [*paths_of(made_up), *(("request", "samples"), ("request", "beam"))]:
        for value in values:
            try:
                case = altered(made_up, value, *path)
                words = repeated((None,), file, case).different
            except UserError as e:
                words = str(e)
            assert "\x1b" not in words, path
            assert len(words) < 1000, path
    for text in "[" * 100_000, '{"request": ' * 5000:
        file.write_text(text)
        with pytest.raises(UserError, match="want JSON"):
            answers.read_exchanges(file)
    for name in "max_source", "extra_length", "beam":
        case = altered(made_up, 60_000, "response", "provenance", "decode", name)
        with pytest.raises(UserError, match=f"{name}=60000; want at most"):
            repeated((None,), file, case)


def test_terminals_get_no_control_characters(capsys):
    say("a\x1b[2J\r\tü\n\u202e\x9b")
    assert capsys.readouterr().err == "a\\x1b[2J\\r\tü\n\\u202e\\x9b\n"


def test_other_parameters_are_named_before_a_search(trained, file, answer, monkeypatch):
    monkeypatch.setattr(Translator, "translate", None)
    path = "response", "provenance", "parameters_sha256"
    case = altered(answer, ["0" * 64], *path)
    result = repeated(trained, file, case)
    assert (result.lines, "parameters are others" in result.different) == (0, True)


def test_an_ensemble_is_loaded_member_by_member(trained, file):
    members = [Translator.load(trained[0], step) for step in ("8", "12")]
    ensemble = Translator.ensemble(members).with_options(beam=1)
    request = {"lines": LINES[2:3], "nbest": 1, "must": []}
    file.write_text(json.dumps(searched(ensemble, request)))
    [read] = answers.read_exchanges(file)
    assert answers.repeat([Workdir(trained[0])] * 2, *read) == (1, "")
    with pytest.raises(UserError, match="1 workdirs, and an ensemble of 2"):
        answers.repeat([Workdir(trained[0])], *read)


def test_what_cannot_be_repeated_is_refused(file, answer):
    provenance = "response", "provenance"
    for content, message in (
        (json.dumps(altered(answer, None, *provenance)), "want JSON"),
        (json.dumps(altered(answer, "ours", "request", "terms")), "phrases in must"),
        (json.dumps(altered(answer, {"a": {}, "b": {}}, *provenance)), "one direction"),
        ("{", "want JSON"),
    ):
        file.write_text(content)
        with pytest.raises(UserError, match=message):
            answers.read_exchanges(file)
    with pytest.raises(UserError, match="No such file"):
        answers.read_exchanges(file.with_name("no"))


def test_the_command_says_it_by_its_status(trained, file, answer, commands):
    arguments = f"--workdir={trained[0]}", f"--answer={file}"
    file.write_text(json.dumps(answer))
    ended = commands("whatwas", *arguments)
    assert (ended.returncode, ended.stdout) == (
        0,
        "3 lines come to the same texts, tokens and scores, to the bit\n",
    ), ended.stderr
    path = "response", "translations", 0, "hypotheses", 0, "log_prob"
    other = altered(answer, 1.0, *path)
    # As the page of the server saves several, in a page.
    element = '<p>a</p><script type="application/json" id="answer">'
    file.write_text(f"{element}{json.dumps([answer, other])}</script>")
    ended = commands("whatwas", *arguments)
    assert ended.returncode == 1
    words = "not the same: answer 2, line 1, hypothesis 1, log_prob: 1.0 "
    assert ended.stdout.startswith(words)
    ended = commands("whatwas", *arguments, "--step=3")
    assert (ended.returncode, "one of them" in ended.stderr) == (2, True)
