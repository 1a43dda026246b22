"""Each client's own request gets the answer that this client reads."""

import json

import deepl
import openai
import pytest
from libretranslatepy import LibreTranslateAPI

from t2t_jax.io.errors import UserError
from t2t_jax.tools.learn.command import corrections
from t2t_jax.tools.serve.command import _suggestions
from t2t_jax.tools.serve.interfaces import ENDPOINTS
from t2t_jax.tools.serve.settings import Glossary
from tests.serve.fake_engine import FakeEngine

BOTH = "en-de", "de-en"
PAIR = {"source": "en", "target": "de"}
DE = {"source_lang": "en", "target_lang": "de"}
CHAT = {"model": "en-de", "messages": [{"role": "user", "content": "a cat"}]}
EN = {"confidence": 60, "language": "en"}
GOOGLE = {"translatedText": "<de> a"}


def deepl_answer(text):
    row = {"text": text, "detected_source_language": "EN"}
    return {"translations": [row]}


# Path, fields, and a part of the answer, as each client sends and reads it.
REQUESTS = {
    "Weblate": (
        "/translate",
        {"q": ["a", "b"], **PAIR, "api_key": ""},
        {"translatedText": ["<de> a", "<de> b"]},
    ),
    "Mastodon": (
        "/translate",
        {"q": ["a", "de: b"], "source": "auto", "target": "de", "format": "text"},
        {
            "translatedText": ["<de> a", "de: b"],  # which is German already
            "detectedLanguage": [EN, {"confidence": 92, "language": "de"}],
        },
    ),
    "LibreTranslate's page": (
        "/translate",
        {"q": "a", "source": "auto", "target": "de", "alternatives": 2},
        {
            "translatedText": "<de> a",
            "alternatives": ["<de 2> a", "<de 3> a"],
            "detectedLanguage": EN,
        },
    ),
    "lines": (
        "/translate",
        {"q": "a\r\n\r\nb\n", **PAIR},
        {"translatedText": "<de> a\r\n\r\n<de> b\n"},
    ),
    "Weblate, with a placeholder": (
        "/translate",
        {"q": ['Hi <x id="1"></x>, a &amp; b'], **PAIR, "format": "html"},
        {"translatedText": ['&lt;de&gt; Hi <x id="1"></x>, a &amp; b']},
    ),
    "a guess": ("/detect", {"q": "a"}, [EN]),
    "Immersive": (
        "/imme",
        {"source_lang": "auto", "target_lang": "de", "text_list": ["a"]},
        {"translations": [{"detected_source_lang": "en", "text": "<de> a"}]},
    ),
    "Kiss": (
        "/kiss",
        {"from": "en", "to": "de", "text": "a"},
        {"text": "<de> a", "src": "en"},
    ),
    "Kiss, several": (
        "/kiss",
        {"from": "auto", "to": "de", "texts": ["a"]},
        {"translations": [{"text": "<de> a", "src": "en"}]},
    ),
    "DeepLX": (
        "/deeplx",
        {"text": "a", "source_lang": "EN", "target_lang": "DE"},
        {
            "code": 200,
            "data": "<de> a",
            "alternatives": ["<de 2> a", "<de 3> a", "<de 4> a"],
            "source_lang": "EN",
            "target_lang": "DE",
        },
    ),
    "Google": (
        "/language/translate/v2",
        {"q": ["a"], "target": "de", "format": "text"},
        {"data": {"translations": [GOOGLE | {"detectedSourceLanguage": "en"}]}},
    ),
    "Google, from a language": (
        "/language/translate/v2",
        {"q": "a", **PAIR},
        {"data": {"translations": [GOOGLE]}},
    ),
    "Google, html": (
        "/language/translate/v2",
        {"q": "a<br><b>b</b>", **PAIR, "format": "html"},
        {"data": {"translations": [{"translatedText": "&lt;de&gt; a<br><b>b</b>"}]}},
    ),
    "LibreTranslate, sentences": (
        "/translate",
        {"q": ["Dogs run. Cats!\n\nEat.", "d"], **PAIR},
        {"translatedText": ["<de> Dogs run. <de> Cats!\n\n<de> Eat.", "<de> d"]},
    ),
    "DeepL, without sentences": (
        "/v2/translate",
        {"text": "Dogs run. Cats\nsleep.", "target_lang": "DE", "split_sentences": 0},
        deepl_answer("<de> Dogs run. Cats\n<de> sleep."),
    ),
    "DeepL, without lines": (
        "/v2/translate",
        {"text": "Dogs run. Cats\nsleep.", "split_sentences": "nonewlines", **DE},
        deepl_answer("<de> Dogs run. <de> Cats sleep."),
    ),
    "ours, sentences": (
        "/v1/sentences",
        {"lines": [" Dogs run.  Cats. ", "", "c"], **PAIR},
        {
            "direction": "en-de",
            "lines": [
                {"sentences": ["Dogs run.", "Cats."], "between": [" ", "  ", " "]},
                {"sentences": [], "between": [""]},
                {"sentences": ["c"], "between": ["", ""]},
            ],
        },
    ),
    "ours, html": (
        "/v1/translate",
        {"text": "<p>a", **PAIR, "markup": "html", "nbest": 2},
        {
            "text": "<p>&lt;de&gt; a",
            "translations": [
                {
                    "source": "<p>a",
                    "hypotheses": [
                        {"text": "<p>&lt;de&gt; a"},
                        {"text": "<p>&lt;de 2&gt; a"},
                    ],
                }
            ],
        },
    ),
}


