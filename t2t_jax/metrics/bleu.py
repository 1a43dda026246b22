"""Scores of translations, each with a signature that says how it was made.

Three protocols, never to be confused:

  plain text              `bleu`, `bleu_lc`, `bleu_intl`, `chrf`, `ter`: sacreBLEU as it
                          is meant to be used (Post 2018)
  the paper's             `bleu_paper`: tokenised as Moses does, cased, for German with
                          compounds split
  papers on Multi30k      `bleu_lc_tok`: lower-cased and tokenised

TER is slow where much is in another order: of 3,000 lines of news half of which had
been turned around it took most of a minute; all others together take seconds.

sacreBLEU and sacremoses take a third of a second to import, so that waits for a score.
"""

import contextlib
import json
import os
import re
import threading
from collections.abc import Iterator, Sequence
from importlib.metadata import version
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sacrebleu.metrics.base import Metric

SAMPLES, SEED = 1_000, 12345  # of every bootstrap; both are sacreBLEU's defaults
# sacreBLEU holds every sample of all lines in memory: 72 bytes a line and sample.
LONGEST = 10_000  # lines; of a longer set there is no interval
_SEED_OF_SACREBLEU = "SACREBLEU_SEED"
_environment = threading.Lock()


def corpus_scores(
    hypotheses: Sequence[str], references: Sequence[str], language: str = ""
) -> dict:
    """BLEU and chrF of plain text, one reference each; quick, for use in training.

    Args:
      hypotheses: translations.
      references: as many.
      language: of both; without, they are tokenised as languages with spaces are.

    Returns:
      `bleu`, `signature`, `chrf`, `chrf_signature`.

    Raises:
      ValueError: as many hypotheses as references are needed.
    """
    _check(hypotheses, references)
    bleu, chrf = (metrics(language)[name] for name in ("bleu", "chrf"))
    return {
        **_scored("bleu", bleu, hypotheses, references),
        **_scored("chrf", chrf, hypotheses, references),
    }


def plain_scores(
    hypotheses: Sequence[str], references: Sequence[str], language: str
) -> dict:
    """All scores of plain text, one reference each.

    Returns:
      For every name of `metrics` the score, its signature (`NAME_signature`, for `bleu`
      `signature`), and for `bleu`, `chrf` and `ter` `NAME_interval`: see `_scored`.

    Raises:
      ValueError: as many hypotheses as references are needed.
    """
    _check(hypotheses, references)
    scores = {}
    for name, metric in metrics(language).items():
        interval = name in ("bleu", "chrf", "ter")
        scores |= _scored(name, metric, hypotheses, references, interval)
    return scores


def metrics(language: str) -> "dict[str, Metric]":
    """sacreBLEU's metrics for plain text of a language, by the name of their score.

    `bleu` is tokenised by 13a, `bleu_intl` by intl. Chinese, Japanese and Korean write
    no spaces: `zh` has a tokenizer in sacreBLEU; for `ja` and `ko` it would need
    further packages, and a number that depends on what is installed is none, so they
    are scored by characters. The signature tells.
    """
    import sacrebleu

    language = re.split(r"[-_.]", language.lower())[0]
    tokenizer = {"zh": "zh", "ja": "char", "ko": "char"}.get(language, "13a")
    spaceless = tokenizer != "13a"
    made = {
        "bleu": sacrebleu.BLEU(tokenize=tokenizer),
        "bleu_lc": sacrebleu.BLEU(tokenize=tokenizer, lowercase=True),
        "bleu_intl": sacrebleu.BLEU(tokenize="intl"),
        "chrf": sacrebleu.CHRF(),
        "ter": sacrebleu.TER(normalized=spaceless, asian_support=spaceless),
    }
    return {name: _in_plain_floats(metric) for name, metric in made.items()}


def paper_scores(
    hypotheses: Sequence[str], references: Sequence[str], language: str, source: str
) -> dict:
    """Tokenised, cased BLEU, as in Vaswani et al. 2017, Table 2.

    What multi-bleu.perl gives after the steps of tensor2tensor's get_ende_bleu.sh, on
    both sides: see `paper_tokenized`. Nothing is smoothed: without a single match of
    four words BLEU is 0.

    Args:
      hypotheses: translations, as plain text.
      references: as many, as plain text.
      language: of both.
      source: the language they are translated from.

    Returns:
      `bleu_paper`, `bleu_paper_interval`, `bleu_paper_signature`.

    Raises:
      ValueError: as many hypotheses as references are needed.
    """
    import sacrebleu

    _check(hypotheses, references)
    split = (source, language) == ("en", "de")
    sides = (paper_tokenized(s, language, split) for s in (hypotheses, references))
    bleu = sacrebleu.BLEU(tokenize="none", smooth_method="none", force=True)
    scores = _scored("bleu_paper", _in_plain_floats(bleu), *sides, interval=True)
    steps = f"punctuation+moses-{language}-escaped{'+compounds-split' * split}"
    scores["bleu_paper_signature"] += f"|{steps}:sacremoses-{version('sacremoses')}"
    return scores


