"""BLEU, chrF and TER as sacreBLEU defines them (Post 2018), and BLEU of tokenized text.

  bleu, chrf, ter   of plain text
  bleu_paper        tokenized with Moses' rules, cased, German compounds split: the
                    paper's protocol
  bleu_lc_tok       lower-cased, then tokenized with Moses' rules: that of papers on
                    Multi30k

The last two are not comparable with `bleu`, and mean nothing for text whose words are
not separated by spaces (`without_moses`). The signature of each score says how it was
computed.

TER is slow on reordered text: 3,000 lines of news, half of them reversed, took most of
a minute. All other metrics together take seconds.

Importing sacreBLEU takes a third of a second and sacremoses is slow to import, so they
are imported on first use.
"""

import contextlib
import json
import os
import re
import threading
from collections.abc import Iterable, Iterator, Sequence
from importlib.metadata import version
from typing import TYPE_CHECKING

from t2t_jax.metrics.measures import LONGEST, SAMPLES, SEED
from t2t_jax.text.languages import identify

if TYPE_CHECKING:
    from sacrebleu.metrics.base import Metric


_SEED_VARIABLE = "SACREBLEU_SEED"
_environment_lock = threading.Lock()


def corpus_scores(
    hypotheses: Sequence[str], references: Sequence[str], language: str = ""
) -> dict:
    """Computes BLEU and chrF of plain text; fast enough for use during training.

    Args:
      hypotheses: translations.
      references: one for each hypothesis.
      language: of hypotheses and references; if empty, a language with spaces between
        words.

    Returns:
      `bleu`, `signature`, `chrf`, `chrf_signature`.

    Raises:
      ValueError: the numbers of hypotheses and references differ.
    """
    check_lengths(hypotheses, references)
    metrics = sacrebleu_metrics(language)
    bleu = scored("bleu", metrics["bleu"], hypotheses, references)
    return bleu | scored("chrf", metrics["chrf"], hypotheses, references)


def plain_scores(
    hypotheses: Sequence[str], references: Sequence[str], language: str
) -> dict:
    """Computes all scores of plain text, with one reference for each hypothesis.

    Returns:
      For every `NAME` of `sacrebleu_metrics`: the score; its `NAME_signature`, or
        `signature` for `bleu`; and for `bleu`, `chrf` and `ter` also `NAME_interval`
        (see `scored`). If it is installed, also `bleu_mecab` (see `by_words`).
    """
    check_lengths(hypotheses, references)
    scores, metrics = {}, sacrebleu_metrics(language)
    if (words := by_words(language)) and words[1]:
        metrics["bleu_mecab"] = words[1]
    for name, metric in metrics.items():
        interval = name in ("bleu", "chrf", "ter")
        scores |= scored(name, metric, hypotheses, references, interval)
    return scores


def sacrebleu_metrics(language: str) -> "dict[str, Metric]":
    """sacreBLEU's metrics for plain text of a language, by the name of their score.

    `bleu` is tokenized by 13a, `bleu_intl` by intl. Exceptions are Chinese, with
    sacreBLEU's own tokenizer, and Japanese and Korean, which are scored by characters:
    sacreBLEU's tokenizers for these need further packages, and a score must not depend
    on what is installed (`by_words` has them). The signature names the tokenizer.
    `force` stops sacreBLEU's warning that its input looks tokenized.

    Add a metric here, and raise `SCORES_VERSION` in evaluation/scores.py.
    """
    import sacrebleu

    asian = without_moses(language)
    tokenizer = _TOKENIZERS.get(_script(language), "13a")
    metrics = {
        "bleu": sacrebleu.BLEU(tokenize=tokenizer, force=True),
        "bleu_lc": sacrebleu.BLEU(tokenize=tokenizer, lowercase=True, force=True),
        "bleu_intl": sacrebleu.BLEU(tokenize="intl", force=True),
        "chrf": sacrebleu.CHRF(),
        "ter": sacrebleu.TER(normalized=asian, asian_support=asian),
    }
    return {name: with_plain_floats(metric) for name, metric in metrics.items()}


