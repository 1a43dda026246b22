"""Is one system better than another, or was it luck? Paired bootstrap (Koehn 2004)."""

from collections.abc import Sequence
from pathlib import Path

from t2t_jax.data.corpus import Corpus, read_lines, split_places
from t2t_jax.errors import UserError
from t2t_jax.evaluation.bleu import LONGEST, SAMPLES, fixed_seed, metrics

COMPARED = ("bleu", "chrf", "ter")


def paired(
    hypotheses: Sequence[str],
    baseline: Sequence[str],
    references: Sequence[str],
    language: str,
) -> dict[str, dict]:
    """Compares two systems' translations of the same lines.

    Both are scored on the same `SAMPLES` samples of the lines; `p_value` is how often
    a difference as large as theirs comes by chance.

    Returns:
      For `bleu`, `chrf` and `ter`: `score` and `interval`, `baseline_score` and
      `baseline_interval` (as in `bleu.py`), `difference` (score - baseline_score),
      `p_value`, `signature`. Of TER less is better.

    Raises:
      ValueError: as many of each as references are needed.
    """
    if not len(hypotheses) == len(baseline) == len(references):
        counts = f"{len(hypotheses)} hypotheses, {len(baseline)} of the baseline"
        raise ValueError(f"{counts}, {len(references)} references")
    known = metrics(language)
    return {
        name: _compare(known[name], hypotheses, baseline, references)
        for name in COMPARED
    }


def _compare(metric, hypotheses, baseline, references) -> dict:
    from sacrebleu.significance import PairedTest  # slow to import

    with fixed_seed():
        test = PairedTest(
            [("baseline", baseline), ("system", hypotheses)],
            {"score": metric},
            [references],
            test_type="bs",
            n_samples=SAMPLES,
        )
        signatures, results = test()
    ((name, signature),) = signatures.items()
    theirs, ours = results[name]
    difference = ours.score - theirs.score
    return {
        "score": ours.score,
        "interval": {"mean": float(ours.mean), "half_width": float(ours.ci)},
        "baseline_score": theirs.score,
        "baseline_interval": {
            "mean": float(theirs.mean),
            "half_width": float(theirs.ci),
        },
        "difference": difference,
        # sacreBLEU gives 0.001 for a system against itself: no sample differs more.
        "p_value": float(ours.p_value) if difference else 1.0,
        "signature": str(signature),
    }


def read_baselines(files: str, corpora: list[Corpus]) -> list[list[str]]:
    """The translations of another system, one file for each test set.

    Args:
      files: names of text files, plain or `.gz`, separated by commas; a line for each
        line of the set.
      corpora: the test sets, in the same order.

    Raises:
      UserError: not a file for each set, one that is not there or not UTF-8, or one
        with another number of lines than its set.
    """
    names = split_places(files)
    if len(names) != len(corpora):
        sets = ", ".join(corpus.name for corpus in corpora)
        raise UserError(
            f"--baseline={files!r} names {len(names)} files for {len(corpora)} test "
            f"sets ({sets}); want one for each, in this order, with commas"
        )
    pairs = zip(names, corpora, strict=True)
    return [_read(Path(name).expanduser(), corpus) for name, corpus in pairs]


def _read(file: Path, corpus: Corpus) -> list[str]:
    if not file.is_file():
        raise UserError(
            f"--baseline: {file} is not a file; want the translations of {corpus.name} "
            "by another system, a line for each line of the set"
        )
    lines, wanted = list(read_lines(file)), sum(1 for _ in corpus.pairs())
    if len(lines) != wanted:
        raise UserError(
            f"--baseline: {file} has {len(lines):,} lines, but {corpus.place} has "
            f"{wanted:,}; want a translation for each line, in the same order"
        )
    if wanted > LONGEST:
        raise UserError(
            f"--baseline: {corpus.place} has {wanted:,} lines; a bootstrap takes at "
            f"most {LONGEST:,}, so want a part of the set"
        )
    return lines
