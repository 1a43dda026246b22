"""Scores translations of Multi30k's test_2016_flickr with the protocol of its papers.

    python -m benchmarks.multi30k --data=FOLDER --translations=FILE

FOLDER holds `test_2016_flickr.de` and the tokenized reference that papers score
against, `test_2016_flickr.lc.norm.tok.de`. The protocol (lower-case, then sacremoses
with escaping) is checked first: applied to the plain references, it must reproduce
every line of the tokenized file.
"""

from pathlib import Path

import sacrebleu
from absl import flags

from benchmarks import measuring, run
from t2t_jax.data.corpus import side_file
from t2t_jax.data.text_files import read_lines
from t2t_jax.io.errors import UserError
from t2t_jax.metrics.plain import corpus_scores, lower_tokenized, tokenized_scores

PUBLISHED = 41.02  # a 2.6M-parameter Transformer, test_2016_flickr, this protocol


def define_flags():
    measuring.define_flags(rounds=None)
    flags.DEFINE_string("data", None, "Folder of the references.", required=True)
    flags.DEFINE_string("translations", None, "File to score.", required=True)


def main(_):
    args = flags.FLAGS
    measuring.begin(args)
    folder = Path(args.data)
    references = list(read_lines(side_file(folder / "test_2016_flickr", "de")))
    tokenized = side_file(folder / "test_2016_flickr.lc.norm.tok", "de")
    papers = list(read_lines(tokenized))
    translations = list(read_lines(Path(args.translations)))
    our_lines = lower_tokenized(references, "de")
    alike = sum(a == b for a, b in zip(our_lines, papers, strict=True))
    print(f"protocol: {alike:,} of {len(papers):,} reference lines reproduced\n")
    if alike != len(papers):
        raise UserError(
            f"{folder}: the tokenized reference has another protocol; take "
            "data/task1/tok of github.com/multi30k/dataset"
        )
    scored = tokenized_scores(translations, references, "de")
    against_papers = sacrebleu.BLEU(tokenize="none", force=True).corpus_score(
        lower_tokenized(translations, "de"), [papers]
    )
    assert against_papers.score == scored["bleu_lc_tok"]
    row = {
        "lower-cased, tokenized": scored["bleu_lc_tok"],
        "published": PUBLISHED,
        "sacreBLEU": corpus_scores(translations, references)["bleu"],
        "signature": scored["bleu_lc_tok_signature"],
    }
    measuring.publish([row], args.output)


if __name__ == "__main__":
    run(main, define_flags)
