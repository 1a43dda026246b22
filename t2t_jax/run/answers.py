"""Answers of the server, translated again: do they come to the same bits?"""

import dataclasses
import json
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from etils import epath

from t2t_jax.config import SearchOptions
from t2t_jax.decoding.results import Hypothesis
from t2t_jax.decoding.translator import Translator
from t2t_jax.io.errors import UserError
from t2t_jax.io.messages import say
from t2t_jax.text.sentences import core
from t2t_jax.workdir import Workdir

# What a hypothesis of an answer has.
FIELDS = ("text", "score", "log_prob", "ended", "tokens")


class Repeated(NamedTuple):
    """The result of `repeat`."""

    lines: int  # that were translated again
    different: str  # the first difference; "" if everything is equal


def read_answer(file: epath.PathLike) -> tuple[dict, dict]:
    """Reads a request to /v1/translate and its response, with its provenance.

    Raises:
      UserError: the file is not one, or the answer cannot be repeated from it.
    """
    try:
        answer = json.loads(epath.Path(file).read_bytes())
        request, response = dict(answer["request"]), dict(answer["response"])
        rows, provenance = response["translations"], response["provenance"]
        _ = [row["source"] for row in rows], provenance.items()
    except OSError as e:
        raise UserError(f"--answer={file}: {e.strerror or e}") from None
    except (ValueError, TypeError, LookupError, AttributeError):
        raise UserError(
            f'--answer={file}: want JSON, {{"request": {{...}}, "response": {{...}}}}, '
            'of a POST to /v1/translate with "provenance": true'
        ) from None
    if "checkpoints" not in provenance:
        raise UserError(
            f"--answer={file} is not of one direction; send the lines of each "
            "direction by themselves"
        )
    if request.get("terms"):
        raise UserError(
            f"--answer={file}: terms={request['terms']!r} is a list of the server; "
            "send its phrases in must instead"
        )
    return request, response


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
    translator = Translator.ensemble(
        [
            Translator.load(workdir, ",".join(map(str, of)), *types)
            for workdir, of, *types in zip(
                workdirs, steps, dtypes, weights, strict=True
            )
        ]
    )
    # Options at their default are not recorded.
    defaults = {each.name: each.default for each in dataclasses.fields(SearchOptions)}
    translator = translator.with_options(**defaults | provenance["decode"])
    tag = provenance.get("tag", "")
    return translator.tagged(tag) if tag else translator


def repeat(workdirs: Sequence[Workdir], request: dict, response: dict) -> Repeated:
    """Translates the lines of an answer again, and compares every hypothesis.

    Blank lines, which are not searched, and those that had an error are left out.
    """
    provenance, rows = response["provenance"], response["translations"]
    translator = load(workdirs, provenance)
    then, now = provenance["parameters_sha256"], translator.provenance()
    if then != now["parameters_sha256"]:
        digests = f"{then} then, {now['parameters_sha256']} now"
        return Repeated(0, f"the parameters are others: SHA-256 {digests}")
    chosen = [n for n, r in enumerate(rows) if r["source"].strip() and "error" not in r]
    sources = [rows[n]["source"] for n in chosen]
    if errors := sum("error" in row for row in rows):
        say(f"{errors:,} of {len(rows):,} lines had an error; not translated again")

    prefix = request.get("prefix") or ""
    if isinstance(prefix, list):
        prefix = prefix[0] if len(prefix) == 1 else [prefix[n] for n in chosen]

    def phrases(name: str) -> list | str:
        """Phrases for all lines, or a list with those of each that is repeated."""
        value = request.get(name) or []
        of_each = any(isinstance(each, list) for each in value)
        return [value[n] for n in chosen] if of_each else value

    if samples := int(request.get("samples") or 0):
        search = translator.sample
        options = provenance["sampling"] | {"seed": int(request.get("seed") or 0)}
    else:
        search = translator.translate
        options = {
            "nbest": request.get("nbest") or 1,
            "beam": request.get("beam") or provenance["decode"]["beam"],
            "must": phrases("must"),
        }
    translations = search(
        [source[slice(*core(source))] for source in sources],
        prefix=prefix,
        must_not=phrases("must_not"),
        **options,
    )
    for n, source, found in zip(chosen, sources, translations, strict=True):
        hypotheses = found.surrounded(source).hypotheses[: samples or None]
        if difference := _difference(rows[n], hypotheses):
            return Repeated(len(chosen), f"line {n + 1}, {difference}")
    return Repeated(len(chosen), "")


def _difference(row: dict, hypotheses: tuple[Hypothesis, ...]) -> str:
    """The first difference of a line of an answer; "" if there is none."""
    if len(row["hypotheses"]) != len(hypotheses):
        return f"hypotheses: {len(row['hypotheses'])} then, {len(hypotheses)} now"
    # A line with too low a confidence was answered with empty texts.
    hidden = ("text", "tokens") if row.get("refused") else ()
    rows = zip(row["hypotheses"], hypotheses, strict=True)
    for number, (then, hypothesis) in enumerate(rows, 1):
        now = dataclasses.asdict(hypothesis) | {"tokens": [*hypothesis.tokens]}
        for name in (name for name in FIELDS if name not in hidden):
            value = now[name]
            if isinstance(value, float) and not math.isfinite(value):
                value = None  # as JSON has it
            if then.get(name) != value:
                return (
                    f"hypothesis {number}, {name}: {then.get(name)} then, {value} now"
                )
    return ""
