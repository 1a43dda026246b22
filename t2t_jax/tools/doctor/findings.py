"""Findings of an examination: as JSON, in the terminal, and as an HTML page."""

import itertools
import unicodedata
from typing import Any

import numpy as np

from t2t_jax.data.corpus import Pair
from t2t_jax.io.tables import text_table
from t2t_jax.text.view import View
from t2t_jax.tools.doctor.checks import NAMES
from t2t_jax.tools.doctor.examination import Examination
from t2t_jax.tools.doctor.overlap import ReferenceSet
from t2t_jax.tools.doctor.rules import BIT, RULES
from t2t_jax.tools.pages.page import Payload, page

NEIGHBOURS = 2  # lines shown before and after an example
STRETCHES = 50  # stretches listed
LONGEST = 600  # characters of an example's side that are shown


def findings(examination: Examination, languages: tuple[str, str]) -> dict[str, Any]:
    """Returns all that is reported of an examined text; languages are for headings."""
    knowledge, total = examination.knowledge, len(examination)
    dropped = int(examination.dropped_p.sum())
    examples = itertools.chain.from_iterable(examination.worst.values())
    shown_places = {p for _, place, _ in examples for p in _near(place, examination)}
    pairs = examination.lines(shown_places)
    strongest = sorted(examination.stretches, key=lambda s: -s.evidence)
    content = {
        "title": "Text: " + ", ".join(c.spec for c in examination.corpora),
        "languages": list(languages),
        "places": [
            {"place": corpus.spec, "pairs": size, "weight": corpus.weight}
            for corpus, size in zip(examination.corpora, examination.sizes, strict=True)
        ],
        "pairs": total,
        "sampled": knowledge.sampled,
        "accused": int((examination.mask_p > 0).sum()),
        "dropped": dropped,
        "dropped_share": dropped / max(1, total),
        "rules": [
            _rule(name, examination, pairs)
            for name in RULES
            if _applies(name, examination)
        ],
        "stretches": [_stretch(s, examination) for s in strongest[:STRETCHES]],
        "statistics": _statistics(examination),
        "histograms": [h.to_json(name) for name, h in examination.histograms.items()],
        "references": [_coverage(r, examination) for r in examination.references],
    }
    content["verdict"] = verdict(content, examination)
    return content


def _applies(name: str, examination: Examination) -> bool:
    """False for rules without what they need: a model, a dev set, a tokenizer."""
    scores = examination.options.scores
    if RULES[name].group == "by a model":
        return bool(scores) and name in scores.names
    if RULES[name].group == "dev and test":
        return bool(examination.knowledge.overlap)
    return name != "many_pieces" or examination.knowledge.pieces is not None


def _near(place: int, examination: Examination) -> range:
    """The places of an example and its neighbours, in one corpus."""
    low, high = examination.bounds(place)
    return range(max(low, place - NEIGHBOURS), min(high, place + NEIGHBOURS + 1))


def _rule(name: str, examination: Examination, pairs: dict[int, Pair]) -> dict:
    rule, count = RULES[name], examination.counts[name]
    # Pairs that break this rule and no other.
    alone = int((examination.mask_p == BIT[name]).sum())
    examples = []
    for severity, place, note in examination.worst[name]:
        corpus, line = examination.locate(place)
        near = _near(place, examination)
        lines = [[line + n - place, *map(_cut, pairs[n])] for n in near]
        example = {"corpus": corpus.spec, "line": line, "severity": float(severity)}
        examples.append({**example, "note": note, "lines": lines})
    return {
        "name": name,
        "group": rule.group,
        "description": rule.description,
        "drops": name in examination.options.drops,
        "limits": examination.options.limits[name],
        "count": count,
        "share": count / max(1, len(examination)),
        "alone": alone,
        "examples": examples,
    }


def _cut(line: str) -> str:
    return line if len(line) <= LONGEST else line[:LONGEST] + " […]"


def _stretch(stretch, examination: Examination) -> dict:
    corpus, line = examination.locate(stretch.begin)
    return {
        "corpus": corpus.spec,
        "first": line,
        "last": line + stretch.end - stretch.begin - 1,
        "offset": stretch.offset,
        "evidence": stretch.evidence,
        "here": stretch.log_odds,
        "there": stretch.offset_log_odds,
    }


def _statistics(examination: Examination) -> list[dict]:
    """Named figures of the text: [{name, value, unit}]."""
    knowledge = examination.knowledge
    lengths = knowledge.lengths
    rows = [
        ("target characters for one of the source, median", lengths.ratio, ""),
        ("its spread (Gale and Church's s)", lengths.deviation, ""),
    ]
    for name, spread in zip(NAMES, knowledge.log_length, strict=True):
        rows.append((f"characters of a {name} line, median", np.exp(spread.middle), ""))
    if knowledge.pieces:
        totals = knowledge.pieces.totals.tolist()
        for name, (pieces, odd, words) in zip(NAMES, totals, strict=True):
            share = 100 * odd / max(1, pieces)
            rows.append((f"tokens a word, {name}", pieces / max(1, words), ""))
            rows.append((f"unknown or byte tokens, {name}", share, "%"))
    return [{"name": n, "value": float(v), "unit": u} for n, v, u in rows]