@pytest.mark.parametrize("name", REQUESTS)
def test_a_client_reads_what_it_expects(name, client):
    path, fields, expected = REQUESTS[name]
    answer = client(FakeEngine(*BOTH)).post(path, json=fields)
    assert answer.status_code == 200, answer.text
    actual = answer.json()
    if isinstance(expected, dict):
        actual = {name: actual[name] for name in expected}
    assert actual == expected


def test_forms_queries_and_json_say_the_same(client):
    c = client(FakeEngine(*BOTH))
    fields = {"q": "Größe & Maß + 1", **PAIR}
    parts = {name: (None, value) for name, value in fields.items()}
    raw = "&".join(f"{name}={value}" for name, value in fields.items())
    raw = raw.replace("& ", "%26 ").replace("+", "%2B")
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    for answer in (
        c.post("/translate", json=fields),
        c.post("/translate", data=fields),
        c.post("/translate", files=parts),
        c.get("/translate", params=fields),
        c.post("/translate", content=raw.encode(), headers=form),  # curl -d escapes not
        c.post("/translate?source=en", json={"q": fields["q"], "target": "de"}),
        # `curl -d` says that it sends a form.
        c.post("/translate", content=json.dumps(fields), headers=form),
    ):
        assert answer.json() == {"translatedText": "<de> Größe & Maß + 1"}
    answer = c.get("/translate", params={"q": "", **PAIR})
    assert answer.json() == {"translatedText": ""}
    assert c.get("/translate?q=%ff&source=en&target=de").status_code == 400
    answer = c.post("/v2/translate", data={"text": ["a", "b"], "target_lang": "de"})
    assert [row["text"] for row in answer.json()["translations"]] == [
        "<de> a",
        "<de> b",
    ]
    answer = c.get("/omegat", params={"text": "a", **PAIR})
    assert answer.json() == {"translation": "<de> a"}


# Of each interface, a pair that is not served: where the message is in its error.
ERRORS = {
    "/translate": ({"q": "a", "target": "xx"}, "error"),
    "/v2/translate": ({"text": "a", "target_lang": "XX"}, "message"),
    "/v1/chat/completions": ({**CHAT, "model": "en-xx"}, "error message"),
    "/imme": ({"text_list": ["a"], "target_lang": "xx"}, "error"),
    "/kiss": ({"text": "a", "to": "xx"}, "error"),
    "/deeplx": ({"text": "a", "target_lang": "xx"}, "message"),
    "/language/translate/v2": ({"q": "a", "target": "xx"}, "error message"),
    "/v1/translate": ({"text": "a", "target": "xx"}, "error message"),
}
CODES = {"/deeplx": "code", "/language/translate/v2": "error code"}  # the status again


def at(body, names):
    for name in names.split():
        body = body[name]
    return body


@pytest.mark.parametrize("path", ERRORS)
def test_an_error_has_the_form_of_its_interface(path, client):
    fields, message = ERRORS[path]
    answer = client().post(path, json=fields)
    assert answer.status_code == 400
    assert "xx" in at(answer.json(), message).lower()
    assert "en-de" in at(answer.json(), message)
    assert answer.headers["X-Request-ID"] in answer.text
    assert path not in CODES or at(answer.json(), CODES[path]) == 400
    answer = client().request("DELETE", path).json()
    assert at(answer, message) == "Method Not Allowed"


