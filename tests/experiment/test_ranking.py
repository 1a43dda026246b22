"""Rows are ranked at their best rates, and the order is compared with the paper's."""

import json
import math
import shlex
from pathlib import Path

import pytest

from experiments import ladder, norm, positions, schedule, table3
from t2t_jax.tools.experiment import ranking
from t2t_jax.tools.experiment.running import select
from tests.experiment.made_up import row, write_rows

ROOT = Path(__file__).parents[2]
COLUMNS = "test.perplexity", "test.bleu"


def written(folder, variants, rates=(1, 2, 4)):
    """Rows of made-up BLEU by rate; their perplexity is 100 / BLEU."""
    rows, scores = [], {}
    for name, (paper, *bleu) in variants.items():
        for rate, score in zip(rates, bleu, strict=True):
            values = {"variant": name, "rate": rate}
            figures = dict(zip(COLUMNS, paper, strict=True))
            rows.append(row(f"{name} @ {rate}", 1, values=values, paper=figures))
            scores[rows[-1].name] = [score]
    return write_rows(rows, folder, scores)


def test_the_best_rate_counts_and_its_neighbours_say_how_sensitive_it_is(tmp_path):
    results = written(
        tmp_path,
        {
            "base": ((5.0, 25.0), 50, 60, 40),
            "better": ((4.0, 26.0), 70, 20, 10),  # best at the edge
            "worse": ((6.0, 24.0), 10, 55, 50),
            "as base": ((5.1, 24.9), 20, 61, 30),  # 0.1 BLEU: that pair has no order
        },
    )
    chosen = ranking.best_rates(results, COLUMNS[0])
    best = {name: r.row.values["rate"] for name, (r, *_) in chosen.items()}
    assert best == {"base": 2, "better": 1, "worse": 2, "as base": 2}
    assert chosen["base"][1] == pytest.approx(math.log(60 / 50 * 60 / 40) / 2)
    assert chosen["better"][1:] == (pytest.approx(math.log(70 / 20)), True)
    text = ranking.report(results, *COLUMNS)
    assert text.index("| better") < text.index("| as base") < text.index("| worse")
    assert (
        "| better | 1 (the edge) | 1 | 0.357 | -0.154 |  | 70.0 | 1.253 | 4.00 | 26.0 |"
        in text
    )
    assert "perplexity: rank correlation 0.80" in text
    assert "5 of 5 pairs (100%)" in text
    rows = "base @ 2,better @ 1,worse @ 2,as base @ 2"
    assert text.endswith(f"--replan --seeds=2 --rows='{rows}'`.")
    texts = ranking.plot(results, COLUMNS[0]).axes[0].texts
    assert {text.get_text().strip() for text in texts} == best.keys()


def test_a_variant_with_a_rate_left_is_not_ranked(tmp_path):
    results = written(
        tmp_path, {"base": ((5.0, 25.0), 50, 60, 40), "left": ((4.0, 26.0), 70, 20, 1)}
    )
    (results["left @ 4"].runs[0].path / "scores/test.json").unlink()
    assert [*ranking.best_rates(results, COLUMNS[0])] == ["base"]


def test_a_row_that_diverged_is_last_and_hides_no_difference(tmp_path):
    bleu = {"base": [60.0, 61.0], "worse": [40.0, 41.0], "lost": [50.0, 51.0]}
    results = write_rows([row(name, 2) for name in bleu], tmp_path, bleu)
    for run in results["lost"].runs:
        scores = json.dumps({"bleu": 0.0, "perplexity": math.inf})
        (run.path / "scores/test.json").write_text(scores)
    text = ranking.report(results, *COLUMNS)
    lines = [line for line in text.splitlines() if line.startswith("| ")]
    names, p_values = zip(*[line.split(" | ")[:6:5] for line in lines[2:]], strict=True)
    assert names == ("| base", "| worse", "| lost")
    assert float(p_values[1]) < 0.01
    assert "nan" not in text
    assert ranking.plot(results, COLUMNS[0]) is None  # no figures of the paper


