"""Limits, keys, hosts, errors, metrics, and clients that leave."""

import gzip
import json
import math
import re
import socket

import pytest

from t2t_jax.decoding.results import Hypothesis, Translation
from t2t_jax.decoding.search_options import SearchRequest
from t2t_jax.io.errors import UserError
from t2t_jax.tools.serve import service
from t2t_jax.tools.serve.engine import (
    CompilingError,
    OverloadedError,
    StoppingError,
)
from t2t_jax.tools.serve.fields import Field
from t2t_jax.tools.serve.settings import Settings, read_keys
from tests.serve.fake_engine import FakeEngine
from tests.small_run import until

PAIR = {"source": "en", "target": "de"}


def post(c, path="/v1/translate", **fields):
    return c.post(path, json=fields)


def error_of(answer):
    return answer.status_code, answer.json()["error"]["code"]


# ------------------------------------------------------------------------ our own API


def test_a_line_has_all_that_is_known_of_it(client):
    engine = FakeEngine()
    fields = {"prefix": "x", "must": ["p", "q"], "must_not": "r", "provenance": True}
    body = post(client(engine), lines=["a long", ""], nbest=2, beam=4, **fields).json()
    assert body["direction"] == "en-de"
    decode = {"beam": 4, "alpha": 0.6}  # the beam that was used
    sampling = {"temperature": 1.0, "top_k": 0, "top_p": 1.0, "epsilon": 0.0}
    sampling["samples"] = 0
    record = {"checkpoints": [[12]], "decode": decode, "sampling": sampling}
    assert body["provenance"] == record
    first, blank = body["translations"]
    common = {"log_prob": -2.5, "ended": True, "tokens": [1, 2, 3, 4, 0]}
    assert first == {
        "source": "a long",
        "hypotheses": [
            {"text": "<de> a long p q", "score": 0.0, **common},
            {"text": "<de 2> a long", "score": -0.5, **common},
        ],
        "confidence": pytest.approx(0.60653066),
        "cut": 3,
    }
    assert blank["hypotheses"][0]["text"] == ""
    [options] = engine.calls[0][2]
    assert (options.prefix, options.must, options.must_not) == ("x", ("p", "q"), ("r",))
    post(client(engine), lines=["a"], samples=2, seed=5)
    assert engine.calls[1][2] == [SearchRequest(samples=2, seed=5)]


def test_options_may_be_given_for_each_line(client):
    engine = FakeEngine()
    fields = {"prefix": ["x", ""], "must": [["p"], []], "must_not": [[], ["q", "r"]]}
    assert post(client(engine), lines=["a", "b"], **fields).status_code == 200
    first_key, second_key = engine.calls[0][2]
    assert (first_key.prefix, first_key.must, first_key.must_not) == ("x", ("p",), ())
    assert (second_key.prefix, second_key.must, second_key.must_not) == (
        "",
        (),
        ("q", "r"),
    )
    for name, value in (("prefix", ["x", "y", "z"]), ("must", [["p"]])):
        answer = post(client(engine), lines=["a", "b"], **{name: value})
        assert (answer.status_code, name in answer.text) == (400, True)


def test_words_have_the_sums_of_their_tokens(client):
    body = post(client(), lines=["a cat", "", "bad"], details=True).json()
    details = body["translations"][0]["details"]
    assert details["words"] == ["<de>", "a", "cat"]
    assert details["word_log_probs"] == [0, -0.25, -1]
    assert details["pieces"] == [" <", "de>", " a", " c", "at", "</s>"]
    assert details["alignment"] == [[0, 0], [1, 1]]
    assert "details" not in body["translations"][1]


def test_white_space_around_a_line_is_not_searched_and_stays(client):
    engine, line = FakeEngine(), "  a\u00a0"
    body = post(client(engine), lines=[line, " "]).json()["translations"]
    assert [row["source"] for row in body] == [line, " "]
    texts = [row["hypotheses"][0]["text"] for row in body]
    assert (texts, engine.calls[0][1]) == (["  <de> a\u00a0", " "], ["a"])


