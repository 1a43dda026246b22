"""Answers of the server, translated again: do they come to the same bits?"""

import dataclasses
import json
import math
import re
import reprlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from etils import epath

from t2t_jax.config import WEIGHTS, SearchOptions
from t2t_jax.decoding.results import Hypothesis
from t2t_jax.decoding.search_options import SamplingOptions, option_names
from t2t_jax.decoding.translator import Translator
from t2t_jax.io.errors import UserError
from t2t_jax.io.messages import say
from t2t_jax.sections import checked_options
from t2t_jax.text.units import core
from t2t_jax.workdir import Workdir

# What a hypothesis of an answer has.
FIELDS = ("text", "score", "log_prob", "ended", "tokens")
# Fields of a request that are repeated or compared, or change no translation.
ASKED = "lines", "text", "source", "target", "direction", "beam", "nbest", "prefix"
ASKED += "must", "must_not", "details", "min_confidence", "min_precision", "provenance"
ASKED += "samples", "seed", "api_key"
# The shapes of values in a file, which may be a stranger's: a type, types, a list of a
# shape, or the shapes of some keys, where `?` means that it may be missing or null.
_PHRASES = str, [(str, [str])]
_COUNT = int, str  # as forms have it
_REQUEST = {"lines?": (str, [str]), "text?": str, "prefix?": (str, [str])}
_REQUEST |= {"must?": _PHRASES, "must_not?": _PHRASES, "direction?": str}
_REQUEST |= dict.fromkeys(("beam?", "nbest?", "samples?", "seed?"), _COUNT)
_ROW = {"source": str, "error?": str, "hypotheses?": [{}]}
_PROVENANCE = {"checkpoints": [[int]], "dtype": [str], "parameters_sha256": [str]}
_PROVENANCE |= {"decode": {"beam": int, "max_source?": int, "extra_length?": int}}
_PROVENANCE |= {"weights?": [str], "sampling?": {"samples?": int}, "tag?": str}
_RESPONSE = {"translations": [_ROW], "provenance": {}, "direction?": str, "text?": str}
_ANSWER = {"request": _REQUEST, "response": _RESPONSE}
# No server is started with more, unless the config of its model has more.
MOST = {"beam": 128, "extra_length": 1 << 12, "max_source": 1 << 14}
MOST |= {"nbest": 128, "samples": 1024}


class Repeated(NamedTuple):
    """The result of `repeat`."""

    lines: int  # that were translated again
    different: str  # the first difference; "" if everything is equal


def read_exchanges(file: epath.PathLike) -> list[tuple[dict, dict]]:
    """Reads requests to /v1/translate and their responses, with their provenance.

    It is one {"request": ..., "response": ...} or a list of them, as JSON, or the page
    "explanation.html" that has them in it.

    Raises:
      UserError: the file is not one, or an answer cannot be repeated from it.
    """
    try:
        content = epath.Path(file).read_bytes()
        page = re.search(rb'<script [^<>]*id="answer"[^<>]*>([^<]*)</script>', content)
        answers = json.loads(page[1] if page else content)
        answers = answers if isinstance(answers, list) else [answers]
        misfits = (_misfit(answer, _ANSWER) for answer in answers)
        wrong = next(filter(None, misfits), "") if answers else "the list is empty"
    except OSError as e:
        raise UserError(f"--answer={file}: {e.strerror or e}") from None
    except (ValueError, RecursionError):
        wrong = "the file"
    if wrong:
        raise UserError(
            f'--answer={file}: want JSON, {{"request": {{...}}, "response": {{...}}}}, '
            f'of a POST to /v1/translate with "provenance": true; not so: {wrong}'
        )
    return [_checked(file, answer) for answer in answers]


def _checked(file: epath.PathLike, answer: dict) -> tuple[dict, dict]:
    """The request and the response of an answer that can be repeated."""
    request, response = answer["request"], answer["response"]
    provenance = response["provenance"]
    if "checkpoints" not in provenance:
        raise UserError(
            f"--answer={file} is not of one direction; send the lines of each "
            "direction by themselves"
        )
    if request.get("terms"):
        raise UserError(
            f"--answer={file}: terms={_printed(request['terms'])} is a list of the "
            "server; send its phrases in must instead"
        )
    if wrong := _misfit(provenance, _PROVENANCE, "response.provenance"):
        raise UserError(f"--answer={file}: {wrong} is missing, or of another type")
    if foreign := [name for name in request if request[name] and name not in ASKED]:
        raise UserError(
            f"--answer={file}: request.{_printed(foreign[0])} cannot be repeated; the "
            f"fields that can: {', '.join(ASKED)}"
        )
    if (request.get("lines") is None) == (request.get("text") is None):
        raise UserError(f"--answer={file}: want request.lines or request.text, one")
    for part, kind in ("decode", SearchOptions), ("sampling", SamplingOptions):
        options = option_names(kind)
        recorded = (provenance.get(part) or {}).items()
        chosen = {name: value for name, value in recorded if value is not None}
        provenance[part] = chosen
        checked_options(
            kind, {name: chosen[name] for name in chosen if name in options}
        )
        if unknown := chosen.keys() - {*options, "max_source", "samples"}:
            raise UserError(f"--answer={file}: no such options: {_printed(unknown)}")
    return request, response