def _coverage(reference: ReferenceSet, examination: Examination) -> dict:
    """The share of a set's words, and of its different words, unseen in training."""
    view, overlap = View(reference.pairs), examination.knowledge.overlap
    row: dict[str, Any] = {"place": reference.place, "pairs": len(view), "sides": []}
    for number, side in enumerate(view.sides):
        ids, in_training = overlap.ids[number], overlap.seen[number]
        words = [word for line in side.words for word in line]
        unseen = [word for word in words if not in_training[ids[word]]]
        examples = [*dict.fromkeys(unseen)]
        counts = {
            "words": len(words),
            "unseen": len(unseen) / max(1, len(words)),
            "distinct": len({*words}),
            "distinct_unseen": len(examples) / max(1, len({*words})),
        }
        row["sides"].append(counts | {"examples": examples[:12]})
    if examination.knowledge.pieces:
        row["unseen_pieces"] = examination.knowledge.pieces.unseen_share(view)
    return row


def verdict(content: dict[str, Any], examination: Examination) -> list[str]:
    """Returns what a reader should do, in sentences, the weightiest first."""

    def count(*names: str) -> int:
        return int(examination.breaking(*names).sum())

    sentences = ["No pair is so bad that it should be left out."]
    share = content["dropped_share"]
    if content["dropped"]:
        amount = "few" if share < 0.01 else "some" if share < 0.1 else "many"
        sentences = [
            f"{content['dropped']:,} of {content['pairs']:,} pairs ({share:.2%}) "
            f"should be left out: {amount}. --fix=PREFIX writes the others."
        ]
    if leaks := count("overlap", "near_overlap"):
        sentences.append(
            f"{leaks:,} pairs are lines of dev or test, or nearly: scores there would "
            "be too high."
        )
    if count("misaligned"):
        sentences.append(
            f"{count('misaligned'):,} pairs are misaligned in stretches: a line was "
            "lost or added in one file. Mend the files at the first line of each "
            "stretch; dropping them loses good text."
        )
    if count("swapped") > 0.001 * content["pairs"]:
        sentences.append(
            f"{count('swapped'):,} pairs have their sides swapped; swap them back "
            "rather than drop them."
        )
    encodings = count("mojibake", "lost_letters", "double_escapes")
    if encodings > 0.001 * content["pairs"]:
        sentences.append(
            f"{encodings:,} pairs have damaged letters or escapes: the text was "
            "converted wrongly somewhere; a better copy is worth more than a filter."
        )
    for row in content["references"]:
        for name, side in zip(NAMES, row["sides"], strict=True):
            if side["unseen"] > 0.05:
                sentences.append(
                    f"{side['unseen']:.1%} of the {name} words of {row['place']} never "
                    "occur in training: another domain, or too little text."
                )
    return sentences


# --------------------------------------------------------------------------- for people

WIDTH = 100  # columns of an example's side
EXAMPLES = 2  # of each rule
PLACES = 4  # corpora that are listed; the JSON object has all


def report(content: dict[str, Any], examples: int = EXAMPLES) -> list[str]:
    """Returns the lines of a report, with the worst `examples` of each rule."""
    places = ", ".join(f"{p['place']} ({p['pairs']:,})" for p in content["places"])
    if len(content["places"]) > PLACES:
        ends = (content["places"][n]["place"] for n in (0, -1))
        places = f"{len(content['places'])} corpora, {' to '.join(ends)}"
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
            lines += _example_lines(rule, example)
    return lines


def _table(rules: list[dict]) -> list[str]:
    broken = [rule for rule in rules if rule["count"]]
    if not broken:
        return ["no rule accuses any pair"]
    rows = [("pairs", "share", "drop", "rule")]
    for group, group_rules in itertools.groupby(broken, lambda rule: rule["group"]):
        rows.append(("", "", "", f"-- {group}"))
        for rule in group_rules:
            drops = "drop" if rule["drops"] else ""
            text = f"{rule['name']}: {rule['description']}"
            rows.append((f"{rule['count']:,}", f"{rule['share']:.2%}", drops, text))
    return text_table(rows, left=(2, 3))


def _figures(content: dict[str, Any]) -> list[str]:
    rows = [
        (f"{row['value']:.2f}{row['unit']}", row["name"])
        for row in content["statistics"]
    ]
    for row in content["references"]:
        for name, side in zip(content["languages"], row["sides"], strict=True):
            text = (
                f"of the words of {row['place']}.{name} unseen in training "
                f"({side['distinct_unseen']:.1%} of the different ones)"
            )
            rows.append((f"{side['unseen']:.2%}", text))
        if "unseen_pieces" in row:
            text = f"of the tokens of {row['place']} unseen"
            rows.append((f"{row['unseen_pieces']:.2%}", text))
    return text_table(rows, left=(1,))


def _example_lines(rule: dict, example: dict) -> list[str]:
    lines = [
        f"{rule['name']}: {example['corpus']}, line {example['line']:,}: "
        f"{escaped(example['note'])}"
    ]
    for number, source, target in example["lines"]:
        mark = ">" if number == example["line"] else " "
        lines.append(f"  {mark} {number:>9,}  {_fitted(source)}")
        lines.append(f"  {mark} {'':>9}  {_fitted(target)}")
    return [*lines, ""]


def _fitted(line: str) -> str:
    line = escaped(line)
    return line if len(line) <= WIDTH else line[: WIDTH - 1] + "…"


def escaped(text: str) -> str:
    """Returns text in which a terminal's controls and unseen characters are spelled."""
    if text.isprintable():
        return text
    return "".join(
        f"<U+{ord(c):04X}>" if unicodedata.category(c)[0] == "C" else c for c in text
    )


# --------------------------------------------------------------------------------- page


def findings_page(content: dict[str, Any]) -> str:
    """Returns a self-contained HTML page of what `findings` returns."""
    styles = ["style.css", "doctor/doctor.css"]
    return page(Payload(content), "doctor/main.js", styles)
