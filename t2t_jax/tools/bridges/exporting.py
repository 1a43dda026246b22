"""Exports a run: written under a temporary name, loaded without t2t_jax, compared.

The command is `export_command.py`.
"""

import dataclasses
import itertools
import shutil
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax

from t2t_jax import __version__
from t2t_jax.data.corpus import Corpus, open_specs
from t2t_jax.decoding.batches import longest_output
from t2t_jax.decoding.inputs import longest_source
from t2t_jax.decoding.translator import Translator
from t2t_jax.io.atomic import first_free
from t2t_jax.io.errors import UserError
from t2t_jax.io.locations import join_names, split_names
from t2t_jax.io.messages import say, waiting
from t2t_jax.metrics import measures
from t2t_jax.metrics.text_measures import text_measures
from t2t_jax.tasks.table import task_of
from t2t_jax.text.words import visible
from t2t_jax.tools.bridges.checks import agreement, peer_process
from t2t_jax.tools.bridges.exports.card import translates, write_json
from t2t_jax.tools.bridges.formats import NO_CHANGE, ExportFormat, find_format
from t2t_jax.tools.bridges.table import EXPORTS

AGREEMENT = "agreement.json"
LINES = 1_000  # compared
# BLEU, with 95% confidence: quantized weights fail unless they have lost less, others
# only if they have lost more.
LOST = -1.0


class ComparedLines(NamedTuple):
    """Text to compare translations on."""

    sources: list[str]
    references: list[str] | None  # their translations
    origin: str  # for messages


def export(
    translator: Translator,
    name: str,
    output: str | Path,
    test: str = "",
    scores: Mapping[str, Any] | None = None,
    **options: Any,
) -> dict[str, Any]:
    """Exports a translator, if the result agrees with it, as the command `export` does.

    Args:
      name: of a format in `EXPORTS`.
      output: a new folder; the README.md in it says how to use it.
      test: corpora to compare on, as `config.data.test`; by default the dev and
        test sets of the config.
      scores: the workdir's, by set, for formats with a model card.
      options: of the format; None is not given.

    Returns:
      The content of `agreement.json`: what was compared, and the figures.

    Raises:
      UserError: the format cannot hold the model; a library is missing; or the exported
        model does not agree, then its files are in `OUTPUT.failed`.
    """
    form: ExportFormat = find_format("to", name, EXPORTS)
    output = Path(output).expanduser()
    settings = {key: value for key, value in options.items() if value is not None}
    if unused := sorted(settings.keys() - {*form.options}):
        raise UserError(
            f"--{unused[0]} has no effect with --to={name}; leave it out"
            + (f" (it takes: --{', --'.join(form.options)})" if form.options else "")
        )
    if len(translator.members) > 1:
        raise UserError("an ensemble cannot be exported; give one workdir")
    if (weights := translator.members[0].weights) != "float32":
        raise UserError(
            f"the translator has {weights} weights, and an export starts from float32; "
            "load it without weights=, and let the format quantize (--quantization)"
        )
    check_task(translator, name, form)
    if (groups := translator.config.decode.groups) > 1:
        say(f"the beam has {groups} groups; exported is the plain beam search")
        translator = translator.with_options(groups=1)
    if output.exists():
        raise UserError(f"--output={output} exists; name a new folder")
    if missing := peer_process.missing_packages(form.peer):
        raise UserError(
            f"--to={name} is checked with {' and '.join(missing)}, not installed "
            "here: pip install 't2t_jax[peers]'"
        )
    # Quantized weights do not give the same tokens.
    rounded = settings.get("quantization", "float32") != "float32"
    if rounded and not translates(translator):
        raise UserError(
            f"--quantization={settings['quantization']}: quantized weights are judged "
            "by BLEU of translations, and config.task.kind="
            f"{translator.config.task.kind!r}; leave it out"
        )
    lines = None if form.holds_weights else check_text(translator, test, rounded)
    created = [parent for parent in output.parents if not parent.exists()]
    folder = output.with_name(f"{output.name}.unchecked-{uuid.uuid4().hex[:8]}")
    try:
        folder.mkdir(parents=True)
        with waiting(f"writing {form.name}"):
            job = form.write(translator, folder, settings | {"scores": scores})
        # GPUs and TPUs would round the inputs of float32 products.
        with jax.default_matmul_precision("highest"):
            report = _check(translator, form, folder, job, lines, rounded)
        write_json(folder / AGREEMENT, report)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        for parent in created:
            parent.rmdir()
        raise
    if not report["agrees"]:
        failed = first_free(output.with_name(f"{output.name}.failed"))
        folder.rename(failed)
        raise UserError(
            f"the exported model does not agree with {name}'s own translations of it: "
            f"{report['summary']}. Its files are in {failed}, with {AGREEMENT}; do not "
            "deploy them"
            + ("; export without --quantization, or give more lines, --test" * rounded)
        )
    folder.rename(output)
    size = sum(f.stat().st_size for f in output.rglob("*") if f.is_file())
    say(f"exported to {output}: {form.name}, {size / 1e6:,.1f} MB; {report['summary']}")
    return report


