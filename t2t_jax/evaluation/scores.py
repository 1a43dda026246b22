"""Scores a test set; keeps the model's answers and their scores in the workdir.

Those of an ensemble are in the first member's workdir, in a folder of their own, so
that no reader takes them for the model's.
"""

import contextlib
import dataclasses
import hashlib
from collections.abc import Sequence
from typing import Any

from etils import epath

from t2t_jax.config import Config
from t2t_jax.data.corpus import Corpus
from t2t_jax.decoding.translator import Translator
from t2t_jax.evaluation.provenance import score_provenance, text_bytes
from t2t_jax.io import atomic, lock
from t2t_jax.io.errors import UserError
from t2t_jax.io.messages import say, waiting
from t2t_jax.model.layers import compute_dtype
from t2t_jax.parallel import processes
from t2t_jax.tasks.table import task_of
from t2t_jax.tasks.task import Task
from t2t_jax.workdir import Workdir

SCORES, TRANSLATIONS = "scores", "translations"
ENSEMBLES = "ensembles"
# What the provenance of a translator has of each of its members.
MEMBER_FIELDS = {"checkpoints", "parameters_sha256", "dtype", "weights", "task_options"}
# One workdir, or those of an ensemble's members.
Workdirs = Workdir | epath.PathLike | Sequence[epath.PathLike]
# Raise this when a score is added, renamed or computed otherwise: stored scores of
# another version are then computed again.
SCORES_VERSION = 3
ELSEWHERE = (
    "To store them, give a copy of the workdir in a writable folder; evaluate --json "
    "prints them all (> scores.json), and translate --output=FILE writes translations"
)


def score_set(
    translator: Translator, corpus: Corpus, workdir: Workdirs, keep: bool = False
) -> dict:
    """Answers and scores one set, or returns the scores that are already stored.

    Writes `scores/SET.json` and `translations/SET.TARGET`, one answer (a translation)
    for each example of the set, in `results_folder`; earlier files of those names are
    kept under other names. Stored scores for the same lines, parameters, search, dtype
    and version are read instead, whatever machine computed them. If the workdir cannot
    be written, nothing is stored and a warning says so; with `keep` it is an error.

    Args:
      workdir: that of the translator; of an ensemble those of its members, in order.

    Returns:
      The content of `scores/SET.json`: the scores of the task, the inputs they depend
      on, and their provenance (`provenance.py`); of an ensemble also its `members`.
    """
    return _score(translator, corpus, workdir, keep)[0]


def scores_and_answers(
    translator: Translator, corpus: Corpus, workdir: Workdirs
) -> tuple[dict, list[str]]:
    """Returns what `score_set` does, and the answers (of process 0, else empty).

    Raises UserError if another process scores the set in the meantime.
    """
    scores, answers = _score(translator, corpus, workdir)
    if answers is None and processes.is_first():
        folder = results_folder(translator, workdir)
        answers = read_answers(scores, corpus, folder)
    return scores, answers or []


def _score(
    translator: Translator, corpus: Corpus, workdir: Workdirs, keep: bool = False
) -> tuple[dict, list[str] | None]:
    """Scores one set; also returns its answers, or None if they are stored."""
    # Process 0 reads the set and sends it to the others, so that all translate the
    # same lines.
    task = task_of(translator.config).of(corpus)
    pairs = processes.from_first(f"{corpus.name}", lambda: task.examples(corpus))
    sources, references = zip(*pairs, strict=True)
    inputs = _inputs(translator, task, corpus, sources, references)
    inputs_sha256 = atomic.sha256_of(inputs)
    folder = results_folder(translator, workdir)
    path = folder / SCORES / f"{corpus.name}.json"
    lines = _answers_file(corpus, folder)

    def stored_before() -> tuple[dict, bool]:
        stored = _read(path, lines)
        if stored.get("inputs_sha256") == inputs_sha256:
            return stored, True
        # Warn before the answers are computed, which may take long, not after.
        try:
            _first_workdir(workdir).check_writable()
        except UserError as e:
            if keep:
                raise
            say(
                f"warning: scores of {corpus.name} will not be stored: {e}. {ELSEWHERE}"
            )
            return {}, False
        return {}, True

    stored, writable = processes.from_first("scores", stored_before)
    if stored:
        return stored, None
    answers = task.answers(translator, pairs)
    extra = task.extra_scores(translator, pairs)

    def scored() -> dict:
        with waiting(f"comparing with the references of {corpus.name}"):
            scores = task.scores(answers, pairs, corpus) | extra
        output = text_bytes(answers)
        scores |= score_provenance(translator, task, corpus, sources, references)
        scores |= inputs | {"inputs_sha256": inputs_sha256}
        if len(translator.members) > 1:
            scores["members"] = [
                {
                    "workdir": str(place),
                    "checkpoints": list(member.steps),
                    "parameters_sha256": member.parameters_sha256(),
                    "dtype": compute_dtype(member.config.model).name,
                    **({"weights": "int8"} if member.weights == "int8" else {}),
                    "config": dataclasses.asdict(member.config),
                }
                for place, member in zip(workdir, translator.members, strict=True)
            ]
        scores["translations_sha256"] = hashlib.sha256(output).hexdigest()
        if not writable:
            return scores
        with lock.exclusive(folder / SCORES):
            atomic.keep_earlier(path, lines)
            # The scores come last: they hold the hash of the translations, by which a
            # reader knows that both files belong together.
            atomic.write_atomically(lines, output)
            atomic.write_atomically(path, atomic.checked_json(scores))
        return scores

    scores = processes.from_first("comparing", scored, processes.LONG_TIMEOUT)
    return scores, None if writable else [*map(str, answers)]


