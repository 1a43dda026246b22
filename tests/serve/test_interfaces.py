"""Each client's own request gets the answer that this client reads."""

import json

import deepl
import openai
import pytest
from libretranslatepy import LibreTranslateAPI

from t2t_jax.tools.serve.interfaces import ROWS
from t2t_jax.tools.serve.settings import Terms
from tests.serve.fake_engine import FakeEngine

BOTH = "en-de", "de-en"
PAIR = {"source": "en", "target": "de"}
DE = {"source_lang": "en", "target_lang": "de"}
CHAT = {"model": "en-de", "messages": [{"role": "user", "content": "a cat"}]}
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
            "detectedLanguage": [
                {"confidence": 60, "language": "en"},
                {"confidence": 92, "language": "de"},
            ],
        },
    ),
    "LibreTranslate's page": (
        "/translate",
        {"q": "a", "source": "auto", "target": "de", "alternatives": 2},
        {
            "translatedText": "<de> a",
            "alternatives": ["<de 2> a", "<de 3> a"],
            "detectedLanguage": {"confidence": 60, "language": "en"},
        },
    ),
    "lines": (
        "/translate",
        {"q": "a\r\n\r\nb\n", **PAIR},
        {"translatedText": "<de> a\r\n\r\n<de> b\r\n"},
    ),
    "LibreTranslate's guess": (
        "/detect",
        {"q": "de: b"},
        [{"confidence": 92, "language": "de"}],
    ),
    "DeepL": (
        "/v2/translate",
        {"text": ["a", "b"], "target_lang": "DE", "source_lang": "EN"},
        {
            "translations": [
                {"detected_source_language": "EN", "text": "<de> a"},
                {"detected_source_language": "EN", "text": "<de> b"},
            ]
        },
    ),
    "DeepL's variants": (
        "/v2/translate",
        {"text": "a", "target_lang": "EN-GB"},
        {"translations": [{"detected_source_language": "DE", "text": "<en> a"}]},
    ),
    "chat": (
        "/v1/chat/completions",
        {
            **CHAT,
            "messages": [
                {"role": "system", "content": "Translate."},
                *CHAT["messages"],
            ],
            "n": 2,
        },
        {
            "object": "chat.completion",
            "choices": [
                {
                    "index": i,
                    "message": {"role": "assistant", "content": text},
                    "finish_reason": "stop",
                }
                for i, text in enumerate(("<de> a cat", "<de 2> a cat"))
            ],
        },
    ),
    "chat in parts": (
        "/v1/chat/completions",
        {
            "model": "de-en",
            "messages": [{"role": "user", "content": [{"type": "text", "text": "a"}]}],
        },
        {
            "choices": [
                {
                    "index": 0,
                    "message": {"role": "assistant", "content": "<en> a"},
                    "finish_reason": "stop",
                }
            ]
        },
    ),
    "Immersive": (
        "/imme",
        {"source_lang": "auto", "target_lang": "de", "text_list": ["a", "de: b"]},
        {
            "translations": [
                {"detected_source_lang": "en", "text": "<de> a"},
                {"detected_source_lang": "de", "text": "de: b"},
            ]
        },
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
        {
            "data": {
                "translations": [
                    {"translatedText": "<de> a", "detectedSourceLanguage": "en"}
                ]
            }
        },
    ),
}


@pytest.mark.parametrize("name", REQUESTS)
def test_a_client_reads_what_it_expects(name, client):
    path, fields, wanted = REQUESTS[name]
    answer = client(FakeEngine(*BOTH)).post(path, json=fields)
    assert answer.status_code == 200, answer.text
    got = answer.json()
    if isinstance(wanted, dict):
        got = {name: got[name] for name in wanted}
    assert got == wanted


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
    ):
        assert answer.json() == {"translatedText": "<de> Größe & Maß + 1"}
    # `curl -d` says that it sends a form.
    answer = c.post("/translate", content=json.dumps(fields), headers=form)
    assert answer.json() == {"translatedText": "<de> Größe & Maß + 1"}
    answer = c.get("/translate", params={"q": "", **PAIR})
    assert answer.json() == {"translatedText": ""}
    assert c.get("/translate?q=%ff&source=en&target=de").status_code == 400
    answer = c.post("/v2/translate", data={"text": ["a", "b"], "target_lang": "de"})
    assert [each["text"] for each in answer.json()["translations"]] == [
        "<de> a",
        "<de> b",
    ]
    answer = c.get("/omegat", params={"text": "a", **PAIR})
    assert answer.json() == {"translation": "<de> a"}