def test_a_bad_line_fails_alone(client):
    body = post(client(), lines=["a", "bad", "b\nc", "d"]).json()["translations"]
    assert body[1] == {"source": "bad", "error": "'bad' is bad"}
    assert "line feed" in body[2]["error"]
    texts = [row["hypotheses"][0]["text"] for row in (body[0], body[3])]
    assert texts == ["<de> a", "<de> d"]


def test_an_unsure_line_is_refused_without_its_text(client):
    answer = post(client(), lines=["a", "low", "bad"], min_confidence=0.5, details=True)
    sure, unsure, bad = answer.json()["translations"]
    assert "refused" not in sure
    assert unsure["refused"] is True
    assert unsure["confidence"] < 0.5
    assert unsure["hypotheses"][0]["text"] == ""
    assert unsure["hypotheses"][0]["tokens"] == []
    assert "details" not in unsure
    assert "error" in bad
    body = post(client(), text="low\na", min_confidence=0.5).json()
    assert body["text"] == "\n<de> a"


def test_a_text_of_lines_is_joined_as_it_was(client):
    body = post(client(), text="a\n\n b\n").json()
    assert body["text"] == "<de> a\n\n <de> b\n"
    assert [row["source"] for row in body["translations"]] == ["a", "", " b", ""]


def test_directions_are_chosen_by_name_languages_or_guess(client):
    c = client(FakeEngine("en-de", "de-en", "fr-en"))
    assert post(c, lines=["a"], direction="fr-en").json()["direction"] == "fr-en"
    assert post(c, lines=["a"], target="de").json()["direction"] == "en-de"
    body = post(c, lines=["fr: a", "de: b", "en: c"], source="auto", target="en").json()
    assert body["direction"] is None
    texts = [row["hypotheses"][0]["text"] for row in body["translations"]]
    assert texts == ["<en> fr: a", "<en> de: b", "en: c"]
    guess = {"language": "fr", "confidence": 0.925}
    assert body["translations"][0]["detected"] == guess
    pair = "no translation from de to fr; there are: en-de, de-en, fr-en"
    for fields, message in (
        ({"direction": "en-ed"}, "did you mean 'en-de'?"),
        ({"source": "de", "target": "fr"}, pair),
        ({"source": "auto", "target": "de", "lines": ["fr: a"]}, "from fr to de"),
    ):
        answer = post(c, **{"lines": ["a"], **fields})
        assert error_of(answer) == (400, "unknown_pair")
        assert message in answer.text
    answer = post(c, lines=["a"], target="en")  # from German or French; it is guessed
    assert answer.json()["translations"][0]["hypotheses"][0]["text"] == "a"


def test_directions_and_limits_are_listed(client):
    body = client().get("/v1/directions").json()
    [direction] = body["directions"]
    pair = {"name": "en-de", "source": "en", "target": "de", "weights": ["float32"]}
    sizes = {"beams": [4, 1], "longest": 128, "phrases": 4, "samples": 0}
    assert direction == pair | sizes | {"precision": None}
    limits = {"characters": 20_000, "lines": 500, "bytes": 1 << 20, "seconds": 20.0}
    assert body["limits"] == limits


def test_text_in_no_served_language_stays_unless_its_language_is_given(client):
    def texts(fields, **settings):
        rows = post(client(FakeEngine(), **settings), lines=["?", "a"], **fields)
        return [r["hypotheses"][0]["text"] for r in rows.json()["translations"]]

    for guessed in ({"target": "de"}, {"source": "auto"}):
        assert texts(guessed) == ["?", "<de> a"]
        assert texts(guessed, min_served=0.0) == ["<de> ?", "<de> a"]
    for value in ({"source": "eng_Latn", "target": "DE"}, {"direction": "en-de"}, {}):
        assert texts(value) == ["<de> ?", "<de> a"]
    foreign = {"q": "?", "source": "auto", "target": "de"}
    body = client(FakeEngine()).post("/translate", json=foreign).json()
    assert body["translatedText"] == "?"
    assert body["detectedLanguage"] == {"confidence": 1, "language": "en"}


