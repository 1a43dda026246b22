"""Table 3: variations on the Transformer, one change of the base model at a time.

    python -m t2t_jax experiment table3 --workdir=DIR
    python -m t2t_jax experiment table3 --workdir=DIR --scale=multi30k \\
        --config.data.dir=FOLDER --name=table3_multi30k
    python -m t2t_jax experiment table3 --workdir=DIR --scale=full --name=table3_full

`--scale=hard` trains rows A to E on the harder built-in text (`configs/hard.py`), each
at three peak learning rates: 51 runs of 4 minutes on one core. The largest of C, 4/3 of
the layers and twice the width, are left out. Then train one more seed of each row at
its best rate, with the flags that the report prints. Rows are ranked by the dev loss of
the averaged checkpoints, and the ranks compared with the paper's. A rate is multiplied
by (width / base width)^-0.5, as in the paper's formula (equation 3).

`--scale=multi30k` trains the same model and rows on captions, at one rate, 10 to
25 minutes a run; `--scale=full` the paper's models on WMT 2014 English-German,
big included: no checkpoints are averaged, and scores are of newstest2013, the dev set,
as in the paper.
"""

from experiments import _texts
from t2t_jax import load_config
from t2t_jax.config import ModelConfig, from_config_dict
from t2t_jax.tools.experiment import Experiment, Row, ranking, with_fields

NOTE = (
    "Except at the full scale, models and text are not the paper's: only the order of "
    "the rows may be compared with its. Perplexity is of targets without smoothing; "
    "training with more smoothing makes it worse by itself, in the paper too. "
    "bleu_paper is computed as the paper computes BLEU."
)


NEWSTEST2013 = "tfds:wmt14_translate/de-en:validation"
# By scale: the preset, its changes, the dev set, and the peak learning rates of each
# row, of a model of base's width; at the full scale the paper's formula sets them.
SCALES = {
    "hard": (*_texts.RANKED["hard"], "0.0025,0.005,0.01"),
    # The model of `hard`, whose sizes can be divided as the paper's base is.
    "multi30k": (
        "multi30k:1500",
        {
            "data.test": "val,test_2016_flickr",
            "model.layers": 3,
            "model.heads": 8,
            "model.hidden": 512,
            "model.positions": "sinusoid",
        },
        "val",
        "0.004",
    ),
    "full": (
        "base",
        {"decode.average": 1, "data.test": NEWSTEST2013},
        "wmt14_translate-de-en-validation",
        "",
    ),
}


def get_experiment(scale="hard", seeds=1, steps=0, rates=""):
    """Builds the experiment.

    Args:
      scale: hard, multi30k or full.
      seeds: of each row.
      steps: of training; 0 for those of the scale's preset.
      rates: peak learning rates of each row, separated by commas; empty for those of
        the scale.
    """
    preset, changes, dev, default_rates = _texts.entry("scale", scale, SCALES)
    base = with_fields(from_config_dict(load_config(preset)), changes)
    if steps:
        base = with_fields(base, {"train.steps": steps})
    perplexity = f"{dev}.perplexity"
    bleu = f"{dev}.bleu_paper" if scale == "full" else f"{dev}.bleu"
    tried = numbers("rates", rates or default_rates)
    rows = []
    variants = [("base", {}, (4.92, 25.8, 65)), *variations(base.model)]
    for group, changes, figures in variants:
        large = group == "big" or (figures[2] > 65 and "model.hidden" not in changes)
        if large and scale != "full":  # too slow for a small bench
            continue
        name = group if group in ("base", "big") else _name(changes)
        if group == "big":
            changes = changes | {"train.steps": 3 * base.train.steps}
        row = Row(
            name,
            with_fields(base, changes),
            seeds,
            paper={
                perplexity: figures[0],
                bleu: figures[1],
                "parameters": figures[2] * 1e6,
            },
            group=group,
        )
        rows += ranking.at_rates(row, tried, base.model.width) if tried else [row]
    return Experiment(
        rows,
        columns=(perplexity, bleu, "parameters", "flops", "minutes"),
        note=NOTE,
        plot=lambda results: ranking.plot(results, perplexity),
        report=lambda results: ranking.report(results, perplexity, bleu),
    )


def numbers(flag, text):
    """Reads positive numbers, separated by commas."""
    try:
        values = [float(number) for number in text.split(",")] if text else []
    except ValueError:
        values = [0.0]
    if not all(value > 0 for value in values):
        raise ValueError(f"--{flag}={text}: want numbers above 0, such as 0.0025,0.005")
    return values


def variations(base: ModelConfig):
    """Yields (group, changed fields, the paper's PPL, BLEU and million parameters).

    The sizes keep the paper's ratios to its base model.
    """
    n, d, ff, h = base.layers, base.width, base.hidden, base.heads
    k = base.width_of_head
    heads = "A: heads"
    # The widths of heads follow: width / heads.
    yield heads, {"model.heads": max(1, h // 8)}, (5.29, 24.9, 65)
    yield heads, {"model.heads": h // 2}, (5.00, 25.5, 65)
    yield heads, {"model.heads": h * 2}, (4.91, 25.8, 65)
    yield heads, {"model.heads": h * 4}, (5.01, 25.4, 65)
    # Of queries and keys only, as the paper's numbers of parameters show.
    keys = {"model.value_width": k}
    yield "B: keys", {"model.head_width": k // 4, **keys}, (5.16, 25.1, 58)
    yield "B: keys", {"model.head_width": k // 2, **keys}, (5.01, 25.4, 60)
    yield "C: size", {"model.layers": n // 3}, (6.11, 23.7, 36)
    yield "C: size", {"model.layers": n * 2 // 3}, (5.19, 25.3, 50)
    yield "C: size", {"model.layers": n * 4 // 3}, (4.88, 25.5, 80)
    yield "C: size", {"model.width": d // 2}, (5.75, 24.5, 28)
    yield "C: size", {"model.width": d * 2}, (4.66, 26.0, 168)
    yield "C: size", {"model.hidden": ff // 2}, (5.12, 25.4, 53)
    yield "C: size", {"model.hidden": ff * 2}, (4.75, 26.2, 90)
    noise = "D: regularization"
    yield noise, {"model.dropout": 0.0}, (5.77, 24.6, 65)
    yield noise, {"model.dropout": 0.2}, (4.95, 25.5, 65)
    yield noise, {"train.label_smoothing": 0.0}, (4.67, 25.3, 65)
    yield noise, {"train.label_smoothing": 0.2}, (5.47, 25.7, 65)
    yield "E: positions", {"model.positions": "learned"}, (4.92, 25.7, 65)
    big = {"width": d * 2, "hidden": ff * 2, "heads": h * 2, "dropout": 0.3}
    changes = {f"model.{field}": value for field, value in big.items()}
    yield "big", changes, (4.33, 26.4, 213)


def _name(changes):
    """The first change: `heads=1`."""
    field, value = next(iter(changes.items()))
    return f"{field.partition('.')[2]}={value}"
