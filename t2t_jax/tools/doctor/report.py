"""Prints findings in the terminal."""

import unicodedata
from typing import Any

WIDTH = 100  # columns of an example's side
EXAMPLES = 2  # of each rule


def report(content: dict[str, Any], examples: int = EXAMPLES) -> list[str]:
    """Returns the lines of a report.

    Args:
      content: as `findings.findings` returns it.
      examples: worst pairs that are shown of each rule, with their neighbours.
    """
    places = ", ".join(f"{p['place']} ({p['pairs']:,})" for p in content["places"])
    lines = [f"{content['pairs']:,} pairs of {places}", "", *content["verdict"], ""]
    lines += _table(content["rules"])
    for row in content["stretches"][:10]:
        offset = f"fits at {row['offset']:+d}" if row["offset"] else "fits nowhere near"
        lines.append(
            f"  lines {row['first']:,} to {row['last']:,} of {row['corpus']}: {offset}"
        )
    lines += ["", *_figures(content), ""]
    for rule in content["rules"]:
        for example in rule["examples"][:examples]:
            lines += _example(rule, example)
    return lines


def _table(rules: list[dict]) -> list[str]:
    broken = [rule for rule in rules if rule["count"]]
    if not broken:
        return ["no rule accuses any pair"]
    lines = [f"{'pairs':>9} {'share':>7}  drop  rule"]
    group = ""
    for rule in broken:
        if rule["group"] != group:
            group = rule["group"]
            lines.append(f"{'':24}-- {group}")
        mark = "drop" if rule["drops"] else ""
        lines.append(
            f"{rule['count']:9,} {rule['share']:7.2%}  {mark:4}  {rule['name']}: "
            f"{rule['description']}"
        )
    return lines


def _figures(content: dict[str, Any]) -> list[str]:
    lines = [
        f"{row['value']:9.2f}{row['unit']:1} {row['name']}"
        for row in content["statistics"]
    ]
    for row in content["references"]:
        for name, side in zip(content["languages"], row["sides"], strict=True):
            lines.append(
                f"{side['unseen']:9.2%}  of the words of {row['place']}.{name} unseen "
                f"in training ({side['distinct_unseen']:.1%} of the different ones)"
            )
        if "unseen_pieces" in row:
            lines.append(
                f"{row['unseen_pieces']:9.2%}  of the pieces of {row['place']} unseen"
            )
    return lines


def _example(rule: dict, example: dict) -> list[str]:
    lines = [
        f"{rule['name']}: {example['corpus']}, line {example['line']:,}: "
        f"{shown(example['note'])}"
    ]
    for number, source, target in example["lines"]:
        mark = ">" if number == example["line"] else " "
        lines.append(f"  {mark} {number:>9,}  {_fitted(source)}")
        lines.append(f"  {mark} {'':>9}  {_fitted(target)}")
    return [*lines, ""]


def _fitted(line: str) -> str:
    line = shown(line)
    return line if len(line) <= WIDTH else line[: WIDTH - 1] + "…"


def shown(text: str) -> str:
    """Returns text in which a terminal's controls and unseen characters are spelled."""
    if text.isprintable():
        return text
    return "".join(
        f"<U+{ord(c):04X}>" if unicodedata.category(c)[0] == "C" else c for c in text
    )