def test_clients_are_told_codes_as_they_spell_them(client):
    c = client(FakeEngine("eng_Latn-zho_Hant", "deu_Latn-kor_Hang"))
    codes = [row["code"] for row in c.get("/languages").json()]
    assert codes == ["en", "zh-Hant", "de", "ko"]
    request = {"text": ["a"], "source_lang": "EN-GB", "target_lang": "ZH-HANT"}
    (results,) = c.post("/v2/translate", json=request).json()["translations"]
    assert results == {"text": "<zho_Hant> a", "detected_source_language": "EN-GB"}


def test_what_json_cannot_say_is_null(client):
    engine, best = FakeEngine(), Hypothesis("", -math.inf, -math.inf, True, (1,))
    engine._translation = lambda name, line, options: Translation(line, (best,))
    [row] = post(client(engine), lines=["a"]).json()["translations"]
    assert (row["hypotheses"][0]["score"], row["confidence"]) == (None, 0)


# ----------------------------------------------------------------------------- refusals

MALFORMED = {
    b"": "either lines",
    b"{": "neither JSON nor a form",
    b'{"lines": ["a"': "neither JSON nor a form; is it cut?",
    b"[1]": "the body is a JSON list; want an object",
    b'{"lines": "\xff"}': "not UTF-8",
    b'{"lines": ["\\ud800"]}': "lone surrogate",
    b'{"lines": [1]}': "lines is a list; want a text or a list of texts",
    b'{"lines": {"a": 1}}': "lines is a dict; want",
    b'{"lines": ["a"], "nbest": "x"}': "nbest is a str; want a whole number",
    b'{"lines": ["a"], "min_confidence": NaN}': "neither JSON",
    b'{"lines": ["a"], "min_confidence": "nan"}': "is a str; want a number",
    b'{"lines": ["a"], "min_confidence": %s}' % (b"1" * 401): "is a int; want a number",
    b'{"lines": ["a"], "details": 7}': "details is a int; want true or false",
    b'{"lines": ["a"], "nbst": 1}': "no field 'nbst'; did you mean 'nbest'?",
    b'{"lines": ["a"], "text": "a"}': "one of them",
    b"[" * 100_000: "neither JSON",
}


@pytest.mark.parametrize("body", MALFORMED, ids=lambda body: repr(body[:40]))
def test_a_malformed_request_is_told_what_is_wanted(body, client):
    answer = client().post("/v1/translate", content=body)
    assert answer.status_code == 400, answer.text
    assert answer.json()["error"]["code"] == "bad_request"
    assert MALFORMED[body] in answer.json()["error"]["message"]


def test_a_form_is_whole_and_utf_8(client):
    kind = "multipart/form-data; boundary=xx"
    form = (
        b'--xx\r\nContent-Disposition: form-data; name="q"\r\n\r\none two\r\n--xx\r\n'
        b'Content-Disposition: form-data; name="target"\r\n\r\nde\r\n--xx--\r\n'
    )

    def post(content, kind=kind, url="/translate"):
        return client().post(url, content=content, headers={"Content-Type": kind})

    assert post(form).status_code == 200
    url = "/translate?target=de"  # so that the first field is enough
    after_first = form.index(b"one two") + len(b"one two\r\n--xx\r\n")
    for length in (0, 20, 50, 60, 70, after_first, len(form) - 6):
        assert post(form[:length], url=url).status_code == 400, form[:length]
    for charset in ("punycode", '"idna"', "utf-7", "latin-1"):
        answer = post(form, f"{kind}; Charset={charset}")
        assert (answer.status_code, "want UTF-8" in answer.text) == (400, True)


def test_a_wrong_key_is_refused_before_the_body_is_read(client, tmp_path, monkeypatch):
    def read(*_):
        raise AssertionError("the body was read")

    (tmp_path / "keys").write_text("right\n")
    c = client(keys=read_keys(f"{tmp_path}/keys"))
    monkeypatch.setattr(service, "read_body", read)
    answer = c.post("/v1/translate", content=b"?", headers={"X-API-Key": "wrong"})
    assert error_of(answer) == (403, "wrong_key")