# Of `bleu` by script, unless 13a.
_TOKENIZERS = dict.fromkeys(["Hans", "Hant", "Hani"], "zh") | dict.fromkeys(
    ["Jpan", "Kore", "Hira", "Kana", "Hrkt"], "char"
)
# sacreBLEU's defaults for these languages; `sacrebleu[ja]` is what pip installs.
BY_WORDS = {"ja": "ja-mecab", "ko": "ko-mecab"}


MOSES = "bleu_paper", "bleu_lc_tok"  # scores that need Moses' rules


def _script(language: str) -> str:
    identity = identify(language)
    return identity.script or identity.usual


def without_moses(language: str) -> bool:
    """True for Chinese, Japanese and Korean, which Moses' rules do not tokenize."""
    return _script(language) in _TOKENIZERS


def meaningless(language: str) -> tuple[str, ...]:
    """Names of the scores that mean nothing in a target language."""
    names = MOSES if without_moses(language) else ()
    # sacreBLEU's TER of Japanese splits kanji, but kana only at spaces.
    return (*names, "ter") if identify(language).code == "ja" else names


def by_words(language: str) -> "tuple[str, Metric | None] | None":
    """Finds sacreBLEU's BLEU of words, its default for Japanese and Korean.

    Returns:
      What pip installs for it, and the metric, or None if that is not installed; None
      for other languages.
    """
    language = identify(language).code
    if language not in BY_WORDS:
        return None
    import sacrebleu

    package = f"sacrebleu[{language}]"
    try:
        metric = sacrebleu.BLEU(tokenize=BY_WORDS[language], force=True)
    except RuntimeError:  # sacreBLEU's, which says what to install
        return package, None
    return package, with_plain_floats(metric)


def scored(name, metric, hypotheses, references, interval: bool = False) -> dict:
    """Computes a score and its signature, optionally with a 95% confidence interval.

    Returns:
      `NAME`; `NAME_signature`, or `signature` for `bleu`; and with `interval`
        `NAME_interval`: `{"mean": m, "half_width": w}` means m - w to m + w, from
        `SAMPLES` resamplings of the lines. It is None for more than `LONGEST` lines.
    """
    resample = interval and len(references) <= LONGEST
    with fixed_seed():
        score = metric.corpus_score(
            hypotheses, [references], n_bootstrap=SAMPLES if resample else 1
        )
    signature = metric.get_signature()  # complete only after scoring
    # The number of samples and the seed affect the interval, not the score; without
    # them a score has the same signature with and without an interval.
    for field in ("bs", "seed"):
        signature.update(field, None)
    key = "signature" if name == "bleu" else f"{name}_signature"
    scores = {name: score.score, key: str(signature)}
    if interval:
        # sacreBLEU's public interface gives the interval only in this JSON, which
        # omits a mean of 0.
        text = json.loads(score.format(6, signature=scores[key], is_json=True))
        mean, half = text.get("confidence_mean", 0.0), text.get("confidence_var", 0.0)
        bounds = {"mean": mean, "half_width": half}
        scores[f"{name}_interval"] = bounds if resample else None
    return scores


@contextlib.contextmanager
def fixed_seed() -> Iterator[None]:
    """Makes sacreBLEU draw its samples from `SEED`, whatever the environment says.

    sacreBLEU reads the seed only from an environment variable. The lock keeps two
    threads from restoring each other's value.
    """
    with _environment_lock:
        previous_seed = os.environ.get(_SEED_VARIABLE)
        os.environ[_SEED_VARIABLE] = str(SEED)
        try:
            yield
        finally:
            if previous_seed is None:
                os.environ.pop(_SEED_VARIABLE, None)
            else:
                os.environ[_SEED_VARIABLE] = previous_seed


def check_lengths(hypotheses: Sequence[str], references: Sequence[str]) -> None:
    """Raises ValueError unless there is one hypothesis for each reference."""
    if len(hypotheses) != len(references):
        raise ValueError(f"{len(hypotheses)} hypotheses, {len(references)} references")


