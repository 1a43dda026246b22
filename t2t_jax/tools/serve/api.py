"""The server's own interface: `/v1/translate`, `/v1/directions`; is it ready?

Other interfaces say less of a translation; here are all hypotheses, confidence, the
details of words, and what the translation depends on.
"""

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

from starlette.responses import PlainTextResponse, Response

from t2t_jax.decoding.alignment import word_texts, words_of_target
from t2t_jax.decoding.results import Hypothesis, Translation
from t2t_jax.io.errors import UserError
from t2t_jax.tools.serve.engine import Details, Direction, Options
from t2t_jax.tools.serve.fields import Refusal, bad, fields
from t2t_jax.tools.serve.service import Call, Chosen, Row, join, split


def error(refusal: Refusal, request_id: str) -> dict:
    """The body of an error; of all that no client's interface answers, too."""
    message = {"code": refusal.code, "message": str(refusal), "request_id": request_id}
    return {"error": message}


async def translate(call: Call) -> dict:
    """Translates lines; one that is refused has its error in place of a translation."""
    f, service = call.fields, call.service
    if (f["lines"] is None) == (f["text"] is None):
        raise bad("want either lines, a list of texts, or text; one of them")
    texts = [f["text"]] if f["lines"] is None else f["lines"]
    pair = f["source"], f["target"]
    chosen = service.chosen(texts, *pair, f["direction"] or None)
    lines = texts
    if f["lines"] is None:
        lines = split(f["text"])
        chosen *= len(lines)
    directions = [each.direction for each in chosen]
    found = await call.lines(lines, directions, _options(call, lines, directions))
    refused = [_refused(each, f["min_confidence"]) for each in found]
    details: Sequence[Details | None] = [None] * len(lines)
    if f["details"]:
        shown = [
            None if no else each for no, each in zip(refused, directions, strict=True)
        ]
        details = await call.details(shown, found)
    rows = zip(lines, chosen, found, refused, details, strict=True)
    names = {each.name for each in directions if each}
    answer: dict[str, Any] = {
        "direction": names.pop() if len(names) == 1 else None,
        "translations": [_line(*row) for row in rows],
    }
    if f["text"] is not None and not any(isinstance(t, UserError) for t in found):
        best = (each["hypotheses"][0]["text"] for each in answer["translations"])
        answer["text"] = join(f["text"], best)
    if f["provenance"]:
        of = {each.name: each for each in directions if each}
        made = {
            name: await service.provenance(each, f["beam"]) for name, each in of.items()
        }
        answer["provenance"] = next(iter(made.values())) if len(made) == 1 else made
    return answer


def _options(call: Call, lines: list, directions: list) -> list[Options]:
    f, count = call.fields, len(lines)
    given = f["prefix"] or [""]
    prefixes = given if len(given) != 1 else given * count
    if len(prefixes) != count:
        raise bad(
            f"prefix has {len(prefixes)} texts for {count} lines; want one, or all"
        )
    of_all = [_for_each(f[name] or [], count, name) for name in ("must", "must_not")]
    options = []
    for line, direction, prefix, must, must_not in zip(
        lines, directions, prefixes, *of_all, strict=True
    ):
        if f["terms"] and direction:
            must += call.service.terms(f["terms"], direction).phrases(line)
        must = tuple(dict.fromkeys(must))
        options.append(Options(f["beam"], f["nbest"], prefix, must, must_not))
    return options


def _for_each(phrases: list, count: int, name: str) -> list[tuple[str, ...]]:
    """Phrases for all lines, or a list with those of each."""
    if not any(isinstance(each, list) for each in phrases):
        return [tuple(phrases)] * count
    if len(phrases) != count:
        raise bad(
            f"{name} has {len(phrases)} lists for {count} lines; want one for each"
        )
    return [tuple(each) if isinstance(each, list) else (each,) for each in phrases]


def confidence(best: Hypothesis) -> float:
    """The geometric mean of the probabilities of a hypothesis's tokens, 0 to 1."""
    return math.exp(min(0.0, best.log_prob) / max(len(best.tokens), 1))


def _refused(found: Translation | UserError, least: float | None) -> bool:
    """True if a translation's confidence is lower than wanted."""
    if least is None or isinstance(found, UserError):
        return False
    return confidence(found.best) < least


