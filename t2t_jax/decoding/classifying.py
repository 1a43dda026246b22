"""Labels of sentences, with the probability of each label."""

from collections.abc import Sequence
from functools import partial

import numpy as np

from t2t_jax.data.tokenizers.vocabulary import Vocabulary
from t2t_jax.decoding import programs
from t2t_jax.decoding.devices import gather_results
from t2t_jax.decoding.inputs import Member, Source
from t2t_jax.decoding.results import Prediction
from t2t_jax.decoding.scoring import run_batches
from t2t_jax.io.errors import UserError


def classify(
    vocabulary: Vocabulary, members: Sequence[Member], sources: Sequence[Source]
) -> list[Prediction]:
    """Computes the probability of each label of each sentence.

    Args:
      members: an ensemble predicts with the mean of their probabilities.
      sources: one without tokens is read as an end of sentence alone.
    """
    # Any label serves as the target: the outputs at its place do not depend on it.
    pairs = [(source.ids or [vocabulary.source.eos], [0]) for source in sources]
    compute = partial(
        programs.label_log_probs,
        tuple(member.parameters for member in members),
        definitions=tuple(member.model.definition for member in members),
        mesh=members[0].mesh,
    )
    found: dict[int, list[float]] = {}
    for rows, log_probs_bv in run_batches(compute, vocabulary, members, pairs):
        probabilities_bv = np.exp(log_probs_bv.astype(np.float64))
        found |= zip(rows, probabilities_bv.tolist(), strict=False)
    found = gather_results("probabilities", found)
    labels = [vocabulary.piece(token) for token in range(len(vocabulary))]
    return [
        Prediction(labels[int(np.argmax(p))], dict(zip(labels, p, strict=True)))
        for p in (found[row] for row in range(len(pairs)))
    ]


def check_classifies(members: Sequence[Member]) -> None:
    """Raises UserError if a model does not predict labels."""
    for member in members:
        if member.model.predicts != "label":
            raise UserError(
                f"config.model.kind={member.config.model.kind!r} does not predict "
                "labels; load the workdir of a run of config.task.kind='classification'"
            )