def with_plain_floats(metric):
    """Patches a sacreBLEU metric so that all its scores are Python floats.

    If some samples score 0, sacreBLEU mixes Python's and NumPy's floats and then fails
    to compute their mean.
    """
    compute = metric._compute_score_from_stats

    def computed(stats):
        score = compute(stats)
        score.score = float(score.score)
        return score

    metric._compute_score_from_stats = computed
    return metric


# ------------------------------------------------------------------- tokenized text


def paper_scores(
    hypotheses: Sequence[str], references: Sequence[str], language: str, source: str
) -> dict:
    """Computes tokenized, cased BLEU, as in Vaswani et al. 2017, Table 2.

    The score of multi-bleu.perl after the steps of tensor2tensor's get_ende_bleu.sh on
    hypotheses and references, which are plain text: see `paper_tokenized`. Without
    smoothing: BLEU is 0 if no four consecutive words match. `source` is the language of
    the sources.
    """
    import sacrebleu

    check_lengths(hypotheses, references)
    source, language = identify(source).code, identify(language).code
    # get_ende_bleu.sh splits compounds; the paper's en-fr scores are without splitting.
    split = (source, language) == ("en", "de")
    sides = (paper_tokenized(s, language, split) for s in (hypotheses, references))
    # `force` stops sacreBLEU's warning that its input looks tokenized.
    bleu = sacrebleu.BLEU(tokenize="none", smooth_method="none", force=True)
    steps = f"punctuation+moses-{language}-escaped"
    if split:
        steps += "+compounds-split"
    return _scored_tokens("bleu_paper", bleu, sides, steps, interval=True)


def _scored_tokens(name, bleu, sides, steps: str, interval: bool = False) -> dict:
    """Scores text that was tokenized before; sacreBLEU's signature omits that step."""
    scores = scored(name, with_plain_floats(bleu), *sides, interval)
    scores[f"{name}_signature"] += f"|{steps}:sacremoses-{version('sacremoses')}"
    return scores


def paper_tokenized(lines: Sequence[str], language: str, split: bool) -> list[str]:
    """Replaces Unicode punctuation, tokenizes with Moses' rules, may split compounds.

    Moses escapes characters such as `"`, which becomes `&quot;`.
    """
    import sacremoses

    punctuation = sacremoses.MosesPunctNormalizer(lang=language)
    tokenized = _by_moses(map(punctuation.replace_unicode_punct, lines), language)
    return [*map(split_compounds, tokenized)] if split else tokenized


def _by_moses(lines: Iterable[str], language: str) -> list[str]:
    """Tokenizes with Moses' rules and escapes such as `&quot;`."""
    import sacremoses

    moses = sacremoses.MosesTokenizer(lang=identify(language).code)
    return [moses.tokenize(line, return_str=True, escape=True) for line in lines]


def split_compounds(line: str) -> str:
    """Splits compounds at hyphens: `rich-text` -> `rich ##AT##-##AT## text`.

    Keeps a quirk of Perl's s///g in the scripts of that time: matches do not overlap,
    so `a-b-c` is split once and `ab-cd-ef` twice.
    """
    # Those scripts read bytes, in which only ASCII's white space matches \s.
    return re.sub(r"(\S)-(\S)", r"\1 ##AT##-##AT## \2", line, flags=re.ASCII)


def tokenized_scores(
    hypotheses: Sequence[str], references: Sequence[str], language: str
) -> dict:
    """Computes BLEU of lower-cased, tokenized text, as papers on Multi30k do."""
    import sacrebleu

    check_lengths(hypotheses, references)
    language = identify(language).code
    sides = (lower_tokenized(side, language) for side in (hypotheses, references))
    # `force` stops sacreBLEU's warning that its input looks tokenized.
    bleu = sacrebleu.BLEU(tokenize="none", force=True)
    return _scored_tokens("bleu_lc_tok", bleu, sides, f"lc+moses-{language}-escaped")


def lower_tokenized(lines: Sequence[str], language: str) -> list[str]:
    """Lower-cases, then tokenizes with Moses' rules and escapes such as `&quot;`."""
    return _by_moses(map(str.lower, lines), language)
