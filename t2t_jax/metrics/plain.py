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

import re
from collections.abc import Iterable, Sequence
from importlib.metadata import version
from typing import TYPE_CHECKING

import numpy as np

from t2t_jax.metrics.measures import LONGEST, interval_of, sampled_sums
from t2t_jax.text.languages import identify

if TYPE_CHECKING:
    from sacrebleu.metrics.base import Metric


# One reference for each hypothesis, or several such lists.
References = Sequence[str] | Sequence[Sequence[str]]


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
    metrics = sacrebleu_metrics(language)
    bleu = scored("bleu", metrics["bleu"], hypotheses, references)
    return bleu | scored("chrf", metrics["chrf"], hypotheses, references)


def plain_scores(
    hypotheses: Sequence[str], references: References, language: str
) -> dict:
    """Computes all scores of plain text, with one reference a hypothesis or several.

    Returns:
      For every `NAME` of `sacrebleu_metrics`: the score; its `NAME_signature`, or
        `signature` for `bleu`; and for `bleu`, `chrf` and `ter` also `NAME_interval`
        (see `scored`). If it is installed, also `bleu_mecab` (see `by_words`).
    """
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
    return {
        "bleu": sacrebleu.BLEU(tokenize=tokenizer, force=True),
        "bleu_lc": sacrebleu.BLEU(tokenize=tokenizer, lowercase=True, force=True),
        "bleu_intl": sacrebleu.BLEU(tokenize="intl", force=True),
        "chrf": sacrebleu.CHRF(),
        "ter": sacrebleu.TER(normalized=asian, asian_support=asian),
    }


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
        return package, sacrebleu.BLEU(tokenize=BY_WORDS[language], force=True)
    except RuntimeError:  # sacreBLEU's, which says what to install
        return package, None


def scored(name, metric, hypotheses, references, interval: bool = False) -> dict:
    """Computes a score and its signature, optionally with a 95% confidence interval.

    Returns:
      `NAME`; `NAME_signature`, or `signature` for `bleu`; and with `interval`
        `NAME_interval`: `{"mean": m, "half_width": w}` means m - w to m + w, from
        `SAMPLES` resamplings of the lines. It is None for more than `LONGEST` lines.
    """
    if len(hypotheses) != (lines := len(reference_lists(references)[0])):
        raise ValueError(f"{len(hypotheses)} hypotheses, {lines} references")
    lists = with_missing(reference_lists(references))
    score = metric.corpus_score(hypotheses, lists)
    signature = metric.get_signature()  # complete only after scoring
    key = "signature" if name == "bleu" else f"{name}_signature"
    scores = {name: float(score.score), key: str(signature)}
    if interval:
        scores[f"{name}_interval"] = None
        if lines <= LONGEST:
            counts_nk = np.array(metric._extract_corpus_statistics(hypotheses, lists))
            sums_m = sampled_sums(counts_nk).tolist()
            scores_m = [metric._compute_score_from_stats(sums).score for sums in sums_m]
            scores[f"{name}_interval"] = interval_of(np.array(scores_m))
    return scores


def reference_lists(references: References) -> Sequence[Sequence[str]]:
    """Returns lists of references, a line for each hypothesis, as sacreBLEU wants."""
    one = not references or isinstance(references[0], str)
    return [references] if one else references


def with_missing(lists: Sequence[Sequence[str]]) -> list[tuple[str | None, ...]]:
    """Replaces empty references of lines that have others by None, a missing one."""
    rows = zip(*lists, strict=True)
    rows = ([text if text.strip() else None for text in row] for row in rows)
    return [*zip(*(r if any(r) else [""] * len(lists) for r in rows), strict=True)]


# ------------------------------------------------------------------- tokenized text


def paper_scores(
    hypotheses: Sequence[str], references: References, language: str, source: str
) -> dict:
    """Computes tokenized, cased BLEU, as in Vaswani et al. 2017, Table 2.

    The score of multi-bleu.perl after the steps of tensor2tensor's get_ende_bleu.sh on
    hypotheses and references, which are plain text: see `paper_tokenized`. Without
    smoothing: BLEU is 0 if no four consecutive words match. `source` is the language of
    the sources.
    """
    import sacrebleu

    source, language = identify(source).code, identify(language).code
    # get_ende_bleu.sh splits compounds; the paper's en-fr scores are without splitting.
    split = (source, language) == ("en", "de")
    sides = hypotheses, *reference_lists(references)
    sides = [paper_tokenized(side, language, split) for side in sides]
    # `force` stops sacreBLEU's warning that its input looks tokenized.
    bleu = sacrebleu.BLEU(tokenize="none", smooth_method="none", force=True)
    steps = f"punctuation+moses-{language}-escaped"
    if split:
        steps += "+compounds-split"
    return _scored_tokens("bleu_paper", bleu, sides, steps, interval=True)


def _scored_tokens(name, bleu, sides, steps: str, interval: bool = False) -> dict:
    """Scores text that was tokenized before; sacreBLEU's signature omits that step."""
    scores = scored(name, bleu, sides[0], sides[1:], interval)
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
    hypotheses: Sequence[str], references: References, language: str
) -> dict:
    """Computes BLEU of lower-cased, tokenized text, as papers on Multi30k do."""
    import sacrebleu

    language = identify(language).code
    sides = hypotheses, *reference_lists(references)
    sides = [lower_tokenized(side, language) for side in sides]
    # `force` stops sacreBLEU's warning that its input looks tokenized.
    bleu = sacrebleu.BLEU(tokenize="none", force=True)
    return _scored_tokens("bleu_lc_tok", bleu, sides, f"lc+moses-{language}-escaped")


def lower_tokenized(lines: Sequence[str], language: str) -> list[str]:
    """Lower-cases, then tokenizes with Moses' rules and escapes such as `&quot;`."""
    return _by_moses(map(str.lower, lines), language)
