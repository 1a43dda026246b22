"""The paper's argument in one coffee: does the Transformer earn its parts?

    python -m t2t_jax experiment claims --workdir=DIR

On the built-in corpus, without a download: the Transformer with three seeds; the models
that it replaced, with as many parameters; the Transformer without one of its parts; a
scheme of positions that came later. Half an hour on two CPU cores, one of them at a
time. The rows are those of `table2`, `ablate` and `positions`: what has been run for
one of these is not run again.
"""

import dataclasses

from experiments import ablate, positions, table2
from t2t_jax.io.tables import markdown_table
from t2t_jax.tools.experiment import Experiment, Measure, Row, with_fields

NO_RESIDUAL = "no residual connections"
BLEU, LONG, LOSS = "test.bleu", "long.bleu", "test.perplexity"
NOTE = (
    "No figure of the paper is comparable: the text is that of a grammar. `long` has "
    "sentences longer than any in training."
)


def get_experiment(seeds=3, row_seeds=1) -> Experiment:
    """Builds the experiment.

    Args:
      seeds: of the Transformer.
      row_seeds: of each other row.
    """
    parts = ablate.get_experiment(seeds=seeds, row_seeds=row_seeds)
    models = table2.get_experiment(seeds=row_seeds)
    schemes = positions.get_experiment(seeds=row_seeds)
    (base,) = rows_of(parts, "the Transformer", "base")
    one_head = with_fields(base.config, {"model.heads": 1})
    lengths = rows_of(schemes, "", "sinusoid")[0].measures
    rows = [
        dataclasses.replace(base, measures=[*lengths, Measure("speed")]),
        *rows_of(models, "older models, as many parameters", "lstm", "conv"),
        *rows_of(
            parts,
            "without a part",
            *("no positions", NO_RESIDUAL, "no 1/sqrt(d_k)"),
        ),
        Row("one head", one_head, seeds=row_seeds, group="without a part"),
        *rows_of(schemes, "positions of later papers", "alibi"),
    ]
    return Experiment(
        rows,
        columns=(
            *(BLEU, LONG, LOSS, "parameters", "flops", "minutes"),
            "speed.sentences_per_second",
        ),
        compared=LOSS,
        baseline="base",
        note=NOTE,
        plot=plot,
        report=report,
    )


def rows_of(experiment, group, *names):
    """Returns the named rows of another experiment, as a group of this one."""
    by_name = {row.name: row for row in experiment.rows}
    return [dataclasses.replace(by_name[n], group=group, paper={}) for n in names]


def plot(results):
    """Draws BLEU on sentences like those of training, and on longer ones."""
    from matplotlib.figure import Figure

    from t2t_jax.tools.experiment.plots import bars

    figure = Figure(figsize=(11, 5))
    for axes, column, title in zip(
        figure.subplots(1, 2),
        (BLEU, LONG),
        ("BLEU, lengths as in training", "BLEU, longer than in training"),
        strict=True,
    ):
        bars(results, column, title=title, baseline="base", axes=axes)
    return figure


def report(results):
    """Says for each claim of the paper what the rows show."""
    base = results["base"]

    def difference_text(name, column=BLEU):
        if not (base.values(column) and results[name].values(column)):
            return "not run yet"
        return f"{base.mean(column):.1f} against {results[name].mean(column):.1f}"

    def cost(name):
        ratio = results[name].mean("minutes") / base.mean("minutes")
        return f"in {ratio:.1f} times the training time" if ratio > 0 else ""

    claims = (
        ("Attention can replace recurrence (section 1)", "lstm", BLEU, cost("lstm")),
        ("... and convolution (section 2)", "conv", BLEU, cost("conv")),
        ("Several heads help (section 3.2.2)", "one head", BLEU, ""),
        ("Scores need 1/sqrt(d_k) (section 3.2.1)", "no 1/sqrt(d_k)", BLEU, ""),
        ("The order has to be told (section 3.5)", "no positions", BLEU, ""),
        ("Layers need residual connections (section 3.1)", NO_RESIDUAL, BLEU, ""),
        ("Sinusoids may extrapolate (section 3.5)", "alibi", LONG, "on `long`"),
    )
    cells = (
        [claim, name, f"{difference_text(name, column)} {remark}"]
        for claim, name, column, remark in claims
    )
    head = ("claim", "tried", "BLEU of the Transformer")
    return "\n".join(markdown_table(head, cells, left=(0, 1, 2)))
