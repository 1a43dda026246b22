"""The shipped experiments train what they say."""

import dataclasses

import pytest

from experiments import back_translation, table2, table3
from t2t_jax.model.model import build


@pytest.fixture(scope="module")
def full():
    return table3.get_experiment(scale="full").rows


@pytest.fixture(scope="module")
def hard():
    return table3.get_experiment(rates="0.005").rows


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
    last_norms = 2 * scale_and_bias if model.norm == "pre" else 0
    return config.data.vocab_size * d + tables + last_norms + n * (encoder + decoder)


def test_rows_of_table_3_have_the_papers_sizes(full):
    """Of a vocabulary of 37,000 tokens; the paper's may have 4,000 more."""
    for row in full:
        slack = 5e6 * row.config.model.width / 512
        assert -1.5e6 < row.paper["parameters"] - formula(row.config) < slack, row.name


def test_the_formula_counts_what_is_built(full, hard):
    names = ("head_width=4", "layers=1", "hidden=256", "positions=learned")
    chosen = [row for row in hard if row.name.partition(" @ ")[0] in names]
    assert len(chosen) == len(names)
    for row in [full[0], full[-1], *chosen]:
        built = build(row.config.model, row.config.data.vocab_size).count()
        assert built == formula(row.config), row.name


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


def test_small_rows_keep_the_papers_ratios_and_scale_the_rate_as_it_does(full, hard):
    large = ("layers=8", "width=1024", "big")
    assert ratios(hard) == ratios([row for row in full if row.name not in large])
    for row in hard:
        rate = row.config.train.peak_learning_rate * row.config.model.width**0.5
        assert rate == pytest.approx(0.005 * 128**0.5)


@pytest.fixture(scope="module")
def models():
    return table2.get_experiment().rows


def test_models_of_table_2_have_the_same_parameters(models):
    expected = table2.parameters(models[0].config)
    for row in models[:3]:
        assert table2.parameters(row.config) == pytest.approx(expected, rel=0.01)


def test_models_of_table_2_train_with_the_same_flops(models):
    reference, *matched = models[3:]
    expected = table2.step_flops(reference.config) * reference.config.train.steps
    for row in matched:
        # The size is that of the other group; only the schedule differs.
        (twin,) = (r for r in models[:3] if f"{r.name}.flops" == row.name)
        assert row.config.model == twin.config.model
        flops = table2.step_flops(twin.config) * row.config.train.steps
        assert flops == pytest.approx(expected, rel=0.01), row.name
        assert row.config.train.steps % row.config.train.save_every == 0


def test_rows_of_back_translation_differ_in_their_text_alone():
    experiment = back_translation.get_experiment(seeds=1, back="BACK")
    texts = [row.config.data.train for row in experiment.rows]
    assert len({*texts}) == len(texts) == 7
    assert all(text.startswith("half") for text in texts[:-1])
    rows = [dataclasses.asdict(row.config) for row in experiment.rows]
    for row in rows:
        del row["data"]["train"]
        assert row == rows[0]
        assert row["data"]["tokenizer"] == "BACK/tokenizer.model"