def _misfit(value: Any, shape: Any, name: str = "") -> str:
    """Returns the name of the first value that is not of its shape; "" if all are."""
    if isinstance(shape, tuple):
        misfits = [_misfit(value, alternative, name) for alternative in shape]
        return "" if "" in misfits else misfits[0]
    if isinstance(shape, list) and isinstance(value, list):
        parts = [(item, shape[0], f"{name}[{n}]") for n, item in enumerate(value)]
    elif isinstance(shape, dict) and isinstance(value, dict):
        parts = []
        for key, part_shape in shape.items():
            part = key.strip("?")
            if part != key:
                part_shape = part_shape, type(None)
            parts.append((value.get(part), part_shape, f"{name}.{part}".strip(".")))
    else:
        return "" if type(value) is shape else name or "the file"
    return next(filter(None, (_misfit(*part) for part in parts)), "")


_SHORT = reprlib.Repr()
_SHORT.maxstring = 200
_printed = _SHORT.repr  # of values of any size and depth, without control characters


def _check_sizes(workdirs: Sequence[Workdir], request: dict, provenance: dict) -> dict:
    """Returns the counts of a request; raises UserError for what no server computes."""
    counts = {}
    for name in ("beam", "nbest", "samples", "seed"):
        value = request.get(name) or 0
        if not re.fullmatch("[0-9]{1,9}", str(value)):
            raise UserError(f"request.{name}={_printed(value)}; want a whole number")
        counts[name] = int(value)
    configs = [vars(workdir.config().decode) for workdir in workdirs]
    for values in (counts, provenance["decode"], provenance["sampling"]):
        for name in values.keys() & MOST.keys():
            limit = max(MOST[name], *(config.get(name, 0) for config in configs))
            if values[name] > limit:
                raise UserError(
                    f"{name}={_printed(values[name])}; want at most {limit:,}"
                )
    return counts


def load(workdirs: Sequence[Workdir], provenance: dict[str, Any]) -> Translator:
    """Loads the translator that an answer's provenance records.

    Args:
      workdirs: of each member.

    Raises:
      UserError: a workdir has not its checkpoints; or it was of other members.
    """
    steps, dtypes = provenance["checkpoints"], provenance["dtype"]
    if len(workdirs) != len(steps):
        raise UserError(
            f"--workdir names {len(workdirs)} workdirs, and an ensemble of "
            f"{len(steps)} answered; want that of each, separated by commas"
        )
    weights = provenance.get("weights") or ["float32"] * len(steps)
    types = {*dtypes} <= {"float32", "bfloat16"} and {*weights} <= {*WEIGHTS}
    if not (types and all(steps) and len(steps) == len(dtypes) == len(weights)):
        raise UserError("the answer's checkpoints, dtype and weights do not fit")
    translator = Translator.ensemble(
        [
            Translator.load(workdir, ",".join(map(str, steps_used)), *types)
            for workdir, steps_used, *types in zip(
                workdirs, steps, dtypes, weights, strict=True
            )
        ]
    )
    # Options at their default are not recorded.
    defaults = {
        field.name: field.default for field in dataclasses.fields(SearchOptions)
    }
    translator = translator.with_options(**defaults | provenance["decode"])
    tag = provenance.get("tag", "")
    return translator.tagged(tag) if tag else translator