def check_task(translator: Translator, name: str, form: ExportFormat) -> None:
    """Checks that a format other than one of weights may hold the task's model."""
    if not form.holds_weights and not task_of(translator.config).searches:
        formats = [key for key, form in EXPORTS.items() if form.holds_weights]
        raise UserError(
            f"--to={name} exports models that write a text for each source, and "
            f"config.task.kind={translator.config.task.kind!r} does not; --to="
            f"{' or '.join(formats)} holds the weights of any model"
        )


def check_text(translator: Translator, test: str, references: bool) -> ComparedLines:
    """Finds lines to compare translations on, at most `LINES`."""
    data = translator.config.data
    folder = "" if test else data.dir
    run_specs = split_names(f"{data.dev},{data.test}")
    # Text of TensorFlow Datasets may have to be downloaded first, which is not asked.
    run_specs = [place for place in run_specs if not place.startswith("tfds:")]
    specs = test or join_names(run_specs)
    corpora: Sequence[Corpus] = ()
    try:
        corpora = open_specs(specs, task_of(translator.config).open, folder)
    except UserError as e:
        if test:
            raise
        say(f"the run's dev and test text is not here: {e}")
    longest = longest_source(translator.config, translator.model)[0]
    source = translator.vocabulary.source

    def comparable(line: str) -> bool:
        # Other systems translate lines without a visible character, too, and cut lines
        # that are too long in other places.
        return visible(line) and len(source.encode([line], end=True)[0]) <= longest

    all_pairs = (pair for corpus in corpora for pair in corpus.pairs())
    pairs = [*itertools.islice((p for p in all_pairs if comparable(p[0])), LINES)]
    if pairs:
        names = ", ".join(corpus.name for corpus in corpora)
        return ComparedLines(*map(list, zip(*pairs, strict=True)), f"lines of {names}")
    if references:
        raise UserError(
            "quantized weights are judged by BLEU, which needs text with translations; "
            f"give --test=PREFIX of two files, .{data.source} and .{data.target}"
        )
    sources, _ = agreement.random_pairs(translator)
    texts = [" ".join(t.split()) for t in translator.vocabulary.source.decode(sources)]
    return ComparedLines(
        [t for t in texts if comparable(t)], None, "lines of random tokens"
    )


