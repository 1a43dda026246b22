"""Interfaces of other translation servers, so that their clients work unchanged.

`ENDPOINTS` is the table: a line for each path. A function maps a client's fields onto
`Call.answers` and its answers onto the client's body; another one makes the body of
the client's errors. docs/serving.md says which clients they are of.
"""

import datetime
import json
import time
from collections.abc import Iterable

from starlette.responses import Response

from t2t_jax.extensions.text.language_names import language_name
from t2t_jax.io.errors import did_you_mean
from t2t_jax.text.languages import identify
from t2t_jax.tools.serve.api import GET, POST
from t2t_jax.tools.serve.fields import Refusal, bad
from t2t_jax.tools.serve.service import Call, DirectionQuery, Endpoint, Line, steps


def _markup(format: str | None) -> str:
    if format not in (None, "", "text", "html"):
        raise bad(f"format={format!r}; want text or html")
    return "html" if format == "html" else ""


def _checked(call: Call, name: str, low: int) -> int:
    """A client's number of translations, or of those besides the best, by its name."""
    high = call.service.engine.limits.beams[0] - 1 + low
    if not low <= (count := call.fields[name]) <= high:
        raise bad(f"{name}={count}; want {low} to {high}")
    return count


def _served(call: Call) -> list[tuple[str, str]]:
    """Source and target of each direction, in BCP 47, as clients spell languages."""
    served = call.service.engine.directions.values()
    return [(identify(e.source).tag, identify(e.target).tag) for e in served]


def _best(answers: Iterable[Line], text: str, language: str) -> list[dict]:
    """The best translations and their sources' languages, under a client's names."""
    return [{text: line.texts[0], language: line.tag} for line in answers]


def _message(refusal: Refusal, request_id: str) -> dict:
    return {"error": str(refusal), "request_id": request_id}


# ----------------------------------------------------------------------- LibreTranslate


async def libretranslate(call: Call) -> dict:
    f = call.fields
    query, markup = DirectionQuery(f["source"], f["target"]), _markup(f["format"])
    nbest = _checked(call, "alternatives", 0) + 1
    answers = await call.answers(f["q"], query, nbest=nbest, markup=markup)
    body = {"translatedText": [answer.texts[0] for answer in answers]}
    if f["source"].lower() == "auto":
        body["detectedLanguage"] = [
            _detected(answer.tag, answer.sureness or 0.0) for answer in answers
        ]
    if f["alternatives"]:
        body["alternatives"] = [answer.texts[1:] for answer in answers]
    alone = isinstance(call.given["q"], str)
    return {name: value[0] for name, value in body.items()} if alone else body


def _detected(code: str, sureness: float) -> dict:
    return {"confidence": round(100 * sureness), "language": code}


async def detect(call: Call) -> list[dict]:
    text = "\n".join(call.fields["q"])
    [guess] = await call.turn(steps(call.service.guesser.guess, [text]))
    return [_detected(identify(guess.code).tag, guess.confidence)]


async def suggest(call: Call) -> dict:
    service, f = call.service, call.fields
    if (file := service.settings.suggestions) is None:
        message = "this server takes no suggestions (--suggestions=FILE)"
        raise Refusal(403, "no_suggestions", message)
    if not (f["q"].strip() and f["s"].strip()):
        raise bad("q or s is empty; want a text and its better translation")
    source = None if f["source"].lower() == "auto" else f["source"]
    direction, *others = service.fitting(source, f["target"])
    query = DirectionQuery(source, f["target"], f["direction"])
    if query.name or any(other.source != direction.source for other in others):
        if (direction := service.choose(f["q"], query).direction) is None:
            raise bad("the language of q is not clear; name it as source")
    record = await service.provenance(direction, None)
    now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    line = {
        **{"time": now, "source": f["q"], "target": f["s"]},
        **{"source_language": direction.source, "target_language": direction.target},
        "direction": direction.name,
        "checkpoints": record["checkpoints"],
        "parameters_sha256": record.get("parameters_sha256"),
    }
    try:
        file.write(json.dumps(line, ensure_ascii=False).encode() + b"\n")
        file.flush()
    except OSError as e:
        message = f"the suggestion is not stored: {e.strerror}"
        raise Refusal(503, "not_stored", message) from None
    return {"success": True}