@pytest.mark.parametrize(
    ("path", "fields", "message"),
    [
        ("/translate", {"format": "xml"}, "want text or html"),
        ("/v2/translate", {"tag_handling": "md"}, "tag_handling='md'; want"),
        ("/v2/translate", {"ignore_tags": "p"}, "ignore_tags needs tag_handling"),
        ("/v2/translate", DE | {"glossary_id": "x"}, "no glossary 'x' of en-de"),
        ("/translate", {"alternatives": 4}, "alternatives=4; want 0 to 3"),
        ("/v1/chat/completions", {"n": 0}, "n=0; want 1 to 4"),
        ("/v2/translate", {"splitting_tags": "p"}, "splitting_tags is not supported"),
        (
            "/v1/translate",
            {"markup": "html", "details": True},
            "details: not available with",
        ),
        ("/v2/translate", {"formality": "more"}, "formality='more' is not supported"),
        ("/v1/chat/completions", {"messages": []}, "no text of a user"),
        ("/kiss", {"texts": ["b"]}, "either text or texts"),
        (
            "/v1/chat/completions",
            CHAT | {"messages": [{"role": "user", "content": "a \ud83d"}]},
            "UTF-8",
        ),
        ("/v2/languages", {"type": "x"}, "want source or target"),
        ("/v2/glossaries", {"name": "x"}, "--terms=NAME=FILE"),
    ],
)
def test_what_would_be_lost_is_refused(path, fields, message, client):
    fields = ERRORS.get(path, ({},))[0] | fields
    answer = client().post(path, content=json.dumps(fields))
    assert (answer.status_code, message in answer.text) == (400, True)


def test_an_error_names_the_text_by_its_number(client):
    answer = client().post("/translate", json={"q": ["a\nb", "bad"], **PAIR})
    assert answer.json()["error"] == "text 2: 'bad' is bad"
    answer = client().post("/translate", json={"q": "bad", **PAIR})
    assert answer.json()["error"] == "'bad' is bad"


def test_lines_of_a_request_go_to_the_engine_together_and_blank_ones_do_not(client):
    engine = FakeEngine(*BOTH)
    texts = ["a\n \nb", "de: c", "d"]
    fields = {"q": texts, "source": "auto", "target": "en"}
    answer = client(engine).post("/translate", json=fields)
    assert answer.json()["translatedText"] == ["a\n \nb", "<en> de: c", "d"]
    assert [call[:2] for call in engine.calls] == [("de-en", ["de: c"])]
    client(engine).post("/translate", json={"q": texts, **PAIR})
    assert engine.calls[-1][:2] == ("en-de", ["a", "b", "de: c", "d"])


def test_languages_are_those_of_the_directions(client):
    c = client(FakeEngine("en-de", "en-fr"))
    assert c.get("/languages").json() == [
        {"code": "en", "name": "English", "targets": ["de", "fr"]},
        {"code": "de", "name": "German", "targets": []},
        {"code": "fr", "name": "French", "targets": []},
    ]
    get = {"type": "target"}
    answer = c.get("/v2/languages", params=get).json()
    assert [row["language"] for row in answer] == ["DE", "FR"]
    assert c.get("/frontend/settings").json()["charLimit"] == 20_000


def test_the_nearest_variant_of_a_language_is_taken(client):
    engine = FakeEngine("en-pt", "en-pt_BR")
    # `en-pt_BR` is split at the first dash.
    for target, name in (("pt-BR", "en-pt_BR"), ("pt-PT", "en-pt"), ("pt", "en-pt")):
        post = {"q": "a", "source": "en", "target": target}
        client(engine).post("/translate", json=post)
        assert engine.calls[-1][0] == name


@pytest.fixture
def terms(tmp_path):
    (tmp_path / "t.tsv").write_text(
        "cat\tKater\ncat food\tFutter\n\ndog.\tHund\nfood\tEssen\n"
    )
    return {"pets": Glossary("pets", "en-de", f"{tmp_path}/t.tsv")}


def test_terms_are_asked_for_where_they_occur_as_whole_words(client, terms):
    engine = FakeEngine(*BOTH)
    c = client(engine, terms=terms)
    lines = ["a cat", "cats concat", "cat  food, cat", "the dog. ran", "Cat"]
    fields = {"text": lines, "glossary_id": "pets", "split_sentences": "0", **DE}
    assert c.post("/v2/translate", json=fields).status_code == 200
    must = [options.must for options in engine.calls[0][2]]
    assert must == [("Kater",), (), ("Futter", "Kater"), ("Hund",), ("Kater",)]
    [glossary] = c.get("/v2/glossaries").json()["glossaries"]
    assert (glossary["glossary_id"], glossary["entry_count"]) == ("pets", 4)
    for wrong in (
        {"glossary_id": "x", **DE},
        {"glossary_id": "pets", "target_lang": "en", "source_lang": "de"},
    ):
        answer = c.post("/v2/translate", json={"text": "a", **wrong})
        assert (answer.status_code, "there are: pets" in answer.text) == (400, True)
    fields = {"lines": ["a cat"], "terms": "pets", "must": "x", **PAIR}
    c.post("/v1/translate", json=fields)
    assert engine.calls[-1][2][0].must == ("x", "Kater")


# ------------------------------------------------------------ clients' own packages


