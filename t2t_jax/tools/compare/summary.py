"""A comparison for people: in a terminal, and as a page (pages/page/comparison/)."""

from collections.abc import Iterator, Sequence

from t2t_jax.io.tables import text_table
from t2t_jax.metrics.measures import TESTS
from t2t_jax.tools.pages.page import Payload, page

WORDS, LINES = 8, 2  # that are shown of each list
TEXT = (0, 1)  # columns of tables that hold text
MARKS = {"better": "better", "worse": "worse", "not significant": "n.s."}


def summary(comparison: dict) -> list[str]:
    """Formats a comparison as lines of text: tables, and a few lines side by side."""
    names = [system["name"] for system in comparison["systems"]]
    heading = (
        f"{_name(comparison)}, {comparison['direction']}, {comparison['lines']:,} "
        f"lines; compared with {names[0]}"
    )
    if comparison["references"] > 1:
        heading += (
            f"; {comparison['references']} references, of which words and signs use "
            "the first"
        )
    lines = [heading, "", *_scores(comparison, names), ""]
    lines += _signs(comparison["signs"], names)
    for number, name in enumerate(names[1:]):
        lines += ["", f"{name} against {names[0]}", *_pair(comparison, number)]
    return lines


def _scores(comparison: dict, names: Sequence[str]) -> Iterator[str]:
    """A table of all systems, and one of their differences to the first."""
    totals = comparison["totals"]
    rows = [["", *(total["title"] for total in totals), "length"]]
    for s, name in enumerate(names):
        cells = [
            f"{result['score']:.{total['digits']}f} ± "
            f"{result['interval']['half_width']:.{total['digits']}f}"
            for total in totals
            for result in [total["systems"][s]]
        ]
        rows.append([name, *cells, f"{comparison['length_ratio'][s]:.1%}"])
    yield from text_table(rows, TEXT)
    yield ""
    rows = [["", "score", "difference", "95% interval", "bootstrap", "random.", ""]]
    for s, name in enumerate(names[1:]):
        for total in totals:
            delta, digits = total["differences"][s], total["digits"]
            row = [name if total is totals[0] else "", total["title"]]
            row += _difference(delta, digits)
            row += [f"p = {delta[test]:.3f}" for test in TESTS]
            rows.append([*row, MARKS[delta["verdict"]]])
    yield from text_table(rows, TEXT)


def _difference(delta: dict, digits: int) -> list[str]:
    """A difference and its interval; z: no -0.00."""
    values = [f"{delta[name]:+z.{digits}f}" for name in ("difference", "low", "high")]
    return [values[0], " to ".join(values[1:])]


def _name(comparison: dict) -> str:
    domain = comparison["domain"]
    return comparison["name"] + (f" ({domain} domain)" if domain else "")


def overview(comparisons: Sequence[dict]) -> list[str]:
    """Formats all test sets as one table, and what systems lose in the old domain."""
    baseline, *names = (system["name"] for system in comparisons[0]["systems"])
    rows = [
        ["all sets", "", "", baseline, "system", "difference", "95% interval", "", ""]
    ]
    forgotten = []
    for s, name in enumerate(names, 1):
        for comparison in comparisons:
            for total in comparison["totals"]:
                digits, delta = total["digits"], total["differences"][s - 1]
                scores = [
                    f"{result['score']:.{digits}f} ± "
                    f"{result['interval']['half_width']:.{digits}f}"
                    for result in (total["systems"][0], total["systems"][s])
                ]
                difference = _difference(delta, digits)
                p = f"p = {max(delta[test] for test in TESTS):.3f}"
                first = total is comparison["totals"][0]
                row = [name, _name(comparison)] if first else ["", ""]
                row += [total["title"], *scores, *difference, p]
                rows.append([*row, MARKS[delta["verdict"]]])
                if first and comparison["domain"] == "old":
                    forgotten.append(
                        f"forgetting: {difference[0]} {total['title']} "
                        f"({difference[1]}, {p}) on {comparison['name']}, by {name}"
                    )
    return text_table(rows, (0, 1, 2)) + [""] * bool(forgotten) + forgotten


def _signs(signs: dict, names: Sequence[str]) -> list[str]:
    rows = [["signs", "reference", *names]]
    missing = {sign["missing"] for sign in signs.values() if "missing" in sign}
    for sign in signs.values():
        if "missing" in sign:
            continue
        row = [f"{sign['title'].lower()} ({sign['of']})"]
        for count in (sign["reference"], *sign["systems"]):
            share = "" if count["share"] is None else f" ({count['share']:.1%})"
            row.append(f"{count['found']:,}{share}")
        rows.append(row)
    reasons = [f"not shown: {reason}" for reason in sorted(missing)]
    return text_table(rows, TEXT) + reasons