def test_limits_are_of_the_whole_request(client):
    c = client(characters=10, lines=3, bytes=200)
    assert post(c, lines=["12345", "67890"]).status_code == 200
    for fields, message in (
        ({"lines": ["12345", "678901"]}, "11 characters; want at most 10"),
        ({"lines": ["1", "2", "3", "4"]}, "4 entries of lines; want at most 3"),
        ({"text": "1\n2\n3\n4"}, "4 lines; want at most 3"),
        (
            {"lines": ["1", "2"], "prefix": ["12345"] * 2},
            "12 characters; want at most 10",
        ),
        ({"lines": ["1", "2"], "must": ["1" * 9]}, "11 characters"),  # once
        ({"text": "1" * 200}, "the body has more than 200 bytes"),
    ):
        answer = post(c, **fields)
        assert error_of(answer) == (413, "too_large")
        assert message in answer.json()["error"]["message"]
    chunks = iter([b'{"text": "', b" " * 200, b'"}'])
    assert c.post("/v1/translate", content=chunks).status_code == 413


@pytest.mark.parametrize(
    ("path", "fields"),
    [
        ("/v1/translate", {"text": "\n" * 500_000}),
        ("/v1/translate", {"lines": [""] * 250_000}),
        ("/v1/translate", {"lines": ["a"], "must_not": ["b"] * 20_001}),
        ("/v1/translate", {"lines": ["a"], "must": [["b", "c"] * 10_001]}),
        ("/v1/translate", {"lines": ["a"], "prefix": [""] * 501}),
        ("/v1/sentences", {"lines": [""] * 501}),
        ("/translate", {"q": ["a"] * 501, **PAIR}),
        (
            "/v2/translate",
            {"text": "a", "target_lang": "de", "ignore_tags": ["b" * 99] * 20_001},
        ),
        ("/detect", {"q": "a" * 20_001}),
        ("/kiss", {"text": "a" * 20_001, "to": "de"}),
    ],
)
def test_sizes_are_checked_before_anything_is_read(path, fields, client, monkeypatch):
    def read(*_):
        raise AssertionError("a field was read")

    monkeypatch.setattr(Field, "read", read)
    body = json.dumps(fields).encode()
    assert client(bytes=1 << 22).post(path, content=body).status_code == 413