def repeat(workdirs: Sequence[Workdir], request: dict, response: dict) -> Repeated:
    """Translates the lines of an answer again, and compares every hypothesis.

    Blank lines, which are not searched, and those that had an error are left out.
    """
    provenance, rows = response["provenance"], response["translations"]
    counts = _check_sizes(workdirs, request, provenance)
    if difference := _otherwise_asked(request, counts, response):
        return Repeated(0, difference)
    translator = load(workdirs, provenance)
    recorded, current = provenance["parameters_sha256"], translator.provenance()
    if recorded != current["parameters_sha256"]:
        digests = f"{recorded} then, {current['parameters_sha256']} now"
        return Repeated(0, f"the parameters are others: SHA-256 {digests}")
    searched = [
        n for n, r in enumerate(rows) if r["source"].strip() and "error" not in r
    ]
    sources = [rows[n]["source"] for n in searched]
    if errors := sum("error" in row for row in rows):
        say(f"{errors:,} of {len(rows):,} lines had an error; not translated again")

    def of_searched(name: str, values: list) -> list:
        if len(values) != len(rows):
            raise UserError(f"request.{name} is for {len(values)} of {len(rows)} lines")
        return [values[n] for n in searched]

    prefix = request.get("prefix") or ""
    if isinstance(prefix, list):
        prefix = prefix[0] if len(prefix) == 1 else of_searched("prefix", prefix)

    def phrases(name: str) -> list | str:
        """Phrases for all lines, or a list with those of each that is repeated."""
        value = request.get(name) or []
        by_line = any(isinstance(phrase, list) for phrase in value)
        return of_searched(name, value) if by_line else value

    if samples := counts["samples"]:
        search = translator.sample
        options = provenance["sampling"] | {"seed": counts["seed"]}
    else:
        search = translator.translate
        options = {
            "nbest": counts["nbest"] or 1,
            "beam": provenance["decode"]["beam"],
            "must": phrases("must"),
        }
    translations = search(
        [source[slice(*core(source))] for source in sources],
        prefix=prefix,
        must_not=phrases("must_not"),
        **options,
    )
    for n, source, translation in zip(searched, sources, translations, strict=True):
        hypotheses = translation.surrounded(source).hypotheses[: samples or None]
        if difference := _difference(rows[n], hypotheses):
            return Repeated(len(searched), f"line {n + 1}, {difference}")
    return Repeated(len(searched), "")


def _otherwise_asked(request: dict, counts: Mapping, response: dict) -> str:
    """The first thing by which a response is not one to a request; "" if there is none.

    It is what a search does not show: which lines were asked for, and what became of
    lines that are not searched.
    """
    rows, text = response["translations"], request.get("text")
    lines = request.get("lines") if text is None else re.split("\r?\n", text)
    lines = [lines] if isinstance(lines, str) else lines
    if len(lines) != len(rows):
        return f"{len(lines):,} lines were asked for, and {len(rows):,} answered"
    for number, (line, row) in enumerate(zip(lines, rows, strict=True), 1):
        texts = [
            str(hypothesis.get("text")) for hypothesis in row.get("hypotheses") or ()
        ]
        if line != row["source"]:
            texts = f"{_printed(line)} was asked for, and {_printed(row['source'])}"
            return f"line {number}: {texts} answered"
        if not line.strip() and "".join(texts).strip():
            return f"line {number} is blank, and its translation is not"
        limited = request.get("min_confidence") or request.get("min_precision")
        if row.get("refused") and not limited:
            return f"line {number} was refused, and no confidence was asked for"
    joined = None
    if text is not None and not any("error" in row for row in rows):
        best = ((row.get("hypotheses") or [{}])[0].get("text") for row in rows)
        joined = ("\r\n" if "\r\n" in text else "\n").join(map(str, best))
    if response.get("text") != joined:
        return "the text is not that of its lines"
    settings = {
        "direction": (request.get("direction"), response.get("direction")),
        "beam": (counts["beam"], response["provenance"]["decode"]["beam"]),
    }
    for name, (requested, answered) in settings.items():
        if requested and requested != answered:
            return f"{name}: {_printed(requested)} asked, {_printed(answered)} answered"
    return ""


def _difference(row: dict, hypotheses: tuple[Hypothesis, ...]) -> str:
    """The first difference of a line of an answer; "" if there is none."""
    if len(row.get("hypotheses") or ()) != len(hypotheses):
        recorded = len(row.get("hypotheses") or ())
        return f"hypotheses: {recorded} then, {len(hypotheses)} now"
    # A line with too low a confidence was answered with empty texts.
    withheld = ("text", "tokens") if row.get("refused") else ()
    rows = zip(row["hypotheses"], hypotheses, strict=True)
    for number, (recorded, hypothesis) in enumerate(rows, 1):
        current = dataclasses.asdict(hypothesis) | {"tokens": [*hypothesis.tokens]}
        for name in (name for name in FIELDS if name not in withheld):
            value = current[name]
            if isinstance(value, float) and not math.isfinite(value):
                value = None  # as JSON has it
            if recorded.get(name) != value:
                values = f"{_printed(recorded.get(name))} then, {_printed(value)} now"
                return f"hypothesis {number}, {name}: {values}"
    return ""
