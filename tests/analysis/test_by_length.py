"""Scores by length: the groups, and what is counted in each."""

import math

import pytest

from t2t_jax.config import from_config_dict
from t2t_jax.data.corpus import open_corpus
from t2t_jax.io.errors import UserError
from t2t_jax.metrics.plain import corpus_scores
from t2t_jax.tools.experiment.measures import (
    Line,
    by_length,
    check_room,
    groups_of,
    scores_of,
)
from t2t_jax.tools.experiment.results import Context
from t2t_jax.workdir import Workdir
from tests.small_run import config_for

LONGEST = 8


def line(pieces, output="eins zwei drei vier", log_prob=-2.0):
    return Line(output, "eins zwei drei vier", pieces, 5, 5, log_prob)


LINES = [
    *(line(3), line(8), line(4, "eins zwei drei fünf"), line(16, "vier drei zwei")),
    *(line(9, "eins zwei"), line(17, "sechs", log_prob=-20.0), line(2)),
]


def test_groups_partition_the_lines_by_relative_length():
    groups = groups_of(LINES, LONGEST, [2.0, 0.5, 1.0, 1.5])
    lengths = [
        (*edges, sorted(line.source_pieces for line in group))
        for *edges, group in groups
    ]
    # Edges belong to the group below them; the group without lines is left out.
    assert lengths == [
        (0.0, 0.5, [2, 3, 4]),
        (0.5, 1.0, [8]),
        (1.0, 1.5, [9]),
        (1.5, 2.0, [16]),
        (2.0, None, [17]),
    ]


def test_a_group_is_scored_as_a_test_set():
    _, (_, _, beyond) = groups_of(LINES, LONGEST, [1.0])
    scores = scores_of(beyond, "de")
    outputs = ["vier drei zwei", "eins zwei", "sechs"]
    assert [line.output for line in beyond] == outputs
    expected = corpus_scores(outputs, [beyond[0].reference] * 3, "de")
    assert scores["lines"] == 3
    assert (scores["bleu"], scores["chrf"]) == (expected["bleu"], expected["chrf"])
    assert scores["perplexity"] == pytest.approx(math.exp((2 + 2 + 20) / 15))
    assert scores["pieces"] == 14
    # The ratio is of all pieces together.
    lines = [line(3)._replace(output_pieces=20), line(3)._replace(reference_pieces=35)]
    assert scores_of(lines, "de")["ratio"] == 25 / 40


def test_a_single_group_has_the_scores_of_the_set(trained):
    workdir, scores = trained
    opened = Workdir.open(workdir)
    config, vocabulary = opened.config_and_vocabulary()
    result = by_length(Context(workdir, config, {}), edges=())
    (group,) = result["groups"]
    assert (group["above"], group["up_to"]) == (0.0, None)
    for name in ("bleu", "chrf", "lines"):
        assert group[name] == scores["test"][name]
    assert group["perplexity"] == pytest.approx(scores["test"]["perplexity"], rel=1e-6)

    data = config.data
    train = open_corpus(data.train, data.source, data.target, data.dir)
    lengths = [len(ids) for ids in vocabulary.encode([s for s, _ in train.pairs()])]
    assert result["longest"] == max(lengths) + 1  # EOS
    assert result["seen.lines"] + result.get("beyond.lines", 0) == group["lines"]
    # The translations are those that were there, and not made again.
    assert len([*(workdir / "scores").iterdir()]) == 1


def test_what_cannot_be_scored_is_refused(tmp_path):
    context = Context(tmp_path, from_config_dict(config_for(tmp_path)), {})
    with pytest.raises(UserError, match="no set 'tests'.*did you mean 'test'"):
        by_length(context, sets=["tests"])
    with pytest.raises(UserError, match="trains no model"):
        by_length(context._replace(config=None))
    check_room([5, 2], [5, 9], extra=7)
    with pytest.raises(UserError, match=r"extra_length=6.* 7 tokens.*=7 or more"):
        check_room([5, 2], [5, 9], extra=6)