async def languages(call: Call) -> list[dict]:
    targets: dict[str, dict] = {}  # of each language, in order
    for source, target in _served(call):
        targets.setdefault(source, {})[target] = None
        targets.setdefault(target, {})
    return [
        {"code": code, "name": language_name(code), "targets": [*codes]}
        for code, codes in targets.items()
    ]


async def frontend_settings(call: Call) -> dict:
    settings, (source, target) = call.service.settings, _served(call)[0]
    pair = {"source": source, "target": target}
    return {
        "apiKeys": bool(settings.keys),
        "keyRequired": bool(settings.keys),
        "charLimit": settings.characters,
        "frontendTimeout": 500,
        "language": {n: {"code": c, "name": language_name(c)} for n, c in pair.items()},
        "suggestions": settings.suggestions is not None,
        "filesTranslation": False,
        "supportedFilesFormat": [],
    }


# ------------------------------------------------------------------------ DeepL, DeepLX


def deepl_error(refusal: Refusal, request_id: str) -> dict:
    return {"code": refusal.status, "message": str(refusal), "request_id": request_id}


async def deepl(call: Call) -> dict:
    f = call.fields
    markup, ignored = f["tag_handling"] or "", f["ignore_tags"] or ()
    options = {"markup": markup, "ignored": ignored}
    texts, split = f["text"], f["split_sentences"]
    if split not in ("0", "1", "nonewlines"):
        raise bad(f"split_sentences={split!r}; want 0, 1 or nonewlines")
    if split == "0":
        options["split"] = ""
    if split == "nonewlines" and not markup:  # where they end nothing anyway
        texts = [" ".join(map(str.strip, text.split("\n"))) for text in texts]
    if markup not in ("", "html", "xml"):
        raise bad(f"tag_handling={markup!r}; want html or xml")
    if ignored and not markup:
        raise bad("ignore_tags needs tag_handling=html or xml")
    for name in ("splitting_tags", "non_splitting_tags"):
        if f[name]:
            raise bad(f"{name} is not supported; leave it out")
    if f["formality"] in ("more", "less"):
        raise bad(f"formality={f['formality']!r} is not supported; leave it out")
    query, terms = DirectionQuery(f["source_lang"], f["target_lang"]), f["glossary_id"]
    answers = await call.answers(texts, query, terms=terms, **options)
    rows = _best(answers, "text", "detected_source_language")
    for row, text in zip(rows, f["text"], strict=True):
        row["detected_source_language"] = row["detected_source_language"].upper()
        if f["show_billed_characters"]:
            row["billed_characters"] = len(text)
    return {"translations": rows}


async def deepl_languages(call: Call) -> list[dict]:
    kind = call.fields["type"]
    if kind not in ("source", "target"):
        raise bad(f"type={kind!r}; want source or target")
    codes = dict.fromkeys(pair[kind == "target"] for pair in _served(call))
    formality = {"supports_formality": False} if kind == "target" else {}
    return [
        {"language": c.upper(), "name": language_name(c), **formality} for c in codes
    ]


async def deepl_usage(call: Call) -> dict:
    # There is no limit, and clients want a number.
    return {
        "character_count": call.service.metrics.characters,
        "character_limit": 10**12,
    }