def _check(
    translator: Translator,
    form: ExportFormat,
    folder: Path,
    job: dict[str, Any],
    lines: ComparedLines | None,
    rounded: bool,
) -> dict[str, Any]:
    """Compares an export with ours; returns the content of `agreement.json`."""
    # The model's own beam and alpha, with the length penalty that other systems have. A
    # format that fixes the search or what can be checked says so in its job.
    decode = translator.config.decode
    alpha = 0.0 if decode.penalty == "none" else decode.alpha
    search = {"alpha": alpha, "penalty": "length", "stop": "best", **NO_CHANGE}
    search |= job.pop("search", {})
    checks = job.pop("checks", form.checks)
    translator = agreement.float32(translator).with_options(**search)
    decode = translator.config.decode
    job = {"model": str(folder.absolute()), **job}
    report: dict[str, Any] = {"format": form.name, "t2t_jax": __version__}
    report["translator"] = translator.provenance()
    if lines:
        report["text"] = lines.origin
    summary, agrees = [], True
    for task in checks:
        with waiting(f"comparing {task}"):
            result, text, good = CHECKS[task](translator, form, job, lines, rounded)
        report[task], agrees = result, agrees and good
        summary.append(text)
    if lines:
        summary.append(
            f"compared on {len(lines.sources):,} {lines.origin}, with beam "
            f"{decode.beam} and the penalty {decode.penalty!r}, alpha {decode.alpha:g}"
        )
    return report | {"agrees": agrees, "summary": "; ".join(summary)}


def _encoded(translator: Translator, lines: ComparedLines) -> tuple[list, list]:
    """Sources with EOS, and the output limits."""
    sources = translator.vocabulary.source.encode(lines.sources, end=True)
    decode = translator.config.decode
    return sources, [longest_output(len(ids), decode) for ids in sources]


def _greedy(translator, form, job, lines, rounded):
    """Greedy translations, token by token."""
    sources, limits = _encoded(translator, lines)
    compared = agreement.check_greedy(
        translator, form.peer, sources, limits, lines=lines.sources, **job
    )
    good = compared.agrees or rounded  # quantized weights are judged by BLEU
    return dataclasses.asdict(compared), str(compared), good


def _beam(translator, form, job, lines, rounded):
    """Beam search, text to text; quantized weights by BLEU."""
    sources, limits = _encoded(translator, lines)
    decode = translator.config.decode
    answer = peer_process.run(
        form.peer,
        "beam",
        lines=lines.sources,
        sources=sources,
        limits=limits,
        beam=decode.beam,
        alpha=decode.alpha,
        **job,
    )
    # Some tokenizers are only in t2t_jax.
    texts = answer["texts"] or translator.vocabulary.decode(answer["tokens"])
    translations = translator.translate(lines.sources, warn=False)
    compared = agreement.compare_texts(translator, lines.sources, translations, texts)
    result = compared._asdict() | {"seconds": answer.get("seconds")}
    text, good = str(compared), True
    # Where the exported tokenizer reads the lines, it has to give our ids.
    differs = answer.get("tokenizer_differs", [])
    if differs:
        result["tokenizer_differs"] = differs
        text += f", the exported tokenizer splits {len(differs):,} lines otherwise"
        good = False
    if lines.references is not None:
        difference = measures.compared(
            {"bleu": text_measures(translator.config.data.target)["bleu"]},
            texts,
            [translation.text for translation in translations],
            [*zip(lines.sources, lines.references, strict=True)],
        )["bleu"]
        result["bleu"] = difference
        text += (
            f", BLEU {difference['score']:.2f} against our "
            f"{difference['baseline_score']:.2f} ({difference['low']:+.2f} to "
            f"{difference['high']:+.2f})"
        )
        good = good and difference["low" if rounded else "high"] >= LOST
        if rounded:
            text += f"; quantized weights may lose {-LOST:g} BLEU with 95% confidence"
            if difference["baseline_score"] <= -LOST:
                text += "; ours has no more to lose: want a better model or --test"
    return result, text, good


def _values(translator, form, job, lines, rounded):
    """Stored values, bit by bit."""
    result = peer_process.run(form.peer, "values", **job)
    good = result["equal"]
    return result, "values are equal" if good else "values differ", good


# Task of a peer script -> function that compares its answer with ours.
CHECKS = {"greedy": _greedy, "beam": _beam, "values": _values}
