"""BLEU and chrF by sacreBLEU (Post 2018), with the signature of each.

Two protocols, never to be confused: `corpus_scores` takes plain text, as sacreBLEU is
meant to be used; `tokenized_scores` lower-cases and tokenises both sides first, as
older papers did, which gives other, mostly higher, numbers.
"""

from collections.abc import Sequence
from importlib.metadata import version

import sacrebleu
import sacremoses


def corpus_scores(hypotheses: Sequence[str], references: Sequence[str]) -> dict:
    """Scores translations against one reference each, as plain text.

    Returns:
      `bleu`, `signature`, `chrf`, `chrf_signature`.

    Raises:
      ValueError: as many hypotheses as references are needed.
    """
    _check(hypotheses, references)
    bleu, chrf = sacrebleu.BLEU(), sacrebleu.CHRF()
    scores = {
        "bleu": bleu.corpus_score(hypotheses, [references]).score,
        "chrf": chrf.corpus_score(hypotheses, [references]).score,
    }
    # A metric knows its signature once it has scored.
    return scores | {
        "signature": str(bleu.get_signature()),
        "chrf_signature": str(chrf.get_signature()),
    }


def tokenized_scores(
    hypotheses: Sequence[str], references: Sequence[str], language: str
) -> dict:
    """BLEU of lower-cased, tokenised text: the protocol of Multi30k's papers.

    Returns:
      `bleu_lc_tok`, and `bleu_lc_tok_signature`, which says how it was made.

    Raises:
      ValueError: as many hypotheses as references are needed.
    """
    _check(hypotheses, references)
    sides = (lower_tokenized(side, language) for side in (hypotheses, references))
    bleu = sacrebleu.BLEU(tokenize="none", force=True)  # force: it is tokenised
    hypotheses, references = sides
    score = bleu.corpus_score(hypotheses, [references]).score
    how = f"|lc+moses-{language}-escaped:sacremoses-{version('sacremoses')}"
    return {
        "bleu_lc_tok": score,
        "bleu_lc_tok_signature": str(bleu.get_signature()) + how,
    }


def lower_tokenized(lines: Sequence[str], language: str) -> list[str]:
    """Lower-cases, then tokenises as Moses does, with its escapes such as `&quot;`."""
    moses = sacremoses.MosesTokenizer(lang=language)
    return [
        moses.tokenize(line.lower(), return_str=True, escape=True) for line in lines
    ]


def _check(hypotheses: Sequence[str], references: Sequence[str]) -> None:
    if len(hypotheses) != len(references):
        raise ValueError(f"{len(hypotheses)} hypotheses, {len(references)} references")