async def glossaries(call: Call) -> dict:
    if call.request.method == "POST":
        raise bad("glossaries are files of the server; start it with --terms=NAME=FILE")
    directions = call.service.engine.directions
    listed = [
        {
            "glossary_id": glossary.name,
            "name": glossary.name,
            "ready": True,
            "source_lang": identify(directions[glossary.direction].source).tag,
            "target_lang": identify(directions[glossary.direction].target).tag,
            "creation_time": _iso_time(glossary.modified),
            "entry_count": glossary.count,
        }
        for glossary in call.service.settings.terms.values()
    ]
    return {"glossaries": listed}


def _iso_time(seconds: float) -> str:
    return datetime.datetime.fromtimestamp(seconds, datetime.UTC).isoformat()


async def glossary_pairs(call: Call) -> dict:
    pairs = dict.fromkeys(_served(call))
    named = [{"source_lang": source, "target_lang": target} for source, target in pairs]
    return {"supported_languages": named}


async def deeplx(call: Call) -> dict:
    f = call.fields
    query = DirectionQuery(f["source_lang"], f["target_lang"])
    nbest = call.service.engine.limits.beams[0]
    [answer] = await call.answers([f["text"]], query, nbest=nbest)
    return {
        "code": 200,
        "data": answer.texts[0],
        "alternatives": answer.texts[1:],
        "source_lang": answer.tag.upper(),
        "target_lang": f["target_lang"].upper(),
        "method": "Free",
    }


# --------------------------------------------------------------------- chat completions


def chat_error(refusal: Refusal, request_id: str) -> dict:
    kind = "server_error" if refusal.status >= 500 else "invalid_request_error"
    body = {"message": str(refusal), "type": kind, "param": None, "code": refusal.code}
    return {"error": body | {"request_id": request_id}}


async def chat(call: Call) -> dict | Response:
    f = call.fields
    messages = [m for m in f["messages"] if m.get("role") == "user"]
    parts = messages[-1].get("content") if messages else None
    if isinstance(parts, list):  # of text and pictures
        texts = [part.get("text") for part in parts if isinstance(part, dict)]
        parts = "".join(text for text in texts if isinstance(text, str))
    if not isinstance(parts, str):
        raise bad("messages has no text of a user; the last one is translated")
    nbest = _checked(call, "n", 1)
    directions, model = call.service.engine.directions, f["model"]
    if model and model not in directions:
        near = did_you_mean(model[:60], directions)
        raise Refusal(400, "unknown_pair", f"no model {model[:60]!r}{near}")
    [answer] = await call.answers([parts], DirectionQuery(name=model), nbest=nbest)
    end = "stop" if answer.result.ended else "length"
    head = {"id": f"chatcmpl-{call.id}", "created": int(time.time()), "model": model}
    events = f["stream"]  # each choice is its text, then its end
    head |= {"object": f"chat.completion{'.chunk' if events else ''}"}
    choices = []
    for index, text in enumerate(answer.texts):
        message = {"role": "assistant", "content": text}
        if events:
            choices += [{"index": index, "delta": message, "finish_reason": None}]
            choices += [{"index": index, "delta": {}, "finish_reason": end}]
        else:
            choices += [{"index": index, "message": message, "finish_reason": end}]
    if not events:
        return head | {"choices": choices}
    chunks = [json.dumps(head | {"choices": [choice]}) for choice in choices]
    body = "".join(f"data: {chunk}\n\n" for chunk in (*chunks, "[DONE]"))
    return Response(body, media_type="text/event-stream")


async def models(call: Call) -> dict:
    owned = {"object": "model", "created": 0, "owned_by": "t2t_jax"}
    names = call.service.engine.directions
    return {"object": "list", "data": [{"id": name, **owned} for name in names]}


# ----------------------------------------------- extensions of browsers, Google, OmegaT


async def immersive(call: Call) -> dict:
    f = call.fields
    query = DirectionQuery(f["source_lang"], f["target_lang"])
    answers = await call.answers(f["text_list"], query)
    return {"translations": _best(answers, "text", "detected_source_lang")}


