"""`pipeline("translation", model=DIR)`: the callable that Transformers had before 5."""

from collections.abc import Callable, Iterable
from typing import Any

from t2t_jax.decoding.translator import Translator
from t2t_jax.io.errors import UserError, did_you_mean
from t2t_jax.io.parts import chunks
from t2t_jax.text.languages import same_language

# Options of Transformers -> those of `Translator.translate`, or of `config.data`.
OPTIONS = {
    "batch_size": "batch_size",
    "num_return_sequences": "nbest",
    "num_beams": "beam",
    "length_penalty": "alpha",
    "early_stopping": "stop",
    "no_repeat_ngram_size": "no_repeat_ngram",
    "repetition_penalty": "repetition_penalty",
    "max_length": "extra_length",
    "max_new_tokens": "extra_length",
    "src_lang": "source",
    "tgt_lang": "target",
}
STOPS = {True: "first", False: "best", "never": "best"}


def pipeline(task: str, model: Any, **options: Any) -> Callable:
    """Returns a callable that translates as Transformers' `pipeline` did.

    It takes a text, a list of texts or another iterable, and options. It returns a list
    with a record `{"translation_text": ...}`; a list of records, or of lists of
    `num_return_sequences`; or an iterator over lists, which reads `batch_size` texts at
    a time (1). Both raise UserError for options, tasks and languages that do not fit.

    Args:
      task: `translation`, or with the model's languages: `translation_en_to_de`.
      model: a workdir or an export, as `Translator.load` takes it, or a `Translator`.
      options: `OPTIONS`, for each call. Log-probabilities are divided by the length to
        the power `length_penalty`. Outputs end at the latest `max_length` (or
        `max_new_tokens`) tokens after the length of the input.
    """
    head, *pair = str(task).split("_")
    if head != "translation" or (pair and (len(pair), pair[1:2]) != (3, ["to"])):
        raise UserError(f"task={task!r}; want 'translation' or 'translation_en_to_de'")
    if pair:
        options = {"src_lang": pair[0], "tgt_lang": pair[2]} | options
    translator = model if isinstance(model, Translator) else Translator.load(model)
    if (kind := translator.config.task.kind) != "translation":
        raise UserError(f"config.task.kind={kind!r}; want a model that translates")
    _search_options(translator, options)  # mistakes are reported now

    def translate(inputs, **changes: Any):
        search = _search_options(translator, options | changes)

        def records(texts: list[str]) -> list[list[dict]]:
            rows = translator.translate(texts, **search)
            return [[{"translation_text": h.text} for h in t.hypotheses] for t in rows]

        if isinstance(inputs, str):
            return records([inputs])[0]
        if not isinstance(inputs, Iterable):
            raise UserError(f"{inputs!r} is not a text; want one, or several")
        if not isinstance(inputs, list):
            batches = chunks(iter(inputs), max(1, search.get("batch_size", 1)))
            return (row for batch in batches for row in records([*batch]))
        rows = records(inputs)
        return [row[0] for row in rows] if all(len(r) == 1 for r in rows) else rows

    return translate


def _search_options(translator: Translator, options: dict[str, Any]) -> dict[str, Any]:
    """The options of `Translator.translate`; checks names and languages."""
    data, search = vars(translator.config.data), {}
    for name, value in options.items():
        if name not in OPTIONS:
            near = did_you_mean(name, OPTIONS)
            raise UserError(f"pipeline has no option {name!r}{near}")
        if value is None:
            continue
        if name not in ("src_lang", "tgt_lang"):
            search[OPTIONS[name]] = value
        elif not same_language(str(value), data[OPTIONS[name]]):
            raise UserError(
                f"{name}={value!r}, but the model translates from {data['source']!r} "
                f"to {data['target']!r}; load a model of your languages"
            )
    if "alpha" in search:
        search["penalty"] = "length"
    if "stop" in search:
        if search["stop"] not in STOPS:
            stop = search["stop"]
            raise UserError(f"early_stopping={stop!r}; want True, False or 'never'")
        search["stop"] = STOPS[search["stop"]]
    return search
