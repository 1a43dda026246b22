"""Tables keep each cell, in its column."""

from t2t_jax.io.tables import markdown_cell, markdown_table, text_table

ROWS = [("system", "BLEU"), ("of both",), ("a|b", "9.50"), ("long name", "41.02")]


def test_numbers_end_at_the_same_place_and_names_begin_there():
    assert text_table(ROWS) == [
        "system      BLEU",
        "of both",
        "a|b         9.50",
        "long name  41.02",
    ]
    assert text_table(ROWS, left=(0, 1))[2] == "a|b        9.50"


def test_markdown_aligns_by_its_rule_and_a_bar_stays_in_its_cell():
    cells = [(markdown_cell(name), number) for name, number in [ROWS[2], ROWS[3]]]
    assert markdown_table(ROWS[0], cells) == [
        "| system | BLEU |",
        "| --- | ---: |",
        r"| a\|b | 9.50 |",
        "| long name | 41.02 |",
    ]