# Of each interface, a pair that is not served: where the message is in its error.
ERRORS = {
    "/translate": ({"q": "a", "target": "xx"}, lambda e: e["error"]),
    "/v2/translate": ({"text": "a", "target_lang": "XX"}, lambda e: e["message"]),
    "/v1/chat/completions": (
        {**CHAT, "model": "en-xx"},
        lambda e: e["error"]["message"],
    ),
    "/imme": ({"text_list": ["a"], "target_lang": "xx"}, lambda e: e["error"]),
    "/kiss": ({"text": "a", "to": "xx"}, lambda e: e["error"]),
    "/deeplx": ({"text": "a", "target_lang": "xx"}, lambda e: e["message"]),
    "/language/translate/v2": (
        {"q": "a", "target": "xx"},
        lambda e: e["error"]["message"],
    ),
    "/v1/translate": ({"text": "a", "target": "xx"}, lambda e: e["error"]["message"]),
}


@pytest.mark.parametrize("path", ERRORS)
def test_an_error_has_the_form_of_its_interface(path, client):
    fields, message = ERRORS[path]
    answer = client().post(path, json=fields)
    assert answer.status_code == 400
    assert "xx" in message(answer.json()).lower()
    assert "en-de" in message(answer.json())
    assert answer.headers["X-Request-ID"] in answer.text
    assert message(client().request("DELETE", path).json()) == "Method Not Allowed"


def test_google_and_deeplx_repeat_the_status(client):
    fields, _ = ERRORS["/deeplx"]
    assert client().post("/deeplx", json=fields).json()["code"] == 400
    fields, _ = ERRORS["/language/translate/v2"]
    answer = client().post("/language/translate/v2", json=fields).json()
    assert answer["error"]["code"] == 400


def test_markup_is_refused_where_it_would_be_lost(client):
    for path, fields in (
        ("/translate", {"q": "a", "target": "de", "format": "html"}),
        ("/language/translate/v2", {"q": "a", "target": "de", "format": "html"}),
        ("/v2/translate", {"text": "a", "target_lang": "de", "tag_handling": "xml"}),
    ):
        answer = client().post(path, json=fields)
        assert answer.status_code == 400
        assert "markup is not supported yet" in answer.text


def test_a_bad_line_is_numbered_through_all_texts(client):
    answer = client().post("/translate", json={"q": ["a\nb", "bad"], **PAIR})
    assert answer.json()["error"] == "line 3: 'bad' is bad"
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
    assert [call[:2] for call in engine.calls[1:]] == [
        ("en-de", ["a", "b", "de: c", "d"])
    ]


def test_languages_are_those_of_the_directions(client):
    c = client(FakeEngine("en-de", "en-fr"))
    assert c.get("/languages").json() == [
        {"code": "en", "name": "English", "targets": ["de", "fr"]},
        {"code": "de", "name": "German", "targets": []},
        {"code": "fr", "name": "French", "targets": []},
    ]
    get = {"type": "target"}
    answer = c.get("/v2/languages", params=get).json()
    assert [each["language"] for each in answer] == ["DE", "FR"]
    assert [each["id"] for each in c.get("/v1/models").json()["data"]] == [
        "en-de",
        "en-fr",
    ]
    assert c.get("/frontend/settings").json()["charLimit"] == 20_000


def test_the_nearest_variant_of_a_language_is_taken(client):
    engine = FakeEngine("en-pt", "en-pt_BR")
    # `en-pt_BR` is split at the first dash.
    for target, name in (("pt-BR", "en-pt_BR"), ("pt-PT", "en-pt"), ("pt", "en-pt")):
        client(engine).post(
            "/translate", json={"q": "a", "source": "en", "target": target}
        )
        assert engine.calls[-1][0] == name


