"""The server's own interface: `/v1/translate`, `/v1/directions`; is it ready?

Other interfaces say less of a translation; here are all hypotheses, confidence, the
details of words, and what the translation depends on.
"""

import dataclasses
import importlib.util
import math
import re
from collections.abc import Generator
from functools import partial
from itertools import pairwise
from typing import Any

from starlette.responses import PlainTextResponse, Response

from t2t_jax.decoding.search_options import (
    PreservingOptions,
    SearchRequest,
    option_names,
)
from t2t_jax.extensions.text.sentences import sentences as divided
from t2t_jax.io.errors import UserError, shortened
from t2t_jax.tools.serve.fields import MESSAGE, Refusal, bad
from t2t_jax.tools.serve.precision import Precision, confidence
from t2t_jax.tools.serve.service import (
    Call,
    DirectionQuery,
    Endpoint,
    Line,
    steps,
    too_large,
)

STUCK = 60.0  # seconds; no step of a turn or a search takes so long


def error(refusal: Refusal, request_id: str) -> dict:
    """The body of an error; of all that no client's interface answers, too."""
    message = {"code": refusal.code, "message": str(refusal), "request_id": request_id}
    return {"error": message}


async def translate(call: Call) -> dict:
    """Translates lines; one that is refused has its error in place of a translation."""
    f, service = call.fields, call.service
    if (f["lines"] is None) == (f["text"] is None):
        raise bad("want either lines, a list of texts, or text; one of them")
    if not 0 <= (f["min_precision"] or 0) <= 1:
        raise bad(f"min_precision={f['min_precision']}; want a share, 0 to 1")
    query = DirectionQuery(f["source"], f["target"], f["direction"])
    if preserved := {name: f[name] for name in PRESERVING if f[name]}:
        return await _preserved(call, query, preserved)
    parts = f["lines"]
    if parts is None:
        if (count := f["text"].count("\n") + 1) > service.settings.lines:
            raise too_large(count, "lines", service.settings.lines)
        # All lines of a text have the direction of the whole.
        [template] = await call.lines([f["text"]], query)
        parts = re.split("\r?\n", f["text"])
        lines = [dataclasses.replace(template, text=part) for part in parts]
    else:
        lines = await call.lines(parts, query)
    _set_requests(call, lines)
    directions = {x.direction.name: x.direction for x in lines if x.direction}
    beam, required = 0 if f["samples"] else f["beam"], f["min_precision"] is not None
    tables = {
        name: service.precision(direction, beam, required)
        for name, direction in directions.items()
    }
    hard = (f["terms"], "hard") if f["terms"] else ()
    await call.translate(lines, PreservingOptions(), *hard)
    rows = await call.turn(steps(partial(_row, call, tables), lines))
    if f["details"]:
        answered = zip(lines, rows, strict=True)
        await call.explain([line for line, row in answered if "refused" not in row])
        details = await call.turn(steps(_details, lines))
        for row, line_details in zip(rows, details, strict=True):
            row |= line_details
    names = [*directions]
    answer = {"direction": names[0] if len(names) == 1 else None, "translations": rows}
    if f["text"] is not None and not any("error" in row for row in rows):
        best = (row["hypotheses"][0]["text"] for row in rows)
        answer["text"] = ("\r\n" if "\r\n" in f["text"] else "\n").join(best)
    if f["provenance"]:
        records = {}
        for name, direction in directions.items():
            records[name] = await service.provenance(direction, f["beam"])
            if table := tables[name]:
                records[name]["precision"] = table.facts
        answer["provenance"] = records[names[0]] if len(names) == 1 else records
    return answer


async def _preserved(call: Call, query: DirectionQuery, preserved: dict) -> dict:
    """Translates texts whose markup, placeholders or terms are kept.

    The answer has no tokens or scores.
    """
    f = call.fields
    if unused := [name for name in OF_LINES if f[name] not in (None, False, 0)]:
        raise bad(f"{', '.join(unused)}: not available with {', '.join(preserved)}")
    texts = [f["text"]] if f["lines"] is None else f["lines"]
    options = {"split": ""} | preserved
    answers = await call.answers(
        texts, query, nbest=f["nbest"], terms=f["terms"], **options
    )
    rows = [
        {"source": text, "hypotheses": [{"text": t} for t in answer.texts]}
        for text, answer in zip(texts, answers, strict=True)
    ]
    text = {"text": answers[0].texts[0]} if f["text"] is not None else {}
    directions = call.service.engine.directions
    direction = call.label if call.label in directions else None
    return {"direction": direction, "translations": rows} | text


