"""Scores a test set; keeps the model's answers and their scores in the workdir."""

import hashlib

from etils import epath

from t2t_jax import __version__
from t2t_jax.data.corpus import Corpus
from t2t_jax.decoding.translator import Translator
from t2t_jax.evaluation.provenance import score_provenance, text_bytes
from t2t_jax.files import atomic
from t2t_jax.model.layers import compute_dtype
from t2t_jax.parallel import processes
from t2t_jax.tasks.table import task_of
from t2t_jax.tasks.task import Task
from t2t_jax.terminal.errors import UserError
from t2t_jax.terminal.progress import waiting
from t2t_jax.workdir.workdir import Workdir

SCORES, TRANSLATIONS = "scores", "translations"
# Raise this when a score is added, renamed or computed otherwise: stored scores of
# another version are then computed again.
SCORES_VERSION = 2


def distinct(corpora: list[Corpus]) -> list[Corpus]:
    """Returns the sets unchanged; refuses two of the same name.

    A set's name is also the name of its files of scores and translations.

    Raises:
      UserError: two sets have the same name.
    """
    seen: dict[str, Corpus] = {}
    for corpus in corpora:
        if (other := seen.setdefault(corpus.name, corpus)) is not corpus:
            raise UserError(
                f"the test sets {other.place} and {corpus.place} are both called "
                f"{corpus.name!r}, which also names the files of scores; rename one"
            )
    return corpora


def score_set(
    translator: Translator, corpus: Corpus, workdir: Workdir | epath.PathLike
) -> dict:
    """Answers and scores one set, or returns the scores that are already stored.

    Writes `scores/SET.json` and `translations/SET.TARGET`, one answer (a translation)
    for each example of the set; earlier files of those names are kept under other
    names. Stored scores for the same lines, parameters, search, dtype and version are
    read instead, whatever machine computed them.

    Returns:
      The content of `scores/SET.json`: the scores of the task, the inputs they depend
      on, and their provenance (`provenance.py`).
    """
    # Process 0 reads the set and sends it to the others, so that all translate the
    # same lines.
    task = task_of(translator.config).of(corpus)
    pairs = processes.from_first(f"{corpus.name}", lambda: task.examples(corpus))
    sources, references = zip(*pairs, strict=True)
    inputs = _inputs(translator, task, corpus, sources, references)
    workdir = Workdir.open(workdir)
    path = workdir / SCORES / f"{corpus.name}.json"
    lines = _answers_file(corpus, workdir)

    def stored_scores() -> dict:
        stored = _read(path, lines)
        if inputs.items() <= stored.items():
            return stored
        # Fail before the answers are computed, which may take long, not after.
        workdir.check_writable()
        return {}

    if stored := processes.from_first("scores", stored_scores):
        return stored
    answers = task.answers(translator, pairs)
    extra = task.extra_scores(translator, pairs)

    def scored() -> dict:
        with waiting(f"comparing with the references of {corpus.name}"):
            scores = task.scores(answers, pairs, corpus) | extra
        output = text_bytes(answers)
        scores |= score_provenance(translator, task, corpus, sources, references)
        scores |= inputs
        scores["translations_sha256"] = hashlib.sha256(output).hexdigest()
        with atomic.exclusive(workdir / SCORES):
            atomic.keep_earlier(path, lines)
            # The scores come last: they hold the hash of the translations, by which a
            # reader knows that both files belong together.
            atomic.write_atomically(lines, output)
            atomic.write_atomically(path, atomic.checked_json(scores))
        return scores

    return processes.from_first("comparing", scored, processes.LONG_TIMEOUT)


def _inputs(
    translator: Translator, task: Task, corpus: Corpus, sources, references
) -> dict:
    """Everything that scores depend on; stored scores with the same are reused."""
    return {
        "set": corpus.place,
        "lines": len(sources),
        "sha256": _hash(sources, references),
        "checkpoints": list(translator.steps),
        "parameters_sha256": translator.members[0].parameters_sha256(),
        "dtype": compute_dtype(translator.config.model).name,
        "t2t_jax": __version__,
        "layout": SCORES_VERSION,
        "decode": translator.decode_options(),
        **task.answer_options(),
    }


def comparisons(scores: dict[str, dict]) -> list[str]:
    """Lines that say what each set's scores are comparable with.

    Sets with the same line share one.

    Args:
      scores: by the name of the set.
    """
    names: dict[str, list[str]] = {}
    for name, score in scores.items():
        names.setdefault(score["compare_with"], []).append(name)
    return [f"{', '.join(sets)}: {line}" for line, sets in names.items()]


def read_answers(
    scores: dict, corpus: Corpus, workdir: Workdir | epath.PathLike
) -> list[str]:
    """Reads the answers that `score_set` has just scored, one for each example.

    Raises:
      UserError: the file no longer matches `scores`.
    """
    file = _answers_file(corpus, Workdir.open(workdir))
    try:
        content = file.read_bytes()
    except FileNotFoundError:
        content = b""
    if hashlib.sha256(content).hexdigest() != scores["translations_sha256"]:
        raise UserError(
            f"{file} is not what was just scored: another process has scored "
            f"{corpus.name} in the meantime; try again when it has ended"
        )
    # Not splitlines(), which would also split at characters such as U+2028.
    return content.decode().split("\n")[:-1]


def _answers_file(corpus: Corpus, workdir: Workdir) -> epath.Path:
    return workdir / TRANSLATIONS / f"{corpus.name}.{corpus.target}"


def _read(path: epath.Path, lines: epath.Path) -> dict:
    """Reads scores; empty if they or their translations are missing or damaged."""
    try:
        stored = atomic.read_checked_json(path)
        translations = hashlib.sha256(lines.read_bytes()).hexdigest()
    except (OSError, ValueError):  # another process may be moving them right now
        return {}
    return stored if stored.get("translations_sha256") == translations else {}


def _hash(*sides: tuple[str, ...]) -> str:
    text = "\x00".join("\n".join(side) for side in sides)
    return hashlib.sha256(text.encode()).hexdigest()
