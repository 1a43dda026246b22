"""Interfaces of other translation servers, so that their clients work unchanged.

`ROWS` is the table: a line for each path. A function maps a client's fields onto
`Call.translate` and its answers onto the client's body, and beside it stands the body
of the client's errors. docs/serving.md says which clients they are of.
"""

import datetime
import json
import time

from starlette.responses import Response

from t2t_jax.tools.serve.api import GET, POST
from t2t_jax.tools.serve.engine import Direction
from t2t_jax.tools.serve.fields import Refusal, bad, fields
from t2t_jax.tools.serve.service import Call, Row

# Names that clients show; other languages show their code.
_NAMES = (
    "ar:Arabic bg:Bulgarian bn:Bengali ca:Catalan cs:Czech da:Danish de:German "
    "el:Greek en:English es:Spanish et:Estonian fa:Persian fi:Finnish fr:French "
    "he:Hebrew hi:Hindi hr:Croatian hu:Hungarian id:Indonesian it:Italian "
    "ja:Japanese ko:Korean lt:Lithuanian lv:Latvian nl:Dutch no:Norwegian pl:Polish "
    "pt:Portuguese ro:Romanian ru:Russian sk:Slovak sl:Slovenian sr:Serbian "
    "sv:Swedish th:Thai tr:Turkish uk:Ukrainian ur:Urdu vi:Vietnamese zh:Chinese"
)
NAMES = dict(each.split(":") for each in _NAMES.split())
BOTH = GET + POST


def _name(code: str) -> str:
    return NAMES.get(code.lower().replace("_", "-").partition("-")[0], code)


def _plain(format: str | None) -> None:
    if format not in (None, "", "text"):
        raise bad(f"format={format!r}: markup is not supported yet; want format=text")


def _served(call: Call) -> list[Direction]:
    return [*call.service.engine.directions.values()]


def _message(refusal: Refusal, request_id: str) -> dict:
    return {"error": str(refusal), "request_id": request_id}


# ----------------------------------------------------------------------- LibreTranslate


async def libretranslate(call: Call) -> dict:
    f = call.fields
    _plain(f["format"])
    alone = isinstance(call.given["q"], str)
    nbest = f["alternatives"] + 1
    answers = await call.translate(f["q"], f["source"], f["target"], nbest)
    body = {"translatedText": [answer.texts[0] for answer in answers]}
    if f["source"].lower() == "auto":
        guessed = [(answer.language, answer.sureness or 0.0) for answer in answers]
        body["detectedLanguage"] = [
            {"confidence": round(100 * sureness), "language": code}
            for code, sureness in guessed
        ]
    if f["alternatives"]:
        body["alternatives"] = [answer.texts[1:] for answer in answers]
    return {name: value[0] for name, value in body.items()} if alone else body


async def languages(call: Call) -> list[dict]:
    targets: dict[str, list[str]] = {}
    for each in _served(call):
        targets.setdefault(each.source, []).append(each.target)
        targets.setdefault(each.target, [])
    return [
        {"code": code, "name": _name(code), "targets": [*dict.fromkeys(of)]}
        for code, of in targets.items()
    ]


async def detect(call: Call) -> list[dict]:
    code, sureness = call.service.guesser.guess("\n".join(call.fields["q"]))
    return [{"confidence": round(100 * sureness), "language": code}]


async def frontend_settings(call: Call) -> dict:
    settings, first = call.service.settings, _served(call)[0]
    return {
        "apiKeys": bool(settings.keys),
        "keyRequired": bool(settings.keys),
        "charLimit": settings.characters,
        "frontendTimeout": 500,
        "language": {
            "source": {"code": first.source, "name": _name(first.source)},
            "target": {"code": first.target, "name": _name(first.target)},
        },
        "suggestions": False,
        "filesTranslation": False,
        "supportedFilesFormat": [],
    }


# -------------------------------------------------------------------------------- DeepL


def deepl_error(refusal: Refusal, request_id: str) -> dict:
    return {"message": str(refusal), "request_id": request_id}