def _line(
    line: str,
    chosen: Chosen,
    found: Translation | UserError,
    refused: bool,
    details: Details | None,
) -> dict[str, Any]:
    answer: dict[str, Any] = {"source": line}
    if chosen.sureness is not None:
        sureness = round(chosen.sureness, 4)
        answer["detected"] = {"language": chosen.language, "confidence": sureness}
    if isinstance(found, UserError):
        return answer | {"error": str(found)}
    answer["hypotheses"] = [
        {
            "text": "" if refused else each.text,
            "score": _finite(each.score),
            "log_prob": _finite(each.log_prob),
            "ended": each.ended,
            "tokens": [] if refused else [*map(int, each.tokens)],
        }
        for each in found.hypotheses
    ]
    answer |= {"confidence": confidence(found.best), "cut": found.cut}
    if refused:
        answer["refused"] = True
    if details is not None and chosen.direction is not None:
        answer["details"] = _details(details, found.best, chosen.direction)
    return answer


def _details(details: Details, best: Hypothesis, direction: Direction) -> dict:
    """Tokens and words; a word's log-probability is the sum of its tokens'."""
    vocabulary = direction.translator.vocabulary
    words = word_texts(vocabulary, best.tokens)
    sums = [0.0] * len(words)
    of_token = words_of_target(vocabulary, best.tokens)
    for word, log_prob in zip(of_token, details.score.log_probs, strict=False):  # EOS
        if word >= 0:
            sums[word] += log_prob
    alignment = details.alignment
    return {
        "pieces": [*details.score.pieces],
        "log_probs": [*map(_finite, details.score.log_probs)],
        "words": words,
        "word_log_probs": [*map(_finite, sums)],
        "alignment": alignment and [[*map(int, link)] for link in alignment.links],
    }


def _finite(number: float) -> float | None:
    """JSON has no infinity, the score of what cannot be."""
    return float(number) if math.isfinite(number) else None


async def directions(call: Call) -> dict:
    service, limits = call.service, call.service.engine.limits
    settings = dataclasses.asdict(service.settings)
    named = ("characters", "lines", "bytes", "seconds")
    of_all = {"beams": [*limits.beams], "longest": limits.longest}
    of_all |= {"phrases": limits.phrases}
    return {
        "directions": [
            {"name": each.name, "source": each.source, "target": each.target, **of_all}
            for each in service.engine.directions.values()
        ],
        "limits": {name: settings[name] for name in named},
        "terms": {t.name: t.direction for t in service.settings.terms.values()},
        "key": bool(service.settings.keys),
    }


async def health(call: Call) -> dict:
    return {"status": "ok"}


async def ready(call: Call) -> Any:
    service = call.service
    body = {"ready": service.engine.ready and not service.stopping}
    body |= {"stopping": service.stopping, "compiled": service.compiled}
    call.status = 200 if body["ready"] else 503
    return body


async def metrics(call: Call) -> Response:
    engine = call.service.engine
    used, computed = engine.rows()
    now = {
        "queued_lines": ("gauge", "Lines waiting or searched.", engine.queued()),
        "rows_used_total": ("counter", "Rows of batches that had a line.", used),
        "rows_computed_total": ("counter", "Rows of batches, by stride.", computed),
        "compilations_since_ready": ("counter", "Should be 0.", engine.compilations),
        "ready": ("gauge", "1 once all is compiled.", engine.ready),
    }
    kind = "text/plain; version=0.0.4"
    return PlainTextResponse(call.service.metrics.text(now), media_type=kind)


async def page(call: Call) -> Response:
    from t2t_jax.tools.serve.page import page as made

    headers = {"Content-Security-Policy": "frame-ancestors 'none'"}
    return Response(made(), media_type="text/html", headers=headers)


GET, POST = ("GET",), ("POST",)
_FIELDS = (
    "lines:texts text source target direction beam:count nbest:count=1 prefix:texts "
    "must:phrases must_not:phrases terms details:flag=false min_confidence:number "
    "provenance:flag=false"
)
ROWS = (
    Row(
        "/v1/translate",
        POST,
        "Translate lines, with all that is known of each translation",
        translate,
        error,
        fields(_FIELDS),
        strict=True,
    ),
    Row("/v1/directions", GET, "Directions, limits", directions, error, keyless=True),
    Row("/health", GET, "The process lives", health, error, keyless=True),
    Row("/ready", GET, "All is compiled", ready, error, keyless=True),
    Row("/metrics", GET, "Metrics for Prometheus", metrics, error, keyless=True),
    Row("/", GET, "A page to translate on", page, error, keyless=True),
)