def _set_requests(call: Call, lines: list[Line]) -> None:
    f, count = call.fields, len(lines)
    prefixes = f["prefix"] or [None]
    columns = {"prefix": prefixes * count if len(prefixes) == 1 else prefixes}
    for name in ("must", "must_not"):
        phrases = f[name] or []
        if any(isinstance(entry, list) for entry in phrases):
            lists = ([x] if isinstance(x, str) else x for x in phrases)
            columns[name] = [tuple(dict.fromkeys(entries)) for entries in lists]
        else:
            columns[name] = [tuple(dict.fromkeys(phrases))] * count
    for name, values in columns.items():
        if len(values) != count:
            problem = f"{name} is for {len(values)} lines, and there are {count}"
            raise bad(f"{problem}; want one for all, or one for each")
    for line, prefix, must, must_not in zip(lines, *columns.values(), strict=True):
        line.request = SearchRequest(
            nbest=f["nbest"],
            search={"beam": f["beam"]} if f["beam"] else {},
            prefix=prefix,
            must=must,
            must_not=must_not,
            samples=f["samples"],
            seed=f["seed"],
        )
        if line.direction and re.search("[\r\n]", line.text):
            line.result = UserError("has a line feed in it; send it as two lines")


def _row(call: Call, tables: dict[str, Precision | None], line: Line) -> dict[str, Any]:
    """The answer to a line; without its text if it is too unsure."""
    row: dict[str, Any] = {"source": line.text}
    if line.sureness is not None:
        sureness = round(line.sureness, 4)
        row["detected"] = {"language": line.language, "confidence": sureness}
    if isinstance(line.result, UserError):
        return row | {"error": shortened(str(line.result), MESSAGE)}
    best = line.result.best
    # For each of these there is a field `min_...`.
    sure = {"confidence": confidence(best)}
    if best.tokens and (table := tables[line.direction.name]):
        sure["precision"] = table.at(sure["confidence"])
    refused = any(sure[name] < (call.fields[f"min_{name}"] or 0.0) for name in sure)
    row["hypotheses"] = [
        {
            "text": "" if refused else hypothesis.text,
            "score": _finite(hypothesis.score),
            "log_prob": _finite(hypothesis.log_prob),
            "ended": hypothesis.ended,
            "tokens": [] if refused else [*map(int, hypothesis.tokens)],
        }
        for hypothesis in line.result.hypotheses
    ]
    row |= sure | {"cut": line.result.cut}
    return row | ({"refused": True} if refused else {})


def _details(line: Line) -> dict:
    """Tokens and words; a word's log-probability is the sum of its tokens'."""
    if line.details is None:
        return {}
    vocabulary, tokens = line.direction.translator.vocabulary, line.result.best.tokens
    score, alignment = line.details.score, line.details.alignment
    words = vocabulary.words(tokens, line=line.result.best.text)
    sums = [0.0] * len(words.spans)
    for word, log_prob in zip(words.of_token, score.log_probs, strict=True):
        if word >= 0:
            sums[word] += log_prob
    details = {
        "pieces": [*score.pieces],
        "log_probs": [*map(_finite, score.log_probs)],
        "words": words.texts,
        "word_log_probs": [*map(_finite, sums)],
        "alignment": alignment and [[*map(int, link)] for link in alignment.links],
    }
    return {"details": details}


def _finite(number: float) -> float | None:
    """JSON has no infinity, the score of what cannot be."""
    return float(number) if math.isfinite(number) else None


async def directions(call: Call) -> dict:
    service, settings = call.service, call.service.settings
    limits = service.engine.limits
    measured = {name: table.facts for name, (_, table) in service.measured.items()}
    return {
        "directions": [
            {
                "name": direction.name,
                "source": direction.source,
                "target": direction.target,
                "weights": [member.weights for member in direction.translator.members],
                "beams": [*limits.beams],
                "longest": limits.longest,
                "phrases": limits.phrases,
                "samples": limits.samples,
                "precision": measured.get(direction.name),
            }
            for direction in service.engine.directions.values()
        ],
        "limits": {
            name: getattr(settings, name)
            for name in ("characters", "lines", "bytes", "seconds")
        },
        "terms": {t.name: t.direction for t in settings.terms.values()},
        "key": bool(settings.keys),
    }


