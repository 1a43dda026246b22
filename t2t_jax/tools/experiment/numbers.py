"""Numbers of tables, with the digits that readers need."""

import math

from t2t_jax.tasks.table import known_measures

# Columns in millions, by the last part of their names.
MILLIONS = {"parameters": 3, "tokens": 2}
# Digits after the point; those of `Task.measures` are known besides.
DIGITS = {
    **dict.fromkeys(("bleu", "bleu_lc", "bleu_paper", "chrf", "ter", "minutes"), 1),
    **dict.fromkeys(("loss", "perplexity"), 3),
    "steps": 0,
}
# Digits after the point of which papers drop none.
_PRINTED = {"bleu": 1, "bleu_paper": 1, "perplexity": 2}


def header(column: str) -> str:
    """The column's name and its unit."""
    return f"{column} (M)" if _key(column) in MILLIONS else column


def number_text(column: str, value: float) -> str:
    """A single number, such as the paper's."""
    if _key(column) in MILLIONS:
        # The paper gives millions: 65 is 65 million parameters.
        return f"{value / 1e6 if value >= 1e4 else value:,.6g}"
    if _key(column) == "flops":
        return f"{value:.2e}".replace("e+", "e")
    if isinstance(value, int):
        return f"{value:,}"
    # With the digits that were given, and those that JSON drops: 5.00 is stored as 5.0.
    given = len(f"{value:.6g}".partition(".")[2])
    return f"{value:.{max(given, _PRINTED.get(_key(column), 0))}f}"


def mean_text(column: str, mean: float, deviation: float) -> str:
    """A mean, with its standard deviation unless that is 0 or unknown."""
    if _key(column) == "flops":
        return number_text(column, mean)
    digits = _digits(column, mean)
    scale = 1e6 if _key(column) in MILLIONS else 1
    text = f"{mean / scale:,.{digits}f}"
    # Seeds hardly change how many tokens are trained on: ± 0.00 says nothing.
    least = 0.5 * 10**-digits if scale > 1 else 0
    spread = deviation / scale
    return f"{text} ± {spread:,.{digits}f}" if spread > least else text


def _digits(column: str, mean: float) -> int:
    key = _key(column)
    if key in MILLIONS:
        return MILLIONS[key]
    if key in DIGITS:
        return DIGITS[key] - (key == "perplexity" and abs(mean) >= 10)
    if measure := known_measures().get(key):
        return measure.digits
    if not mean or not math.isfinite(mean):
        return 0
    if mean == int(mean) and abs(mean) >= 1e3:
        return 0
    # Four significant digits.
    return min(max(0, 3 - math.floor(math.log10(abs(mean)))), 6)


def _key(column: str) -> str:
    return column.rpartition(".")[2]
