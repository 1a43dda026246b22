"""Static batch shapes within a token budget."""

from dataclasses import dataclass

from t2t_jax.io.errors import UserError

ROWS_MULTIPLE = 8  # the rows of every training batch are a multiple of this


@dataclass(frozen=True)
class Shape:
    """One static batch shape: [rows, source] and [rows, target] tokens."""

    rows: int
    source: int
    target: int


def rows_within(batch_tokens: int, source: int, target: int, multiple: int) -> int:
    """The most rows that fit a token budget, a multiple of `multiple`.

    Args:
      batch_tokens: The most tokens of a batch on each side, padding included.
      source, target: Tokens in a row.
      multiple: The number of rows is a multiple of this.

    Raises:
      UserError: Not even `multiple` rows fit.
    """
    length = max(source, target)
    rows = batch_tokens // length // multiple * multiple
    if not rows:
        raise UserError(
            f"config.data.batch_tokens={batch_tokens} is too small for {multiple} rows "
            f"(rows_multiple) of {length} tokens: raise it to {multiple * length} or "
            "more, or lower config.data.row_length (packed batches only), or remove "
            "the longest sentences, because a row must hold the longest one"
        )
    return rows


def round_up(n, multiple):
    """`n`, an integer or an array of them, rounded up to a multiple."""
    return -(-n // multiple) * multiple
