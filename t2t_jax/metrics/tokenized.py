"""BLEU of tokenised text: the paper's protocol and that of papers on Multi30k.

  bleu_paper    tokenised as Moses does, cased, German compounds split
  bleu_lc_tok   lower-cased, then tokenised as Moses does

Neither is comparable with `bleu` of plain text (`metrics/plain.py`). Each score has a
signature that says how it was made. sacremoses is slow to import, so it is imported
when first used.
"""

import re
from collections.abc import Sequence
from importlib.metadata import version

from t2t_jax.metrics.bootstrap import check_lengths, scored, with_plain_floats


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

    check_lengths(hypotheses, references)
    split = (source, language) == ("en", "de")
    sides = (paper_tokenized(s, language, split) for s in (hypotheses, references))
    bleu = sacrebleu.BLEU(tokenize="none", smooth_method="none", force=True)
    scores = scored("bleu_paper", with_plain_floats(bleu), *sides, interval=True)
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

    check_lengths(hypotheses, references)
    sides = (lower_tokenized(side, language) for side in (hypotheses, references))
    bleu = sacrebleu.BLEU(tokenize="none", force=True)  # force: it is tokenised
    scores = scored("bleu_lc_tok", bleu, *sides)
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