def test_without_the_splitter_lines_are_not_divided(client, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    answer = post(client(), "/v1/sentences", lines=["a"])
    assert error_of(answer) == (501, "no_splitter")


def test_a_thread_that_does_not_go_on_is_no_health(client):
    engine, seconds = FakeEngine(), [0.0]
    engine.stuck, engine.turns = lambda: seconds[0], None  # probes wait for no turn
    c = client(engine)
    for seconds[0], status in ((59.0, 200), (61.0, 503)):
        assert c.get("/health").status_code == c.get("/ready").status_code == status
    assert c.get("/health").json()["status"] == "a thread has not gone on for 61 s"


def test_texts_are_divided_unless_the_server_does_not(client):
    fields = {"q": "Dogs run. Cats sleep.", **PAIR}
    for split, second in (("sentences", "<de> Cats"), ("", "Cats")):
        answer = client(split=split).post("/translate", json=fields)
        assert answer.json() == {"translatedText": f"<de> Dogs run. {second} sleep."}


def test_a_key_is_wanted_where_keys_are(client, tmp_path):
    (tmp_path / "keys").write_text("first-key\n\nsecond-key\n")
    c = client(keys=read_keys(f"{tmp_path}/keys"))
    fields = {"q": "a", **PAIR}
    for headers, headers_text in (
        ({"Authorization": "Bearer second-key"}, {}),
        ({"Authorization": "DeepL-Auth-Key first-key"}, {}),
        ({"X-API-Key": "first-key"}, {}),
        ({}, {"api_key": "first-key"}),
    ):
        answer = c.post("/translate", json=fields | headers_text, headers=headers)
        assert answer.status_code == 200
    answer = c.post("/translate", json=fields)
    assert (answer.status_code, "API key" in answer.json()["error"]) == (401, True)
    for wrong in ("first-ke", "first-key2", "Größe", "first-key\nsecond-key"):
        answer = c.post("/translate", json={**fields, "api_key": wrong})
        assert answer.status_code == 403
    for path in ("/v1/models", "/v2/usage", "/v2/glossaries"):
        assert c.get(path).status_code == 401
    for path in "health", "ready", "metrics", "languages", "spec", "v1/directions":
        assert c.get(f"/{path}").status_code == 200
    assert c.get("/frontend/settings").json()["keyRequired"] is True


NAMED = {"host": "box", "allowed_hosts": ("mt.example.org",)}
CORS, ANY = {"cors": "https://a.example"}, {"allowed_hosts": ("*",)}
NAMES = "localhost:5000", "127.0.0.1", "[::1]:5000", "box", "Mt.Example.ORG:80"
FOREIGN = "evil.example", "127.0.0.1.evil.example", "localhost.evil:5000"
PAGES = "https://a.example", "http://localhost:8000", "chrome-extension://abc"
LINKS = ("cross-site", "no-cors"), ("same-site", "no-cors"), ("cross-site", "navigate")
# Settings, headers of a request, and if it is answered.
SITES = [
    *((NAMED, {"Host": host}, True) for host in NAMES),
    *(({}, {"Host": host}, False) for host in FOREIGN),
    *((CORS, {"Origin": origin}, True) for origin in PAGES),
    *((CORS, {"Origin": f"http{x}"}, False) for x in ("s://evil.example", "://[::1")),
    (CORS, {"Origin": "null"}, False),
    (ANY, {"Host": "b.example", "Origin": "https://b.example:8443"}, True),
    (ANY, {"Host": "b.example", "Origin": "http://localhost:8000"}, True),
    (ANY, {"Host": "b.example", "Origin": "https://evil.example"}, False),
    (ANY, {"Host": "b.example", "Origin": "null"}, False),
    # Images and links have no Origin.
    *(({}, {"Sec-Fetch-Site": s, "Sec-Fetch-Mode": m}, False) for s, m in LINKS),
    ({}, {"Sec-Fetch-Site": "same-origin", "Sec-Fetch-Mode": "cors"}, True),
    ({}, {"Sec-Fetch-Site": "none", "Sec-Fetch-Mode": "navigate"}, True),
    *((CORS, {"Sec-Fetch-Site": "cross-site", "Origin": x}, True) for x in PAGES[::2]),
]


def test_pages_of_other_sites_are_refused(client):
    for settings, headers, answered in SITES:
        c, status = client(**settings), 200 if answered else 403
        answer = c.get("/translate", params={"q": "a", **PAIR}, headers=headers)
        assert answer.status_code == status, headers
        shared = answer.headers.get("access-control-allow-origin")
        assert (shared == "https://a.example") == (headers.get("Origin") == PAGES[0])
        opened = headers.get("Sec-Fetch-Mode") == "navigate"  # by a link
        assert c.get("/", headers=headers).status_code == (200 if opened else status)
    ask = {"Origin": "https://a.example", "Access-Control-Request-Method": "POST"}
    assert client(**CORS).options("/translate", headers=ask).status_code == 200
    assert client().options("/translate", headers=ask).status_code == 405


def test_probes_call_a_container_by_its_address(client):
    for path in "/health", "/ready", "/metrics":
        assert client().get(path, headers={"Host": FOREIGN[0]}).status_code == 403
        for address in "10.0.0.7:5000", "[fd00::7]:5000":
            headers = {"Host": address}
            assert client().get(path, headers=headers).status_code == 200
            assert client().get("/languages", headers=headers).status_code == 403


def test_slashes_that_clients_add_change_nothing(client):
    c, request = client(), {"q": "a", **PAIR}
    c.follow_redirects = False
    for path in "//translate", "/translate/", "//translate//":
        url = f"http://127.0.0.1:5000{path}"
        assert c.post(url, json=request).status_code == 200, path
        # A redirect would lead to any Host.
        answer = c.post(url, json=request, headers={"Host": "evil.example"})
        assert (answer.status_code, "location" in answer.headers) == (403, False)
    assert c.get("/v1//models/").status_code == 200
    assert c.get("/nix/").status_code == 404


def test_a_body_is_utf_8_and_not_compressed(client):
    body = json.dumps({"q": "Maß", **PAIR}).encode()
    for kind in "application/json", "text/plain":
        headers, marked = {"Content-Type": kind}, b"\xef\xbb\xbf" + body
        answer = client().post("/translate", content=marked, headers=headers)
        assert answer.json() == {"translatedText": "<de> Maß"}
    for headers, encoded, message in (
        ({"Content-Encoding": "gzip"}, gzip.compress(body), "Encoding='gzip'; want"),
        ({}, body.decode().encode("utf-16"), "in UTF-16; want UTF-8"),
        ({}, body.decode().encode("utf-16-be"), "in UTF-16-BE; want UTF-8"),
    ):
        answer = client().post("/translate", content=encoded, headers=headers)
        assert answer.status_code == 415
        assert message in answer.json()["error"]


def test_an_error_repeats_little_of_a_request(client):
    c, long_text = client(), "x" * 100_000
    for path, fields in (
        ("/translate", {"q": "a", **PAIR, "format": long_text}),
        ("/translate", {"q": "a", "source": "en", "target": long_text}),
        ("/v1/translate", {"lines": ["bad" + long_text[:9999]]}),
        ("/v1/translate", {"lines": ["a"], "terms": long_text}),
        ("/v1/translate", {"lines": ["a"], long_text: 1}),
        ("/v2/languages", {"type": long_text}),
        ("/v1/chat/completions", {"messages": [], "model": long_text}),
    ):
        answer = post(c, path, **fields)
        [error] = re.findall('"(?:error|message)":"(.*?)"', answer.text)
        assert 0 < len(error) < 1100, path
    assert len(c.get("/languages", headers={"Host": long_text[:9999]}).text) < 1100


def test_a_client_is_its_key_or_its_address(client, tmp_path, capsys):
    """So that the lines of clients take turns."""
    (tmp_path / "keys").write_text("one-key\ntwo-key\n")
    engine = FakeEngine()
    c = client(engine, keys=read_keys(f"{tmp_path}/keys"))
    for key in ("one-key", "two-key", "one-key"):
        post(c, lines=["a"], api_key=key)
    first_key, second_key, first_again = (call[3] for call in engine.calls)
    assert first_key == first_again != second_key
    assert "key" not in first_key
    marks = [x.split(" key=")[1] for x in capsys.readouterr().err.splitlines()]
    assert marks == [first_key[:8], second_key[:8], first_key[:8]]


# ------------------------------------------------------------------ the engine's errors


def test_an_engine_that_refuses_sets_the_status(client, capsys):
    engine = FakeEngine()
    c = client(engine)
    for error, status, code in (
        (OverloadedError(2.3), 429, "queue_full"),
        (StoppingError(), 503, "stopping"),
        (UserError("the lines contradict"), 400, "bad_request"),
        (RuntimeError("text of the client: secret"), 500, "internal"),
    ):
        engine.raises = error
        answer = post(c, lines=["secret"])
        assert error_of(answer) == (status, code)
        if status == 429:
            assert answer.headers["Retry-After"] == "3"
    assert answer.json()["error"]["request_id"] == answer.headers["X-Request-ID"]
    log = capsys.readouterr().err
    assert "secret" not in log + answer.text
    assert f"error in request {answer.headers['X-Request-ID']}" in log
    assert "RuntimeError" in log
    assert "fake_engine.py" in log  # where it was raised


def test_a_request_that_takes_too_long_is_given_up(client):
    engine = FakeEngine()
    engine.wait.clear()
    answer = post(client(engine, seconds=0.05), lines=["a"])
    assert error_of(answer) == (504, "late")
    assert engine.queued() == 0


def test_nothing_is_translated_before_all_is_compiled(client):
    engine = FakeEngine(ready=False)
    c = client(engine)
    answer = post(c, lines=["a"])
    assert (answer.status_code, answer.headers["Retry-After"]) == (503, "5")
    assert (c.get("/health").status_code, c.get("/ready").status_code) == (200, 503)
    engine.warm_up(c.app.state.service.report)
    listed = c.get("/ready").json()
    assert listed["compiled"][0] == "en-de: 1 of 2 programs"
    assert listed["compiling"] == ["en-de: details"]
    assert (c.get("/ready").status_code, post(c, lines=["a"]).status_code) == (200, 200)
    engine.raises = CompilingError("up to 64 tokens", 6.2)
    answer = post(c, lines=["a"])
    assert (*error_of(answer), answer.headers["Retry-After"]) == (503, "compiling", "7")
    assert "up to 64 tokens" in answer.text
    c.app.state.service.stopping = True
    assert (c.get("/ready").status_code, post(c, lines=["a"]).status_code) == (503, 503)
    assert not engine.calls[2:]


def test_every_answer_has_an_id_and_a_clients_own_if_it_is_harmless(client):
    for value, remaining in ("abc-1._Z", 1), ("a b", 0), ("x" * 65, 0), ("ä", 0):
        answer = client().get("/nix", headers={"X-Request-ID": value.encode()})
        assert (answer.headers["X-Request-ID"] == value) == remaining
        assert answer.json()["error"]["request_id"] == answer.headers["X-Request-ID"]
        assert answer.status_code == 404


def test_the_log_has_no_text_query_path_or_key(client, capsys):
    c = client()
    c.get("/translate", params={"q": "secret", "api_key": "secret", **PAIR})
    c.get("/secret/path?q=secret", headers={"Authorization": "Bearer secret"})
    c.request("SECRET", "/translate")
    post(c, lines=["secret"], nbest="secret")
    lines = capsys.readouterr().err.splitlines()
    assert "secret" not in "".join(lines).lower()
    assert all(re.match(r"\d{4}-\d\d-\d\dT[\d:]{8}Z testclient ", x) for x in lines)
    starts = [" ".join(line.split()[2:5]) for line in lines]
    answered = "GET /translate 200, GET other 404, OTHER other 405"
    assert starts == [*answered.split(", "), "POST /v1/translate 400"]


def test_metrics_count_and_have_no_labels_of_clients(client):
    c = client(FakeEngine("en-de", "de-en", "en-fr", "de-fr"))
    post(c, lines=["a", "", "b"], **PAIR)
    post(c, lines=["de: a", "b"], source="auto", target="en")
    post(c, lines=["a"], nbest="x", **PAIR)
    post(c, lines=["de: a", "a"], source="auto", target="fr")
    c.app.state.service.metrics.count("/imme", "", 200, 0.3)
    c.get("/secret", headers={"X-Request-ID": "secret"})
    text = c.get("/metrics").text
    assert "secret" not in text
    values = dict(line.rsplit(" ", 1) for line in text.splitlines() if line[0] != "#")
    name_format = (
        't2t_jax_requests_total{{direction="{}",endpoint="/v1/translate",status="{}"}}'
    )
    assert values[name_format.format("en-de", 200)] == "1.0"
    assert values[name_format.format("de-en", 200)] == "1.0"
    assert values[name_format.format("", 400)] == "1.0"
    assert values[name_format.format("several", 200)] == "1.0"
    assert values['t2t_jax_lines_total{direction="en-de"}'] == "2.0"
    assert values['t2t_jax_lines_total{direction="de-en"}'] == "1.0"
    seconds = 't2t_jax_request_seconds_{}{{endpoint="/v1/translate"'
    assert float(values[seconds.format("count") + "}"]) == 4
    assert values["t2t_jax_queued_lines"] == "0.0"
    assert values["t2t_jax_compilations_since_ready"] == "0.0"
    names = ("rows_used_total", "rows_computed_total")
    assert [values[f"t2t_jax_{name}"] for name in names] == ["3.0", "1.6000001e+07"]
    slow = 't2t_jax_request_seconds_bucket{{endpoint="/imme",le="{}"}}'
    slower = [values[slow.format(le)] for le in ("0.25", "0.5", "+Inf")]
    assert slower == ["0.0", "1.0", "1.0"]
    types = {line.split()[-1] for line in text.splitlines() if line[:6] == "# TYPE"}
    assert types == {"counter", "gauge", "histogram"}


def test_the_spec_lists_every_route(client):
    from t2t_jax.tools.serve.app import ENDPOINTS

    c = client()
    spec = c.get("/spec").json()
    assert spec["openapi"] == "3.1.0"
    assert {*spec["paths"]} == {row.path for row in ENDPOINTS}
    does = spec["paths"]["/translate"]
    schema = does["post"]["requestBody"]["content"]["application/json"]["schema"]
    assert schema["required"] == ["q", "target"]
    assert does["get"]["parameters"][0]["name"] == "q"
    for path, methods in spec["paths"].items():
        for method in methods:
            answer = c.request(method, path)
            assert answer.status_code in (200, 400), (method, path)
            error = methods[method]["responses"]["default"]["content"]
            if answer.status_code == 400:
                required = error["application/json"]["schema"]["required"]
                assert [*answer.json()] == required, (method, path)
    optional = does["post"]["requestBody"]["content"]["application/json"]["schema"]
    assert {"type": "null"} in optional["properties"]["format"]["anyOf"]
    assert does["post"]["requestBody"]["required"]
    page = c.get("/").headers
    assert page["content-type"].startswith("text/html")
    policy = page["content-security-policy"]
    for name in "frame-ancestors", "base-uri", "form-action":
        assert f"{name} 'none'" in policy


# ------------------------------------------------------------------------ over a socket


def raw(server, data):
    s = socket.create_connection(server.address, timeout=10)
    s.sendall(data)
    return s


def head(length, path="/translate", more=""):
    return (
        f"POST {path} HTTP/1.1\r\nHost: localhost\r\n{more}"
        f"Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n"
    ).encode()


def test_a_client_that_leaves_is_cancelled_and_the_others_are_not(running):
    engine = FakeEngine()
    engine.wait.clear()
    server = running(engine)
    bodies = ({"q": q, **PAIR} for q in ("leaving", "staying"))
    leaving, staying = (json.dumps(body).encode() for body in bodies)
    s = raw(server, head(len(leaving)) + leaving)
    staying_socket = raw(server, head(len(staying)) + staying)
    until(lambda: engine.queued() == 2)
    s.close()
    until(lambda: engine.cancelled == ["leaving"])
    assert engine.queued() == 1
    server.loop.call_soon_threadsafe(engine.wait.set)
    until(lambda: b"<de> staying" in staying_socket.recv(4096))
    text = server.service.metrics.text({})
    assert 'direction="en-de",endpoint="/translate",status="499"} 1' in text


def test_a_body_that_does_not_come_is_given_up(running):
    server = running(seconds=0.2)
    assert raw(server, head(100) + b'{"q":').recv(4096).startswith(b"HTTP/1.1 408")
    s = raw(server, head(100) + b'{"q":')  # a client that leaves within its body
    s.close()
    until(lambda: 'status="499"} 1.0' in server.service.metrics.text({}))
    assert raw(server, head(1 << 21)).recv(4096).startswith(b"HTTP/1.1 413")
    chunked = head(0).replace(b"Content-Length: 0", b"Transfer-Encoding: chunked")
    s = raw(server, chunked + b"100001\r\n" + b" " * 0x100001 + b"\r\n")
    assert s.recv(4096).startswith(b"HTTP/1.1 413")


# ------------------------------------------------------------------- files of the flags


def test_a_bad_file_of_keys_is_told_by_its_line(tmp_path):
    file = tmp_path / "file"
    for content, message in (
        ("\n \n", "has no key; want one a line"),
        ("good-key\nbad key\n", "line 2: white space in a key"),
        ("ключ\n", "line 1: white space in a key, or a character that is not ASCII"),
    ):
        file.write_text(content)
        with pytest.raises(UserError, match=message):
            read_keys(str(file))


def test_keys_are_kept_as_digests(tmp_path):
    (tmp_path / "keys").write_text("secret-key\n")
    assert "secret" not in repr(Settings(keys=read_keys(f"{tmp_path}/keys")))
