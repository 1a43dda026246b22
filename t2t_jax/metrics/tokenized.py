"""BLEU of tokenised text: the paper's protocol and that of papers on Multi30k.

  bleu_paper    tokenised with Moses' rules, cased, German compounds split
  bleu_lc_tok   lower-cased, then tokenised with Moses' rules

Neither is comparable with `bleu` of plain text (`metrics/plain.py`). The signature of
each score says how it was computed. sacremoses is slow to import, so it is imported on
first use.
"""

import re
from collections.abc import Sequence
from importlib.metadata import version

from t2t_jax.metrics.plain import check_lengths, scored, with_plain_floats


def paper_scores(
    hypotheses: Sequence[str], references: Sequence[str], language: str, source: str
) -> dict:
    """Computes tokenised, cased BLEU, as in Vaswani et al. 2017, Table 2.

    The score of multi-bleu.perl after the steps of tensor2tensor's get_ende_bleu.sh on
    hypotheses and references: see `paper_tokenized`. Without smoothing: BLEU is 0 if no
    four consecutive words match.

    Args:
      hypotheses: translations, as plain text.
      references: one for each hypothesis, as plain text.
      language: of hypotheses and references.
      source: the language they are translated from.

    Returns:
      `bleu_paper`, `bleu_paper_interval`, `bleu_paper_signature`.

    Raises:
      ValueError: the numbers of hypotheses and references differ.
    """
    import sacrebleu

    check_lengths(hypotheses, references)
    # get_ende_bleu.sh splits compounds; the paper's en-fr scores are without splitting.
    split = (source, language) == ("en", "de")
    sides = (paper_tokenized(s, language, split) for s in (hypotheses, references))
    # `force` stops sacreBLEU's warning that its input looks tokenised.
    bleu = sacrebleu.BLEU(tokenize="none", smooth_method="none", force=True)
    scores = scored("bleu_paper", with_plain_floats(bleu), *sides, interval=True)
    # sacreBLEU's signature does not know of these steps, so they are added to it.
    steps = f"punctuation+moses-{language}-escaped{'+compounds-split' * split}"
    scores["bleu_paper_signature"] += f"|{steps}:sacremoses-{version('sacremoses')}"
    return scores


def paper_tokenized(lines: Sequence[str], language: str, split: bool) -> list[str]:
    """Replaces Unicode punctuation, tokenises with Moses' rules, may split compounds.

    Moses escapes characters such as `"`, which becomes `&quot;`.
    """
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
    """Splits compounds at hyphens: `rich-text` -> `rich ##AT##-##AT## text`.

    Keeps a quirk of Perl's s///g in the scripts of that time: matches do not overlap,
    so `a-b-c` is split once and `ab-cd-ef` twice.
    """
    # Those scripts read bytes, in which only ASCII's white space matches \s.
    return re.sub(r"(\S)-(\S)", r"\1 ##AT##-##AT## \2", line, flags=re.ASCII)


def tokenized_scores(
    hypotheses: Sequence[str], references: Sequence[str], language: str
) -> dict:
    """Computes BLEU of lower-cased, tokenised text, the protocol of Multi30k's papers.

    Returns:
      `bleu_lc_tok`, and `bleu_lc_tok_signature`, which says how it was computed.

    Raises:
      ValueError: the numbers of hypotheses and references differ.
    """
    import sacrebleu

    check_lengths(hypotheses, references)
    sides = (lower_tokenized(side, language) for side in (hypotheses, references))
    # `force` stops sacreBLEU's warning that its input looks tokenised.
    bleu = sacrebleu.BLEU(tokenize="none", force=True)
    scores = scored("bleu_lc_tok", bleu, *sides)
    how = f"|lc+moses-{language}-escaped:sacremoses-{version('sacremoses')}"
    scores["bleu_lc_tok_signature"] += how
    return scores


def lower_tokenized(lines: Sequence[str], language: str) -> list[str]:
    """Lower-cases, then tokenises with Moses' rules and escapes such as `&quot;`."""
    import sacremoses

    moses = sacremoses.MosesTokenizer(lang=language)
    return [
        moses.tokenize(line.lower(), return_str=True, escape=True) for line in lines
    ]