async def deepl(call: Call) -> dict:
    f = call.fields
    if f["tag_handling"]:
        raise bad("tag_handling: markup is not supported yet; leave it out")
    if f["formality"] in ("more", "less"):
        raise bad(f"formality={f['formality']!r} is not supported; leave it out")
    source, terms = f["source_lang"], f["glossary_id"]
    answers = await call.translate(f["text"], source, f["target_lang"], terms=terms)
    billed = f["show_billed_characters"]
    return {
        "translations": [
            {
                "detected_source_language": answer.language.upper(),
                "text": answer.texts[0],
            }
            | ({"billed_characters": len(text)} if billed else {})
            for text, answer in zip(f["text"], answers, strict=True)
        ]
    }


async def deepl_languages(call: Call) -> list[dict]:
    kind = call.fields["type"]
    if kind not in ("source", "target"):
        raise bad(f"type={kind!r}; want source or target")
    codes = dict.fromkeys(getattr(each, kind) for each in _served(call))
    more = {"supports_formality": False} if kind == "target" else {}
    return [{"language": c.upper(), "name": _name(c), **more} for c in codes]


async def deepl_usage(call: Call) -> dict:
    return {
        "character_count": call.service.metrics.characters,
        "character_limit": 10**12,  # there is none, and clients want a number
    }


async def glossaries(call: Call) -> dict:
    if call.request.method == "POST":
        raise bad("glossaries are files of the server; start it with --terms=NAME=FILE")
    listed = []
    for each in call.service.settings.terms.values():
        direction = call.service.engine.directions[each.direction]
        made = datetime.datetime.fromtimestamp(each.modified, datetime.UTC)
        listed.append(
            {
                "glossary_id": each.name,
                "name": each.name,
                "ready": True,
                "source_lang": direction.source,
                "target_lang": direction.target,
                "creation_time": made.isoformat(),
                "entry_count": len(each.pairs),
            }
        )
    return {"glossaries": listed}


async def glossary_pairs(call: Call) -> dict:
    pairs = dict.fromkeys((each.source, each.target) for each in _served(call))
    named = [{"source_lang": source, "target_lang": target} for source, target in pairs]
    return {"supported_languages": named}


# --------------------------------------------------------------------- chat completions


def chat_error(refusal: Refusal, request_id: str) -> dict:
    kind = "server_error" if refusal.status >= 500 else "invalid_request_error"
    body = {"message": str(refusal), "type": kind, "param": None, "code": refusal.code}
    return {"error": body | {"request_id": request_id}}


async def chat(call: Call) -> dict | Response:
    f = call.fields
    users = [each for each in f["messages"] if each.get("role") == "user"]
    parts = users[-1].get("content") if users else None
    if isinstance(parts, list):  # of text and pictures
        texts = [each.get("text") for each in parts if isinstance(each, dict)]
        parts = "".join(text for text in texts if isinstance(text, str))
    if not isinstance(parts, str):
        raise bad("messages has no text of a user; the last one is translated")
    [answer] = await call.translate([parts], None, None, f["n"], name=f["model"])
    kind = ".chunk" if f["stream"] else ""
    end = "stop" if answer.ended else "length"
    head = {"id": f"chatcmpl-{call.id}", "created": int(time.time())}
    head |= {"model": f["model"], "object": f"chat.completion{kind}"}
    said = [{"role": "assistant", "content": text} for text in answer.texts]
    if not f["stream"]:
        choices = [
            {"index": index, "message": message, "finish_reason": end}
            for index, message in enumerate(said)
        ]
        return head | {"choices": choices}
    return _events(head, said, end)


def _events(head: dict, said: list[dict], end: str) -> Response:
    """The answer as server-sent events: the text, then its end, of each choice."""
    chunks = []
    for index, message in enumerate(said):
        for delta, reason in ((message, None), ({}, end)):
            choice = {"index": index, "delta": delta, "finish_reason": reason}
            chunks.append(json.dumps(head | {"choices": [choice]}))
    body = "".join(f"data: {chunk}\n\n" for chunk in (*chunks, "[DONE]"))
    return Response(body, media_type="text/event-stream")


async def models(call: Call) -> dict:
    owned = {"object": "model", "created": 0, "owned_by": "t2t_jax"}
    return {"object": "list", "data": [{"id": e.name, **owned} for e in _served(call)]}


# ----------------------------------------------- extensions of browsers, Google, OmegaT


async def immersive(call: Call) -> dict:
    f = call.fields
    answers = await call.translate(f["text_list"], f["source_lang"], f["target_lang"])
    return {
        "translations": [
            {"detected_source_lang": answer.language, "text": answer.texts[0]}
            for answer in answers
        ]
    }


