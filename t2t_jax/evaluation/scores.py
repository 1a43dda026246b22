"""A translator and a test set -> translations and scores on disk."""

import hashlib
import math

from etils import epath

from t2t_jax import __version__
from t2t_jax.data.corpus import Corpus
from t2t_jax.decoding.translator import Translator
from t2t_jax.evaluation.provenance import score_provenance, text_bytes
from t2t_jax.files import atomic
from t2t_jax.metrics.perplexity import perplexity
from t2t_jax.metrics.plain import plain_scores
from t2t_jax.metrics.tokenized import paper_scores, tokenized_scores
from t2t_jax.model.layers import compute_dtype
from t2t_jax.parallel import processes
from t2t_jax.terminal.errors import UserError
from t2t_jax.terminal.progress import waiting
from t2t_jax.workdir.workdir import Workdir

SCORES, TRANSLATIONS = "scores", "translations"
LAYOUT = 2  # of scores/SET.json: one of another layout is made anew


def distinct(corpora: list[Corpus]) -> list[Corpus]:
    """The same sets, if their names, which name the files of their scores, differ."""
    seen: dict[str, Corpus] = {}
    for corpus in corpora:
        if (other := seen.setdefault(corpus.name, corpus)) is not corpus:
            raise UserError(
                f"the test sets {other.place} and {corpus.place} are both called "
                f"{corpus.name!r}, and so would be their scores; rename one"
            )
    return corpora


def score_set(
    translator: Translator, corpus: Corpus, workdir: Workdir | epath.PathLike
) -> dict:
    """Translates and scores one set; earlier results of it are kept beside.

    Writes `scores/SET.json` and `translations/SET.TARGET`, one line for each line of
    the set. Scores that are there already for the same lines, parameters, search,
    dtype and version are read and nothing is done, whatever machine they are of.

    Returns:
      What `scores/SET.json` holds: the scores of `bleu.py` with their signatures,
      `perplexity` (per subword, end of sentence included), what they were made from,
      and their passport (`passport.py`).
    """
    pairs = processes.from_first(f"{corpus.name}", lambda: list(corpus.pairs()))
    sources, references = zip(*pairs, strict=True)
    made_from = _made_from(translator, corpus, sources, references)
    data, workdir = translator.config.data, Workdir.open(workdir)
    path = workdir / SCORES / f"{corpus.name}.json"
    lines = _translations_file(corpus, workdir, data.target)

    def before() -> dict:
        there = _read(path, lines)
        if made_from.items() <= there.items():
            return there
        workdir.check_writable()
        return {}

    if there := processes.from_first("scores", before):
        return there
    translations = [str(line) for line in translator.translate(sources)]
    per_subword = subword_perplexity(translator, pairs)

    def scored() -> dict:
        sides = translations, references, data.target
        with waiting(f"comparing with the references of {corpus.name}"):
            scores = plain_scores(*sides)
            scores |= paper_scores(*sides, data.source)
            scores |= tokenized_scores(*sides)
        scores["perplexity"] = per_subword
        output = text_bytes(translations)
        scores |= score_provenance(translator, corpus, sources, references) | made_from
        scores["translations_sha256"] = hashlib.sha256(output).hexdigest()
        with atomic.exclusive(workdir / SCORES):
            atomic.keep_earlier(path, lines)
            atomic.write_atomically(lines, output)
            atomic.write_atomically(path, atomic.checked_json(scores))
        return scores

    return processes.from_first("comparing", scored, processes.LONG_TIMEOUT)


def _made_from(translator: Translator, corpus: Corpus, sources, references) -> dict:
    """What scores depend on: where it is the same they are not made again."""
    return {
        "set": corpus.place,
        "lines": len(sources),
        "sha256": _hash(sources, references),
        "checkpoints": list(translator.steps),
        "parameters_sha256": translator.members[0].parameters_sha256(),
        "dtype": compute_dtype(translator.config.model).name,
        "t2t_jax": __version__,
        "layout": LAYOUT,
        "decode": translator.decode_options(),
    }


def comparisons(scores: dict[str, dict]) -> list[str]:
    """What the scores of sets, by name, may be compared with: sets of one line once."""
    names: dict[str, list[str]] = {}
    for name, score in scores.items():
        names.setdefault(score["compare_with"], []).append(name)
    return [f"{', '.join(sets)}: {line}" for line, sets in names.items()]


def read_translations(
    scores: dict, corpus: Corpus, workdir: Workdir | epath.PathLike, target: str
) -> list[str]:
    """The translations that `score_set` has just scored, one for each line.

    Raises:
      UserError: they are not the ones of `scores` any more.
    """
    file = _translations_file(corpus, Workdir.open(workdir), target)
    try:
        content = file.read_bytes()
    except FileNotFoundError:
        content = b""
    if hashlib.sha256(content).hexdigest() != scores["translations_sha256"]:
        raise UserError(
            f"{file} is not what was just scored: another process has scored "
            f"{corpus.name} meanwhile; try again when it has ended"
        )
    return content.decode().split("\n")[:-1]


def _translations_file(corpus: Corpus, workdir: Workdir, target: str) -> epath.Path:
    return workdir / TRANSLATIONS / f"{corpus.name}.{target}"


def _read(path: epath.Path, lines: epath.Path) -> dict:
    """Scores that are there whole, with their translations; empty without."""
    try:
        there = atomic.read_checked_json(path)
        translations = hashlib.sha256(lines.read_bytes()).hexdigest()
    except (OSError, ValueError):  # another process may just be moving them
        return {}
    return there if there.get("translations_sha256") == translations else {}


def subword_perplexity(translator: Translator, pairs: list[tuple[str, str]]) -> float:
    """exp of the mean -log p(subword), end of sentence included."""
    scores = translator.score(pairs)
    log_prob = math.fsum(score.log_prob for score in scores)
    return perplexity(-log_prob / sum(len(s.pieces) for s in scores))


def _hash(*sides: tuple[str, ...]) -> str:
    text = "\x00".join("\n".join(side) for side in sides)
    return hashlib.sha256(text.encode()).hexdigest()