def paper_tokenized(lines: Sequence[str], language: str, split: bool) -> list[str]:
    """Replaces punctuation of Unicode, tokenises as Moses does, may split compounds."""
    import sacremoses

    punctuation = sacremoses.MosesPunctNormalizer(lang=language)
    moses = sacremoses.MosesTokenizer(lang=language)
    tokenized = []
    for line in lines:
        line = punctuation.replace_unicode_punct(line)
        line = moses.tokenize(line, return_str=True, escape=True)
        tokenized.append(split_compounds(line) if split else line)
    return tokenized


def split_compounds(line: str) -> str:
    """`rich-text` -> `rich ##AT##-##AT## text`.

    With the quirk of Perl's s///g in the scripts of that time: what one match has used
    is no part of the next, so `a-b-c` is split once and `ab-cd-ef` twice.
    """
    # Those scripts read bytes, of which only ASCII's spaces are spaces.
    return re.sub(r"(\S)-(\S)", r"\1 ##AT##-##AT## \2", line, flags=re.ASCII)


def tokenized_scores(
    hypotheses: Sequence[str], references: Sequence[str], language: str
) -> dict:
    """BLEU of lower-cased, tokenised text: the protocol of Multi30k's papers.

    Returns:
      `bleu_lc_tok`, and `bleu_lc_tok_signature`, which says how it was made.

    Raises:
      ValueError: as many hypotheses as references are needed.
    """
    import sacrebleu

    _check(hypotheses, references)
    sides = (lower_tokenized(side, language) for side in (hypotheses, references))
    bleu = sacrebleu.BLEU(tokenize="none", force=True)  # force: it is tokenised
    scores = _scored("bleu_lc_tok", bleu, *sides)
    how = f"|lc+moses-{language}-escaped:sacremoses-{version('sacremoses')}"
    scores["bleu_lc_tok_signature"] += how
    return scores


def lower_tokenized(lines: Sequence[str], language: str) -> list[str]:
    """Lower-cases, then tokenises as Moses does, with its escapes such as `&quot;`."""
    import sacremoses

    moses = sacremoses.MosesTokenizer(lang=language)
    return [
        moses.tokenize(line.lower(), return_str=True, escape=True) for line in lines
    ]


def _in_plain_floats(metric):
    """A metric whose scores are Python's floats.

    sacreBLEU mixes them with NumPy's where some samples score 0, and then cannot take
    their mean.
    """
    compute = metric._compute_score_from_stats

    def computed(stats):
        score = compute(stats)
        score.score = float(score.score)
        return score

    metric._compute_score_from_stats = computed
    return metric


def _scored(name, metric, hypotheses, references, interval: bool = False) -> dict:
    """A score and its signature, maybe with the 95% interval of a bootstrap.

    The interval is `{"mean": m, "half_width": w}`, of the scores of `SAMPLES` samples
    of the lines: from m - w to m + w; None of more than `LONGEST` lines.
    """
    resample = interval and len(references) <= LONGEST
    with fixed_seed():
        score = metric.corpus_score(
            hypotheses, [references], n_bootstrap=SAMPLES if resample else 1
        )
    signature = metric.get_signature()  # known once it has scored
    for key in ("bs", "seed"):  # they are the interval's, and shape no score
        signature.update(key, None)
    key = "signature" if name == "bleu" else f"{name}_signature"
    scores = {name: score.score, key: str(signature)}
    if interval:
        told = json.loads(score.format(6, signature=scores[key], is_json=True))
        # A mean of 0 is left out there.
        mean, half = told.get("confidence_mean", 0.0), told.get("confidence_var", 0.0)
        found = {"mean": mean, "half_width": half}
        scores[f"{name}_interval"] = found if resample else None
    return scores


@contextlib.contextmanager
def fixed_seed() -> Iterator[None]:
    """sacreBLEU draws its samples from `SEED`, whatever the environment says."""
    with _environment:
        before = os.environ.get(_SEED_OF_SACREBLEU)
        os.environ[_SEED_OF_SACREBLEU] = str(SEED)
        try:
            yield
        finally:
            if before is None:
                os.environ.pop(_SEED_OF_SACREBLEU, None)
            else:
                os.environ[_SEED_OF_SACREBLEU] = before


def _check(hypotheses: Sequence[str], references: Sequence[str]) -> None:
    if len(hypotheses) != len(references):
        raise ValueError(f"{len(hypotheses)} hypotheses, {len(references)} references")