def test_the_package_deepl(running, terms):
    server = running(FakeEngine(*BOTH), terms=terms)
    api_client = deepl.Translator("key", server_url=server.url)
    results = api_client.translate_text(
        ["a", "b\nc"], source_lang="EN", target_lang="DE"
    )
    assert [row.text for row in results] == ["<de> a", "<de> b\n<de> c"]
    assert results[1].billed_characters == 3
    german = api_client.translate_text("de: a", target_lang="EN-US")
    assert german.detected_source_lang == "DE"
    assert [row.code for row in api_client.get_target_languages()] == [
        "DE",
        "EN-US"[:2],
    ]
    assert [row.code for row in api_client.get_source_languages()] == ["EN", "DE"]
    assert api_client.get_usage().character.count == 8
    [glossary] = api_client.list_glossaries()
    pair = {"source_lang": "EN", "target_lang": "DE"}
    text = api_client.translate_text("a cat", **pair, glossary=glossary)
    assert text.text == "<de> a cat Kater"
    assert len(api_client.get_glossary_languages()) == 2
    text = api_client.translate_text(
        'a <x id="1"></x> <k>b</k> c', **pair, tag_handling="xml", ignore_tags=["k"]
    )
    assert text.text == '&lt;de&gt; a <x id="1"></x> <k>b</k> c'
    with pytest.raises(deepl.DeepLException, match="line 1, column 3"):
        api_client.translate_text("a <b", **pair, tag_handling="xml")


def test_the_package_openai(running):
    server = running(FakeEngine(*BOTH))
    with openai.OpenAI(
        base_url=f"{server.url}/v1", api_key="k", max_retries=0
    ) as api_client:
        create = api_client.chat.completions.create
        system = {"role": "system", "content": "Translate."}
        parts = {"role": "user", "content": [{"type": "text", "text": "a cat"}]}
        choices = create(model="en-de", messages=[system, parts], n=2).choices
        message = [(row.index, row.message.content) for row in choices]
        assert message == [(0, "<de> a cat"), (1, "<de 2> a cat")]
        assert choices[0].finish_reason == "stop"
        chunks = [row.choices[0] for row in create(**CHAT, stream=True)]
        text = "".join(row.delta.content or "" for row in chunks)
        assert (text, chunks[-1].finish_reason) == ("<de> a cat", "stop")
        assert [model.id for model in api_client.models.list()] == [*BOTH]
        with pytest.raises(openai.BadRequestError, match="no model 'gpt-4'"):
            create(**{**CHAT, "model": "gpt-4"})


def test_the_package_libretranslatepy(running):
    api_client = LibreTranslateAPI(running(FakeEngine(*BOTH)).url)
    assert api_client.translate("Größe", "en", "de") == "<de> Größe"
    assert api_client.detect("de: b")[0]["language"] == "de"
    assert [row["code"] for row in api_client.languages()] == ["en", "de"]


def test_every_endpoint_is_tried_here():
    with open(__file__, encoding="utf-8") as file:
        text = file.read()
    package = {"/v2/usage", "/v2/glossary-language-pairs", "/v1/models"}
    for endpoint in ENDPOINTS:
        assert endpoint.path in package or f'"{endpoint.path}"' in text, endpoint.path


def test_suggestions_are_kept_for_learn(client, tmp_path):
    file = tmp_path / "corrections.jsonl"
    file.write_bytes(b'{"time": "half of a li')  # of a crash
    better = {"q": "a cat", "s": "eine Katze", **PAIR}
    without = client(FakeEngine())
    assert not without.get("/frontend/settings").json()["suggestions"]
    assert "--suggestions=FILE" in without.post("/suggest", json=better).json()["error"]
    takes = client(FakeEngine(), suggestions=_suggestions(str(file)))
    assert takes.get("/frontend/settings").json()["suggestions"]
    assert takes.post("/suggest", data=better).json() == {"success": True}
    assert takes.post("/suggest", json={**better, "s": " "}).status_code == 400
    assert takes.post("/suggest", json={**better, "target": "fr"}).status_code == 400
    named = {**better, "q": "a\nb", "direction": "en-de"}
    assert takes.post("/suggest", json=named).json() == {"success": True}
    first, _ = map(json.loads, file.read_text("utf-8").splitlines())
    assert first["time"].startswith("20")
    assert (first["direction"], first["checkpoints"]) == ("en-de", [[12]])
    learned = [("a cat", "eine Katze"), ("a b", "eine Katze")]
    assert corrections(file, "en", "de") == learned
    assert corrections(file, "de", "en") == []
    several = client(FakeEngine("fr-en", "de-en"), suggestions=_suggestions(str(file)))
    auto = {"q": "de: Katze", "s": "a cat", "source": "auto", "target": "en"}
    assert several.post("/suggest", json=auto).json() == {"success": True}
    assert corrections(file, "de", "en") == [("de: Katze", "a cat")]
    assert several.post("/suggest", json={**auto, "q": "cat"}).status_code == 400
    with pytest.raises(UserError, match="want a file on disk"):
        _suggestions("gs://bucket/file")
