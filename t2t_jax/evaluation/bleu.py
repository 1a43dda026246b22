"""BLEU and chrF by sacreBLEU (Post 2018), with the signature of each."""

from collections.abc import Sequence

import sacrebleu


def corpus_scores(hypotheses: Sequence[str], references: Sequence[str]) -> dict:
    """Scores translations against one reference each, as plain text.

    Returns:
      `bleu`, `signature`, `chrf`, `chrf_signature`.

    Raises:
      ValueError: as many hypotheses as references are needed.
    """
    if len(hypotheses) != len(references):
        raise ValueError(f"{len(hypotheses)} hypotheses, {len(references)} references")
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