def test_the_ladder_says_what_seeds_can_show(tmp_path):
    names = [row.name for row in ladder.get_experiment().rows]
    bleu = ([60.0, 61.0], [5.0, 25.0], [58.0, 59.0], [62.0, 63.0])
    rows = [row(name, 2) for name in names]
    results = write_rows(rows, tmp_path, dict(zip(names, bleu, strict=True)))
    text = ladder.get_experiment().report(results)
    # The deviation of each row that trains is 0.71 BLEU.
    assert "BLEU: noise 0.71, 3 degrees of freedom." in text
    assert "- 3 seeds of each of two rows: 2.17 or more" in text
    assert "- 1 seed of each of two rows: 4.26 or more" in text
    assert "- half the key width: -2.00, 2.8 times the noise" in text
    # No 1/sqrt(d_k), which does not train, is no signal.
    assert "- signal-to-noise ratio of 3 rows: 5.7" in text


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"rates": "0.1,x"}, "--rates=0.1,x: want numbers above 0"),
        ({"rates": "0"}, "--rates=0: want numbers above 0"),
        ({"scale": "small"}, "unknown scale 'small'; want 'hard' or"),
    ],
)
def test_table_3_refuses_flags_that_would_do_nothing(flags, message):
    with pytest.raises(ValueError, match=message):
        table3.get_experiment(**flags)


def test_experiments_on_one_text_share_their_runs():
    hashes = [
        {run.hash for row in experiment.get_experiment("hard").rows for run in row.runs}
        for experiment in (ladder, table3)
    ]
    assert len(hashes[0] & hashes[1]) == 2  # base, and half the key width


def test_table_3_on_captions_has_the_model_of_the_harder_text():
    models = [table3.get_experiment(s).rows[0].config.model for s in table3.SCALES]
    assert models[0] == models[1]
    for model in models:  # the sizes of rows are parts of these
        assert not model.layers % 3
        assert not model.heads % 8


EXPERIMENTS = {
    "ladder": ladder,
    "norm": norm,
    "positions": positions,
    "schedule": schedule,
    "table3": table3,
}


def test_the_plan_is_what_the_experiments_train():
    """Rows and steps were fixed before the runs; the files must not drift from them."""
    for part in json.loads((ROOT / "docs/results/plan.json").read_text())["parts"]:
        words = shlex.split(part["command"])
        flags = dict(word[2:].split("=", 1) for word in words[5:])
        kept = {name: value for name, value in flags.items() if "." not in name}
        selected = kept.pop("rows", "")
        kept.pop("name", None)
        steps = {k: int(v) for k, v in kept.items() if k in ("steps", "max_length")}
        rows = EXPERIMENTS[words[4]].get_experiment(**(kept | steps)).rows
        rows = select(rows, selected)
        names = [r.name.partition(" @ ")[0] for r in rows]
        assert {*names} == {*part["rows"]}, part["name"]
        assert {r.config.train.steps for r in rows} == {part["steps"]}
        if "rates" in part:
            assert {r.values["rate"] for r in rows} == {*part["rates"]}


def test_position_schemes_are_listed_by_what_they_keep_on_long_sentences(tmp_path):
    columns = "by_length.seen.bleu", "by_length.beyond.bleu"
    kept = {"short": (50, 10), "long": (40, 20), "no long": (60, None)}
    rows = [
        row(name, values={c: v for c, v in zip(columns, scores, strict=True) if v})
        for name, scores in kept.items()
    ]
    text = positions.answer(write_rows(rows, tmp_path, {}))
    assert text.endswith(": long 40.0 to 20.0, short 50.0 to 10.0.")
    assert "no sentences beyond" in positions.answer(write_rows(rows[2:], tmp_path, {}))
