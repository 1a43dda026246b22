"""Which text tells what? Three known effects, on a ladder of texts.

    python -m t2t_jax experiment ladder --workdir=DIR --name=built_in --rung=built_in
    python -m t2t_jax experiment ladder --workdir=DIR --name=hard --rung=hard
    python -m t2t_jax experiment ladder --workdir=DIR --name=multi30k --rung=multi30k \\
        --config.data.dir=FOLDER

Each rung trains its preset, and the preset with one change whose effect is known: no
division by sqrt(d_k) (section 3.2.1), half the width of queries and keys (Table 3, row
B), and the other place of the normalization (Wang et al. 2019, Xiong et al. 2020). What
the seeds of these rows show is what a rung can show of your idea: the noise, the
smallest difference that 1, 3 or 5 seeds can show, and the signal-to-noise ratio.

docs/ladder.md says which rung to take.
"""

from statistics import fmean

from experiments import _texts
from t2t_jax import load_config
from t2t_jax.tools.experiment import Experiment, Row, with_fields
from t2t_jax.tools.experiment.ranking import losses
from t2t_jax.tools.experiment.statistics import pooled_deviation, smallest_difference

UNSCALED = "no 1/sqrt(d_k)"
SEEDS = (1, 3, 5)


def get_experiment(rung="built_in", seeds=3):
    """Builds the experiment.

    Args:
      rung: built_in, hard or multi30k.
      seeds: of every row.
    """
    preset, changes, dev = _texts.entry("rung", rung, _texts.RANKED)
    base = with_fields(load_config(preset), changes)
    test = "test_2016_flickr" if rung == "multi30k" else dev
    ranked, bleu = f"{dev}.perplexity", f"{test}.bleu"
    key_width = base.model.width_of_head
    other_norm = "pre" if base.model.norm == "post" else "post"
    effects = {
        "base": {},
        UNSCALED: {"model.attention": "unscaled"},
        "half the key width": {
            "model.head_width": key_width // 2,
            "model.value_width": key_width,
        },
        f"{other_norm}-norm": {"model.norm": other_norm},
    }
    return Experiment(
        [
            Row(name, with_fields(base, fields), seeds)
            for name, fields in effects.items()
        ],
        columns=(ranked, bleu, "parameters", "minutes"),
        baseline="base",
        report=lambda results: report(results, ranked, bleu, {*effects} - {UNSCALED}),
    )


def report(results, perplexity, bleu, normal=()):
    """Tables the noise, the effects in its units, and the smallest differences.

    Args:
      perplexity, bleu: columns.
      normal: names of rows that train normally: their seeds give the noise, and their
        differences the signal. If empty, all rows give the noise.
    """
    loss = figures(
        results, "nats a token", lambda r: losses(r, perplexity), "{:.4f}", normal
    )
    scores = figures(results, "BLEU", lambda r: r.values(bleu), "{:.2f}", normal)
    return f"{loss}\n\n{scores}"


def figures(results, name, values, style, normal):
    """What the seeds show of one measure: `values` gives those of a row."""
    samples = {result.row.name: values(result) for result in results}
    pooled = [s for row, s in samples.items() if not normal or row in normal]
    deviation, freedom = pooled_deviation(pooled)
    if not freedom or not deviation:
        return f"{name}: train two seeds of a row for its noise."
    lines = [f"{name}: noise {style.format(deviation)}, {freedom} degrees of freedom."]
    for seeds in SEEDS:
        # Of rows of several seeds, which are compared by Welch's test, a little less
        # than the truth: its degrees of freedom are at most these.
        least = smallest_difference(deviation, 2 * seeds - 2 or freedom, seeds)
        count = f"{seeds} seed{'s' * (seeds > 1)}"
        lines.append(f"- {count} of each of two rows: {style.format(least)} or more")
    means = {row: fmean(sample) for row, sample in samples.items() if sample}
    base = means.pop("base", None)
    changes = {} if base is None else {row: mean - base for row, mean in means.items()}
    for row, change in sorted(changes.items(), key=lambda item: -abs(item[1])):
        lines.append(
            f"- {row}: {'+' if change > 0 else ''}{style.format(change)}, "
            f"{abs(change) / deviation:.1f} times the noise"
        )
    signals = [0.0, *(changes[row] for row in normal if row in changes)]
    if len(signals) > 1:
        ratio = (max(signals) - min(signals)) / deviation
        lines.append(f"- signal-to-noise ratio of {len(signals)} rows: {ratio:.1f}")
    return "\n".join(lines)
