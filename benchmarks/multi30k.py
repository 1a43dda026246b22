"""Scores translations of Multi30k's test_2016_flickr with the protocol of its papers.

    python -m benchmarks.multi30k --data=FOLDER --translations=FILE

FOLDER holds `test_2016_flickr.de` and the tokenised reference that papers score
against, `test_2016_flickr.lc.norm.tok.de`. The protocol (lower-case, then sacremoses
with escaping) is checked first: applied to the plain references, it must reproduce
every line of the tokenised file.
"""

import argparse
from pathlib import Path

import sacrebleu

from t2t_jax.data.text_files import read_lines
from t2t_jax.metrics.plain import corpus_scores, lower_tokenized, tokenized_scores

PUBLISHED = 41.02  # a 2.6M-parameter Transformer, test_2016_flickr, this protocol


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--translations", type=Path, required=True)
    given = parser.parse_args()
    references = list(read_lines(given.data / "test_2016_flickr.de"))
    papers = list(read_lines(given.data / "test_2016_flickr.lc.norm.tok.de"))
    translations = list(read_lines(given.translations))
    same = sum(
        a == b for a, b in zip(lower_tokenized(references, "de"), papers, strict=True)
    )
    print(f"protocol   {same:,} of {len(papers):,} reference lines reproduced")
    assert same == len(papers), "this is not the protocol of the tokenised reference"
    cased = corpus_scores(translations, references)
    print(f"sacreBLEU  {cased['bleu']:.2f}  {cased['signature']}")
    ours = tokenized_scores(translations, references, "de")
    tokenized = lower_tokenized(translations, "de")
    against_papers = sacrebleu.BLEU(tokenize="none", force=True).corpus_score(
        tokenized, [papers]
    )
    assert against_papers.score == ours["bleu_lc_tok"]
    print(f"lc, tok    {ours['bleu_lc_tok']:.2f}  {ours['bleu_lc_tok_signature']}")
    print(f"published  {PUBLISHED}, difference {ours['bleu_lc_tok'] - PUBLISHED:+.2f}")


if __name__ == "__main__":
    main()