async def kiss(call: Call) -> dict:
    f = call.fields
    if (f["text"] is None) == (f["texts"] is None):
        raise bad("want either text or texts, one of them")
    texts = f["texts"] if f["text"] is None else [f["text"]]
    answers = await call.translate(texts, f["from"], f["to"])
    found = [{"text": each.texts[0], "src": each.language} for each in answers]
    return found[0] if f["texts"] is None else {"translations": found}


def deeplx_error(refusal: Refusal, request_id: str) -> dict:
    return {"code": refusal.status, "message": str(refusal), "request_id": request_id}


async def deeplx(call: Call) -> dict:
    f = call.fields
    nbest = call.service.engine.limits.beams[0]
    source, target = f["source_lang"], f["target_lang"]
    [answer] = await call.translate([f["text"]], source, target, nbest)
    return {
        "code": 200,
        "data": answer.texts[0],
        "alternatives": answer.texts[1:],
        "source_lang": answer.language.upper(),
        "target_lang": target.upper(),
        "method": "Free",
    }


def google_error(refusal: Refusal, request_id: str) -> dict:
    why = {"message": str(refusal), "domain": "global", "reason": refusal.code}
    body = {"code": refusal.status, "message": str(refusal), "errors": [why]}
    return {"error": body | {"request_id": request_id}}


async def google(call: Call) -> dict:
    f = call.fields
    _plain(f["format"])
    answers = await call.translate(f["q"], f["source"], f["target"])
    translations = [{"translatedText": answer.texts[0]} for answer in answers]
    if not f["source"]:
        for each, answer in zip(translations, answers, strict=True):
            each["detectedSourceLanguage"] = answer.language
    return {"data": {"translations": translations}}


async def omegat(call: Call) -> dict:
    f = call.fields
    [answer] = await call.translate([f["text"]], f["source"], f["target"])
    return {"translation": answer.texts[0]}


LIBRE = "q:texts! source=auto target! format alternatives:count=0"
DEEPL = "text:texts! source_lang target_lang! glossary_id tag_handling formality"
BILLED = "show_billed_characters:flag=false"
CHAT = "messages:objects! model! n:count=1 stream:flag=false"
LANGUAGES = "source_lang=auto target_lang!"
IMME, KISS = f"text_list:texts! {LANGUAGES}", "text texts:texts from=auto to!"
GOOGLE = "q:texts! source target! format"
# Path, methods, client, what answers, the body of errors, fields.
_TABLE = (
    ("/translate", BOTH, "LibreTranslate", libretranslate, _message, LIBRE),
    ("/languages", GET, "LibreTranslate", languages, _message, ""),
    ("/detect", POST, "LibreTranslate", detect, _message, "q:texts!"),
    ("/frontend/settings", GET, "LibreTranslate", frontend_settings, _message, ""),
    ("/v2/translate", POST, "DeepL", deepl, deepl_error, f"{DEEPL} {BILLED}"),
    ("/v2/languages", BOTH, "DeepL", deepl_languages, deepl_error, "type=source"),
    ("/v2/usage", BOTH, "DeepL", deepl_usage, deepl_error, ""),
    ("/v2/glossaries", BOTH, "DeepL", glossaries, deepl_error, ""),
    ("/v2/glossary-language-pairs", GET, "DeepL", glossary_pairs, deepl_error, ""),
    ("/v1/chat/completions", POST, "Chat completions", chat, chat_error, CHAT),
    ("/v1/models", GET, "Chat completions", models, chat_error, ""),
    ("/imme", POST, "Immersive Translate", immersive, _message, IMME),
    ("/kiss", POST, "Kiss Translator", kiss, _message, KISS),
    ("/deeplx", POST, "DeepLX", deeplx, deeplx_error, f"text! {LANGUAGES}"),
    ("/language/translate/v2", BOTH, "Google", google, google_error, GOOGLE),
    ("/omegat", GET, "OmegaT", omegat, _message, "text! source=auto target!"),
)
KEYLESS = {"/languages", "/frontend/settings"}  # which clients ask before they have one
ROWS = tuple(
    Row(path, methods, client, answer, error, fields(declared), path in KEYLESS)
    for path, methods, client, answer, error, declared in _TABLE
)