@pytest.fixture
def terms(tmp_path):
    (tmp_path / "t.tsv").write_text(
        "cat\tKater\ncat food\tFutter\n\ndog.\tHund\nfood\tEssen\n"
    )
    return {"pets": Terms("pets", "en-de", f"{tmp_path}/t.tsv")}


def test_terms_are_asked_for_where_they_occur_as_whole_words(client, terms):
    engine = FakeEngine(*BOTH)
    c = client(engine, terms=terms)
    lines = ["a cat", "cats concat", "cat  food, cat", "the dog. ran", "Cat"]
    fields = {"text": lines, "glossary_id": "pets", **DE}
    assert c.post("/v2/translate", json=fields).status_code == 200
    must = [options.must for options in engine.calls[0][2]]
    assert must == [("Kater",), (), ("Futter", "Kater"), ("Hund",), ()]
    [one] = c.get("/v2/glossaries").json()["glossaries"]
    assert (one["glossary_id"], one["entry_count"], one["target_lang"]) == (
        "pets",
        4,
        "de",
    )
    answer = c.post("/v2/glossaries", json={"name": "x"})
    assert (answer.status_code, "--terms" in answer.json()["message"]) == (400, True)
    for wrong in (
        {"glossary_id": "x", **DE},
        {"glossary_id": "pets", "target_lang": "en", "source_lang": "de"},
    ):
        answer = c.post("/v2/translate", json={"text": "a", **wrong})
        assert (answer.status_code, "there are: pets" in answer.text) == (400, True)
    c.post(
        "/v1/translate", json={"lines": ["a cat"], "terms": "pets", "must": "x", **PAIR}
    )
    assert engine.calls[-1][2][0].must == ("x", "Kater")


# ------------------------------------------------------------ clients' own packages


def test_the_package_deepl(running, terms):
    server = running(FakeEngine(*BOTH), terms=terms)
    of = deepl.Translator("key", server_url=server.url)
    found = of.translate_text(["a", "b\nc"], source_lang="EN", target_lang="DE")
    assert [each.text for each in found] == ["<de> a", "<de> b\n<de> c"]
    assert found[1].billed_characters == 3
    assert of.translate_text("a", target_lang="EN-US").detected_source_lang == "DE"
    assert [each.code for each in of.get_target_languages()] == ["DE", "EN-US"[:2]]
    assert [each.code for each in of.get_source_languages()] == ["EN", "DE"]
    assert of.get_usage().character.count == 4
    [glossary] = of.list_glossaries()
    text = of.translate_text(
        "a cat", source_lang="EN", target_lang="DE", glossary=glossary
    )
    assert text.text == "<de> a cat Kater"
    assert len(of.get_glossary_languages()) == 2
    with pytest.raises(deepl.DeepLException, match="markup is not supported yet"):
        of.translate_text("a", target_lang="DE", tag_handling="xml")


def test_the_package_openai(running):
    server = running(FakeEngine(*BOTH))
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="k", max_retries=0) as of:
        completion = of.chat.completions.create(**CHAT)
        assert completion.choices[0].message.content == "<de> a cat"
        said = [*of.chat.completions.create(**CHAT, stream=True)]
        assert (
            "".join(each.choices[0].delta.content or "" for each in said)
            == "<de> a cat"
        )
        assert said[-1].choices[0].finish_reason == "stop"
        assert [model.id for model in of.models.list()] == [*BOTH]
        with pytest.raises(openai.BadRequestError, match="no direction 'gpt-4'"):
            of.chat.completions.create(**{**CHAT, "model": "gpt-4"})


def test_the_package_libretranslatepy(running):
    of = LibreTranslateAPI(running(FakeEngine(*BOTH)).url)
    assert of.translate("Größe", "en", "de") == "<de> Größe"
    assert of.detect("de: b")[0]["language"] == "de"
    assert [each["code"] for each in of.languages()] == ["en", "de"]


def test_every_row_is_tried_here():
    with open(__file__, encoding="utf-8") as own:
        text = own.read()
    package = {"/v2/usage", "/v2/glossary-language-pairs"}
    for row in ROWS:
        assert row.path in package or f'"{row.path}"' in text, row.path