def _pair(comparison: dict, number: int) -> Iterator[str]:
    """The differences between a system and the baseline."""
    counts = comparison["histograms"][number]
    yield (
        f"  lines: {counts['better']:,} better, {counts['worse']:,} worse, "
        f"{counts['equal']:,} equal, by sentence chrF"
    )
    yield from (f"  {row}" for row in text_table(_buckets(comparison, number), TEXT))
    yield "  (*: the 95% interval does not hold 0)"
    for side, title in (("right", "newly right"), ("wrong", "newly wrong")):
        words = comparison["changes"][number][side][:WORDS]
        listed = ", ".join(f"{w['word']} {w['count']}" for w in words)
        yield f"  {title}: {listed or 'none'}"
    ordered = sorted(
        comparison["sentences"], key=lambda s: s["chrf"][number + 1] - s["chrf"][0]
    )
    lines = [s for s in ordered if s["chrf"][number + 1] != s["chrf"][0]]
    shown_lines = min(LINES, len(lines) // 2)
    named = {"best": lines[::-1][:shown_lines], "worst": lines[:shown_lines]}
    for title, sentences in named.items():
        for sentence in sentences:
            yield from _side_by_side(title, sentence, comparison, number + 1)


def _buckets(comparison: dict, number: int) -> list[list[str]]:
    rows = [["where", "", "of", "score", "baseline", "system", "difference", ""]]
    for aspect in comparison["aspects"].values():
        if "missing" in aspect:
            continue
        score = aspect["scores"][0]
        for i, bucket in enumerate(aspect["buckets"]):
            delta = bucket["differences"][number][score]
            clear = delta["low"] is not None and (delta["low"] > 0 or delta["high"] < 0)
            title = "" if i else aspect["title"]
            count = f"{bucket['count']:,} {aspect['unit']}"
            row = [title, bucket["name"], count, {"chrf": "chrF", "f1": "F1"}[score]]
            row += [_number(bucket["systems"][s][score]) for s in (0, number + 1)]
            rows.append([*row, _number(delta["difference"], "+"), "*" if clear else ""])
    return rows


def _number(value: float | None, sign: str = "") -> str:
    return "–" if value is None else f"{value:{sign}z.1f}"


def _side_by_side(
    title: str, sentence: dict, comparison: dict, number: int
) -> Iterator[str]:
    """A line of both systems: [words] that the reference lacks are in brackets."""
    yield f"  {title}: {sentence['source']}"
    yield f"    {'reference':12} {_text(sentence['reference'], None)}"
    for s in (0, number):
        name = comparison["systems"][s]["name"]
        text = _text(sentence["outputs"][s], 1 << s)
        yield f"    {name:12} {text}  (chrF {sentence['chrf'][s]:.1f})"


def _text(marked: Sequence[tuple[str, int]], system_bit: int | None) -> str:
    parts = []
    for part, mark in marked:
        word = part.lstrip()
        wrong = system_bit is not None and not mark & system_bit
        parts.append(part[: len(part) - len(word)] + (f"[{word}]" if wrong else word))
    return "".join(parts)


# --------------------------------------------------------------------------------- page

PAGE_LINES = 5_000  # of a test set on a page: those with the largest differences


def comparison_page(comparisons: Sequence[dict]) -> str:
    """Returns a self-contained page of `compare`'s results, one for each test set."""
    *names, last_name = (system["name"] for system in comparisons[0]["systems"])
    content = {
        "title": f"{', '.join(names)} and {last_name}, compared",
        "sets": [_shortened(comparison) for comparison in comparisons],
    }
    styles = ["style.css", "comparison/comparison.css"]
    return page(Payload(content), "comparison/main.js", styles)


def _shortened(comparison: dict) -> dict:
    """Numbers the lines, and leaves out what a browser would be slow with."""
    lines = [s | {"number": n} for n, s in enumerate(comparison["sentences"])]
    left_out = max(0, len(lines) - PAGE_LINES)
    if left_out:
        lines.sort(key=lambda s: -max(abs(c - s["chrf"][0]) for c in s["chrf"]))
        lines = sorted(lines[:PAGE_LINES], key=lambda s: s["number"])
    return comparison | {"sentences": lines, "left_out": left_out}