async def kiss(call: Call) -> dict:
    f = call.fields
    if (f["text"] is None) == (f["texts"] is None):
        raise bad("want either text or texts, one of them")
    texts = f["texts"] if f["text"] is None else [f["text"]]
    answers = await call.answers(texts, DirectionQuery(f["from"], f["to"]))
    rows = _best(answers, "text", "src")
    return rows[0] if f["texts"] is None else {"translations": rows}


def google_error(refusal: Refusal, request_id: str) -> dict:
    reason = {"message": str(refusal), "domain": "global", "reason": refusal.code}
    body = {"code": refusal.status, "message": str(refusal), "errors": [reason]}
    return {"error": body | {"request_id": request_id}}


async def google(call: Call) -> dict:
    f = call.fields
    query, markup = DirectionQuery(f["source"], f["target"]), _markup(f["format"])
    answers = await call.answers(f["q"], query, markup=markup)
    rows = _best(answers, "translatedText", "detectedSourceLanguage")
    for row in rows if f["source"] else ():
        del row["detectedSourceLanguage"]
    return {"data": {"translations": rows}}


async def omegat(call: Call) -> dict:
    f = call.fields
    query = DirectionQuery(f["source"], f["target"])
    [answer] = await call.answers([f["text"]], query)
    return {"translation": answer.texts[0]}


BOTH = GET + POST
PAIR, LANGS = "source=auto target!", "source_lang=auto target_lang!"
LIBRE = f"q:texts! {PAIR} format alternatives:count=0"
SUGGEST = "q! s! source=auto target! direction"
DEEPL = "text:texts! source_lang target_lang! glossary_id formality tag_handling "
DEEPL += "ignore_tags:names split_sentences:word=1 splitting_tags non_splitting_tags"
BILLED = "show_billed_characters:flag=false"
CHAT = "messages:objects! model! n:count=1 stream:flag=false"
IMME, KISS = f"text_list:texts! {LANGS}", "text texts:texts from=auto to!"
GOOGLE = "q:texts! source target! format"
_LIBRE, _DEEPL, _CHAT = "LibreTranslate", "DeepL", "Chat completions"
_IMME, _KISS = "Immersive Translate", "Kiss Translator"
ENDPOINTS = (
    Endpoint("/translate", BOTH, _LIBRE, libretranslate, _message, LIBRE),
    Endpoint("/suggest", POST, _LIBRE, suggest, _message, SUGGEST),
    # Clients ask for languages and settings before they have a key.
    Endpoint("/languages", GET, _LIBRE, languages, _message, "", True),
    Endpoint("/detect", POST, _LIBRE, detect, _message, "q:texts!"),
    Endpoint("/frontend/settings", GET, _LIBRE, frontend_settings, _message, "", True),
    Endpoint("/v2/translate", POST, _DEEPL, deepl, deepl_error, f"{DEEPL} {BILLED}"),
    Endpoint(
        "/v2/languages", BOTH, _DEEPL, deepl_languages, deepl_error, "type=source"
    ),
    Endpoint("/v2/usage", BOTH, _DEEPL, deepl_usage, deepl_error),
    Endpoint("/v2/glossaries", BOTH, _DEEPL, glossaries, deepl_error),
    Endpoint("/v2/glossary-language-pairs", GET, _DEEPL, glossary_pairs, deepl_error),
    Endpoint("/v1/chat/completions", POST, _CHAT, chat, chat_error, CHAT),
    Endpoint("/v1/models", GET, _CHAT, models, chat_error),
    Endpoint("/imme", POST, _IMME, immersive, _message, IMME),
    Endpoint("/kiss", POST, _KISS, kiss, _message, KISS),
    Endpoint("/deeplx", POST, "DeepLX", deeplx, deepl_error, f"text! {LANGS}"),
    Endpoint("/language/translate/v2", BOTH, "Google", google, google_error, GOOGLE),
    Endpoint("/omegat", GET, "OmegaT", omegat, _message, f"text! {PAIR}"),
)
