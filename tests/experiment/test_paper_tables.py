"""The experiments of the paper's tables train what they say."""

import math

import pytest

from experiments import norm, schedule, table2, table3
from t2t_jax import load_config
from t2t_jax.config import from_config_dict
from t2t_jax.model.model import build
from t2t_jax.tools.experiment.measures import lines_per_second
from t2t_jax.training.schedules import peak

# Million parameters of the paper's rows, as they follow from its formulas with a
# vocabulary of 37,000 pieces. It prints 65, 58, 60, 36, ... of a slightly larger one.
FULL = {
    "base": 63_045_632,
    **{f"heads={h}": 63_045_632 for h in (1, 4, 16, 32)},
    "head_width=16": 55_967_744,
    "head_width=32": 58_327_040,
    "layers=2": 33_644_544,
    "layers=4": 48_345_088,
    "layers=8": 77_746_176,
    "width=256": 26_816_512,
    "width=1024": 163_815_424,
    "hidden=1024": 50_450_432,
    "hidden=4096": 88_236_032,
    **{f"dropout={rate}": 63_045_632 for rate in (0.0, 0.2)},
    **{f"label_smoothing={rate}": 63_045_632 for rate in (0.0, 0.2)},
    "positions=learned": 63_045_632 + 2 * 1024 * 512,
    "big": 214_171_648,
}


@pytest.fixture(scope="module")
def full():
    return table3.get_experiment(scale="full").rows


@pytest.fixture(scope="module")
def small():
    return table3.get_experiment().rows


def formula(config):
    """The parameters of a Transformer, by sections 3.1 to 3.5 of the paper."""
    model = config.model
    d, ff, h, n = model.width, model.hidden, model.heads, model.layers
    dk = model.head_width or d // h
    dv = model.value_width or dk
    attention = 2 * d * h * dk + 2 * d * h * dv  # queries and keys; values and outputs
    feed_forward = d * ff + ff + ff * d + d
    scale_and_bias = 2 * d
    encoder = attention + feed_forward + 2 * scale_and_bias
    decoder = 2 * attention + feed_forward + 3 * scale_and_bias
    tables = 2 * model.max_positions * d if model.positions == "learned" else 0
    return config.data.vocab_size * d + tables + n * (encoder + decoder)


def test_rows_of_table_3_have_the_papers_sizes(full):
    assert {row.name: formula(row.config) for row in full} == FULL
    for row in full:
        # The paper's vocabulary is not known exactly: it may have 4,000 pieces more.
        more = 5e6 * row.config.model.width / 512
        assert -1.5e6 < row.paper["parameters"] - FULL[row.name] < more, row.name


def test_the_formula_counts_what_is_built(full, small):
    names = ("head_width=4", "layers=1", "hidden=256", "positions=learned", "big")
    for row in [full[0], *(row for row in small if row.name in names)]:
        built = build(row.config.model, row.config.data.vocab_size).count()
        assert built == formula(row.config), row.name


def test_big_is_the_big_preset(full):
    big = from_config_dict(load_config("big"))
    assert full[-1].config.model == big.model
    assert full[-1].config.train.steps == big.train.steps


def test_table_3_is_of_the_dev_set_without_averages(full):
    assert {row.config.data.test for row in full} == {full[0].config.data.dev}
    assert {row.config.decode.average for row in full} == {1}


def ratios(rows):
    """Each row's changes of base: the ratio of sizes, or the new value."""
    base = rows[0].config
    sizes = ("layers", "width", "width_of_head", "width_of_value", "hidden", "heads")
    return [
        (
            row.group,
            [getattr(row.config.model, s) / getattr(base.model, s) for s in sizes],
            row.config.model.dropout,
            row.config.train.label_smoothing,
            row.config.model.positions,
            [*row.paper.values()],
        )
        for row in rows
    ]


def test_small_rows_keep_the_papers_ratios(full, small):
    assert ratios(small) == ratios(full)
    assert small[0].config.model.layers * 2 == full[0].config.model.layers
    assert small[0].config.model.width * 4 == full[0].config.model.width


def test_table_3_reports_how_far_it_agrees_with_the_paper(full):
    class Result:
        def __init__(self, row):
            self.row = row

        def mean(self, column):
            if column == "dev.perplexity":  # agrees in all
                return 3 * self.row.paper[column]
            return math.nan

    class Results(list):
        def __getitem__(self, name):
            return next(result for result in self if result.row.name == name)

    results = Results(map(Result, full))
    (line,) = table3.report(results, table3.BLEU_2013).splitlines()
    assert "dev.perplexity" in line
    assert "is 1.00" in line
    assert "18 of 18" in line  # learned positions: the paper has no difference


@pytest.fixture(scope="module")
def models():
    return table2.get_experiment().rows


def test_models_of_table_2_have_the_same_parameters(models):
    wanted = table2.parameters(models[0].config)
    for row in models[:3]:
        assert table2.parameters(row.config) == pytest.approx(wanted, rel=0.01)


def test_models_of_table_2_train_with_the_same_flops(models):
    first, *others = models[3:]
    wanted = table2.step_flops(first.config) * first.config.train.steps
    for row in others:
        # The size is that of the other group; only the schedule differs.
        (same,) = (r for r in models[:3] if f"{r.name}.flops" == row.name)
        assert row.config.model == same.config.model
        flops = table2.step_flops(same.config) * row.config.train.steps
        assert flops == pytest.approx(wanted, rel=0.01), row.name
        assert row.config.train.steps % row.config.train.save_every == 0


def test_the_transformer_of_table_2_is_trained_once(models):
    by_name = {row.name: row.runs for row in models}
    one, other = by_name["transformer"], by_name["transformer.flops"]
    assert [run.hash for run in one] == [run.hash for run in other]


@pytest.mark.parametrize(("wanted", "start", "width"), [(2500, 10, 50), (101, 90, 10)])
def test_the_nearest_width(wanted, start, width):
    assert table2.nearest_width(lambda w: w * w, wanted, start) == width


def test_checkpoints_divide_the_steps():
    assert table2.on_grid(600.0, 25) == (600, 25)
    steps, interval = table2.on_grid(637.3, 25)
    assert steps % interval == 0
    assert abs(steps - 637.3) < 0.005 * 637.3
    assert abs(interval - 25) <= 3


def test_speed_leaves_out_the_pass_that_compiles():
    times = iter([0, 100, 100, 102, 102, 106, 106, 109])
    passes = []
    rate = lines_per_second(passes.append, ["a"] * 6, 3, lambda: next(times))
    assert rate == 2.0  # of 2, 4 and 3 seconds
    assert len(passes) == 4


def test_experiments_of_the_tiny_corpus_build():
    assert len(norm.get_experiment().rows) == 18
    rows = {row.name: row for row in schedule.get_experiment().rows}
    base, late = rows["base"].config, rows["warmup=400"].config
    assert base == from_config_dict(load_config("tiny"))
    # The peak is another factor.
    assert peak(late) == pytest.approx(peak(base))
