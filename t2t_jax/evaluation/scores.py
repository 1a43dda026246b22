"""A translator and a test set -> translations and scores on disk."""

import hashlib

import jax
import numpy as np
from etils import epath

from t2t_jax import __version__, files
from t2t_jax import workdir as workdirs
from t2t_jax.data.corpus import Corpus
from t2t_jax.data.prepare import small_pairs
from t2t_jax.decoding.translator import Translator
from t2t_jax.errors import UserError
from t2t_jax.evaluation.bleu import corpus_scores, tokenized_scores
from t2t_jax.model.transformer import Parameters, compute_dtype
from t2t_jax.parallel.mesh import make_mesh
from t2t_jax.training.step import compile_steps
from t2t_jax.training.validation import cross_entropy_of

SCORES, TRANSLATIONS = "scores", "translations"


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


def score_set(translator: Translator, corpus: Corpus, workdir: epath.PathLike) -> dict:
    """Translates and scores one set; earlier results of it are kept beside.

    Writes `scores/SET.json` and `translations/SET.TARGET`, one line for each line of
    the set. Scores that are there already for the same lines, parameters, search,
    dtype and version are read and nothing is done.

    Returns:
      What `scores/SET.json` holds: `bleu`, `signature`, `chrf`, `chrf_signature`,
      `bleu_lc_tok` (lower-cased, tokenised), `perplexity` (per subword, end of
      sentence included), `lines`, and what they depend on.
    """
    sources, references = zip(*corpus.pairs(), strict=True)
    made_from = {
        "set": corpus.place,
        "lines": len(sources),
        "sha256": _hash(sources, references),
        "checkpoints": list(translator.steps),
        "parameters_sha256": _parameters_hash(translator.parameters),
        "dtype": compute_dtype(translator.config.model).name,
        "t2t_jax": __version__,
        "decode": {
            name: getattr(translator.config.decode, name)
            for name in ("beam", "alpha", "extra_length", "max_source")
        },
    }
    name, target = corpus.name, translator.config.data.target
    workdir = workdirs.path(workdir)
    path = workdir / SCORES / f"{name}.json"
    lines = workdir / TRANSLATIONS / f"{name}.{target}"
    if (there := _read(path, lines)) and made_from.items() <= there.items():
        return there
    workdirs.check_writable(workdir)
    translations = translator.translate(sources)
    scores = corpus_scores(translations, references)
    scores |= tokenized_scores(translations, references, target)
    scores["perplexity"] = perplexity(
        translator, list(zip(sources, references, strict=True))
    )
    output = "".join(f"{line}\n" for line in translations).encode()
    scores |= made_from | {"translations_sha256": hashlib.sha256(output).hexdigest()}
    with workdirs.turn(workdir / SCORES):
        files.keep_earlier(path, lines)
        files.write_atomically(lines, output)
        files.write_atomically(path, files.checked_json(scores))
    return scores


def _read(path: epath.Path, lines: epath.Path) -> dict:
    """Scores that are there whole, with their translations; empty without."""
    try:
        there = files.read_checked_json(path)
        translations = hashlib.sha256(lines.read_bytes()).hexdigest()
    except (OSError, ValueError):  # another process may just be moving them
        return {}
    return there if there.get("translations_sha256") == translations else {}


def perplexity(translator: Translator, pairs: list[tuple[str, str]]) -> float:
    """exp of the mean -log p(subword), end of sentence included."""
    config, vocabulary = translator.config, translator.vocabulary
    steps = compile_steps(translator.model, config, make_mesh(), vocabulary.bos)
    tokens = small_pairs(pairs, vocabulary)
    return cross_entropy_of(steps, translator.parameters, tokens, config)["perplexity"]


def _parameters_hash(parameters: Parameters) -> str:
    digest = hashlib.sha256()
    for leaf in jax.tree.leaves(parameters):
        digest.update(np.asarray(leaf).tobytes())
    return digest.hexdigest()


def _hash(*sides: tuple[str, ...]) -> str:
    text = "\x00".join("\n".join(side) for side in sides)
    return hashlib.sha256(text.encode()).hexdigest()