async def sentences(call: Call) -> dict:
    """Divides lines into the sentences, or parts, that a model translates well."""
    f, service = call.fields, call.service
    if importlib.util.find_spec("sentencex") is None:
        message = "this server does not divide lines: sentencex is not installed"
        raise Refusal(501, "no_splitter", message)
    query = DirectionQuery(f["source"], f["target"], f["direction"])
    lines = await call.lines(f["lines"], query)
    longest = service.engine.limits.longest

    def divide(line: Line) -> Generator[None, None, dict]:
        direction = line.direction or next(iter(service.engine.directions.values()))
        support, ends = direction.translator.preserving_support, [0]
        fits = partial(support.fits, longest=longest)
        for spans in divided(line.text, direction.source, fits):
            ends += (place for span in spans for place in span)
            yield
        parts = [line.text[b:e] for b, e in pairwise([*ends, len(line.text)])]
        return {"sentences": parts[1::2], "between": parts[::2]}

    rows = [await call.turn(divide(line)) for line in lines]
    names = {line.direction.name for line in lines if line.direction}
    return {"direction": names.pop() if len(names) == 1 else None, "lines": rows}


async def health(call: Call) -> dict:
    if (seconds := call.service.engine.stuck()) > STUCK:
        call.status = 503
        return {"status": f"a thread has not gone on for {seconds:.0f} s"}
    return {"status": "ok"}


async def ready(call: Call) -> dict:
    service = call.service
    is_ready = service.ready and not service.stopping
    is_ready = is_ready and service.engine.stuck() <= STUCK
    call.status = 200 if is_ready else 503
    return {
        "ready": is_ready,
        "stopping": service.stopping,
        "compiled": service.compiled,
        "compiling": service.engine.compiling,
    }


async def metrics(call: Call) -> Response:
    service, engine = call.service, call.service.engine
    used, computed = engine.rows()
    values = {
        "queued_lines": ("gauge", "Lines waiting or searched.", engine.queued()),
        "rows_used_total": ("counter", "Rows of batches that had a line.", used),
        "rows_computed_total": ("counter", "Rows of batches, by stride.", computed),
        "compilations_since_ready": ("gauge", "Should be 0.", engine.compilations),
        "ready": ("gauge", "1 once short lines are answered.", service.ready),
    }
    kind = "text/plain; version=0.0.4"
    return PlainTextResponse(service.metrics.text(values), media_type=kind)


async def page(call: Call) -> Response:
    from t2t_jax.tools.serve.page import page as page_html

    policy = "frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
    headers = {"Content-Security-Policy": policy}
    return Response(page_html(), media_type="text/html", headers=headers)


# Fields of what is preserved, and those that do not go with them.
PRESERVING = [
    n for n in option_names(PreservingOptions) if n not in ("format", "terms")
]
_KINDS = {"ignored": ":names", "placeholders": ":flag=false"}  # others are texts
OF_LINES = "beam", "prefix", "must", "must_not", "details", "min_confidence"
OF_LINES += ("min_precision", "provenance", "samples", "seed")
GET, POST = ("GET",), ("POST",)
TRANSLATE = (
    "lines:texts text source target direction beam:count nbest:count=1 prefix:texts "
    "must:phrases must_not:phrases terms details:flag=false min_confidence:number "
    "min_precision:number provenance:flag=false samples:count=0 seed:count=0 "
    + " ".join(f"{name}{_KINDS.get(name, '')}" for name in PRESERVING)
)
ALL = "Translate lines, with all that is known of each translation"
LINES = "lines:texts! source target direction"
SENTENCES = "Divide lines into sentences, and long ones into parts"
ENDPOINTS = (
    Endpoint("/v1/translate", POST, ALL, translate, error, TRANSLATE, strict=True),
    Endpoint("/v1/sentences", POST, SENTENCES, sentences, error, LINES, strict=True),
    Endpoint(
        "/v1/directions", GET, "Directions, limits", directions, error, keyless=True
    ),
    Endpoint("/health", GET, "The process lives", health, error, keyless=True),
    Endpoint("/ready", GET, "Lines are answered", ready, error, keyless=True),
    Endpoint("/metrics", GET, "Metrics for Prometheus", metrics, error, keyless=True),
    Endpoint("/", GET, "A page to translate on", page, error, keyless=True),
)
