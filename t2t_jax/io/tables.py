"""Tables of cells, as aligned lines of text and as Markdown."""

from collections.abc import Container, Iterable, Sequence


def text_table(rows: Iterable[Sequence[str]], left: Container[int] = (0,)) -> list[str]:
    """Aligns the cells of a table in columns two spaces apart.

    Args:
      rows: equally many cells each; the first row may hold headings. A row of a single
        cell, such as the name of a group, is written as it is and widens no column.
      left: the columns of text, aligned to the left; those of numbers are aligned to
        the right.

    Raises:
      ValueError: a row of several cells has not as many as the others.
    """
    rows = [tuple(row) for row in rows]
    columns = zip(*(row for row in rows if len(row) > 1), strict=True)
    widths = [max(map(len, column)) for column in columns]

    def line(row: tuple[str, ...]) -> str:
        if len(row) == 1:
            return row[0]
        cells = zip(row, widths, strict=True)
        return "  ".join(
            cell.ljust(width) if column in left else cell.rjust(width)
            for column, (cell, width) in enumerate(cells)
        ).rstrip()

    return [line(row) for row in rows]


def markdown_table(
    heads: Sequence[str], rows: Iterable[Sequence[str]], left: Container[int] = (0,)
) -> list[str]:
    """The lines of a Markdown table; `left` as in `text_table`.

    Cells are Markdown: `markdown_cell` writes plain text as one.
    """
    rule = ["---" if column in left else "---:" for column in range(len(heads))]
    return [f"| {' | '.join(row)} |" for row in (heads, rule, *rows)]


def markdown_cell(text: str) -> str:
    """Writes plain text for a cell: on one line, and bars do not end the cell."""
    return " ".join(text.replace("|", r"\|").split())