def results_folder(translator: Translator, workdir: Workdirs) -> epath.Path:
    """Returns the folder of `scores/` and `translations/`.

    The workdir; of an ensemble `ensembles/HASH` in the first one, where HASH depends on
    the parameters of all members, in order.
    """
    owner = _first_workdir(workdir)
    if len(translator.members) == 1:
        return owner.path
    hashes = [member.parameters_sha256() for member in translator.members]
    digest = hashlib.sha256("\n".join(hashes).encode()).hexdigest()
    return owner / ENSEMBLES / digest[:16]


def _first_workdir(workdir: Workdirs) -> Workdir:
    return Workdir.open(workdir[0] if isinstance(workdir, list | tuple) else workdir)


def _inputs(
    translator: Translator, task: Task, corpus: Corpus, sources, references
) -> dict:
    """Returns all that scores depend on: stored scores are reused if it is equal."""
    provenance = translator.provenance()
    if len(translator.members) == 1:
        member_fields = provenance.keys() & MEMBER_FIELDS
        provenance |= {name: provenance[name][0] for name in member_fields}
    text = "\n".join(sources) + "\x00" + "\n".join(references)
    return {
        "set": corpus.spec,
        "lines": len(sources),
        "sha256": hashlib.sha256(text.encode()).hexdigest(),
        **provenance,
        "layout": SCORES_VERSION,
        **task.score_options(corpus),
    }


def comparisons(scores: dict[str, dict]) -> list[str]:
    """Lines that say what the scores of sets, by name, are comparable with.

    Sets with the same line share one.
    """
    names: dict[str, list[str]] = {}
    for name, score in scores.items():
        names.setdefault(score["compare_with"], []).append(name)
    return [f"{', '.join(sets)}: {line}" for line, sets in names.items()]


def read_answers(
    scores: dict, corpus: Corpus, folder: Workdir | epath.PathLike
) -> list[str]:
    """Reads the answers that stored scores are of, one for each example.

    The folder is the workdir, or of an ensemble its `results_folder`. Raises UserError
    if the file does not match `scores`.
    """
    file = _answers_file(corpus, Workdir.open(folder).path)
    return checked_answers(scores, file)


def checked_answers(scores: dict, file: epath.Path) -> list[str]:
    """`read_answers` of a file whose name is known."""
    content = file.read_bytes() if file.exists() else b""
    if hashlib.sha256(content).hexdigest() != scores["translations_sha256"]:
        raise UserError(
            f"{file} is not what was scored: its SHA-256 differs. If another process "
            "is scoring the set now, try again when it has ended"
        )
    # Not splitlines(), which would also split at characters such as U+2028.
    return content.decode().split("\n")[:-1]


def score_all(
    workdir: Workdir, config: Config, tests: Sequence[Corpus]
) -> dict[str, dict]:
    """Scores test sets with the options of `config.decode`; returns them by name.

    Prints a table.
    """
    if not tests:
        return {}
    translator = Translator.load(workdir, config.decode.checkpoint)
    steps = ", ".join(f"{s:,}" for s in translator.steps)
    single = len(translator.steps) == 1
    say(
        f"scoring with {'step' if single else 'the average of steps'} {steps}; "
        f"answers are in {workdir}/translations"
    )
    scores = {}
    for corpus in tests:
        scores[corpus.name] = score = score_set(translator, corpus, workdir, keep=True)
        row = task_of(config).of(corpus).row(score, corpus)
        say(f"{corpus.name:12} {score['lines']:6,} lines   {row}")
    for line in comparisons(scores):
        say(line)
    return scores


def stored_scores(workdir: Workdir) -> dict[str, dict[str, Any]]:
    """Reads the scores of a workdir, by file name; leaves damaged files out."""
    scores = {}
    if (workdir / SCORES).exists():
        for file in (workdir / SCORES).glob("*.json"):
            with contextlib.suppress(ValueError, OSError):
                scores[file.stem] = atomic.read_checked_json(file)
    return scores


def _answers_file(corpus: Corpus, folder: epath.Path) -> epath.Path:
    return folder / TRANSLATIONS / f"{corpus.name}.{corpus.target}"


def _read(path: epath.Path, lines: epath.Path) -> dict:
    """Reads scores; empty if they or their translations are missing or damaged."""
    try:
        stored = atomic.read_checked_json(path)
        checked_answers(stored, lines)
    except (OSError, ValueError, KeyError):  # another process may be moving them now
        return {}
    return stored
