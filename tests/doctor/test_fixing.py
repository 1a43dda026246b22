"""`--fix` keeps what is kept as it was, and loses nothing; the command itself."""

import csv
import json
from types import SimpleNamespace

import pytest

from t2t_jax import load_config
from t2t_jax.data.corpus import file_corpus, open_corpora
from t2t_jax.io.errors import UserError
from t2t_jax.tools.doctor import command
from t2t_jax.tools.doctor.examination import Examination, ExaminationOptions
from t2t_jax.tools.doctor.fixing import HEADER, write_fix
from tests.doctor.made_up import corpus_of
from tests.small_run import write_pairs

LANGUAGES = "en", "de"


@pytest.fixture
def pairs(text):
    odd = [("\ufeffA mark at first", "x"), ("return\r", "zurück\r"), ("a\tb", "c\\d")]
    return [*odd, *text[:40], *text[:3], ("", "empty"), ("a\x02", "b\t\x02"), text[50]]


def test_kept_and_removed_are_all(pairs, tmp_path):
    examination = Examination(
        [corpus_of(pairs[:20], "one"), corpus_of(pairs[20:], "two")]
    )
    prefix = tmp_path / "fixed"
    kept_count, removed_count = write_fix(examination, prefix, LANGUAGES)
    assert kept_count + removed_count == len(pairs)
    dropped = examination.dropped_p
    assert removed_count == dropped.sum() >= 5
    # The hashes are checked while they are read.
    assert [*file_corpus(prefix, *LANGUAGES).pairs()] == [
        pair for pair, is_dropped in zip(pairs, dropped, strict=True) if not is_dropped
    ]
    with open(tmp_path / "fixed.removed.tsv", encoding="utf-8", newline="") as file:
        rows = [line.rstrip("\n").split("\t") for line in file]
    assert tuple(rows[0]) == HEADER
    assert len(rows) == removed_count + 1
    for corpus, line, rules, reasons, *sides in rows[1:]:
        place = int(line) - 1 + (20 if corpus == "two" else 0)
        unescaped = tuple(
            side.replace(r"\t", "\t").replace(r"\r", "\r").replace(r"\\", "\\")
            for side in sides
        )
        assert unescaped == pairs[place]
        assert rules
        assert reasons
    endings = ".de", ".en", ".hashes", ".removed.tsv"
    assert sorted(f.name for f in tmp_path.iterdir()) == [f"fixed{e}" for e in endings]


def test_nothing_is_overwritten(pairs, tmp_path):
    examination = Examination([corpus_of(pairs)])
    for ending in ("en", "de.gz", "hashes", "removed.tsv"):
        (tmp_path / f"fixed.{ending}").write_text("mine")
        with pytest.raises(UserError, match="already exists"):
            write_fix(examination, tmp_path / "fixed", LANGUAGES)
        (tmp_path / f"fixed.{ending}").unlink()
    with pytest.raises(UserError, match="one file"):
        write_fix(examination, tmp_path / "fixed", ("en", "en"))
    pairs.append(("later", "später"))
    with pytest.raises(UserError, match="changed meanwhile"):
        write_fix(examination, tmp_path / "fixed", LANGUAGES)
    assert not [*tmp_path.iterdir()]


def test_what_is_dropped_can_be_chosen(pairs, tmp_path):
    options = ExaminationOptions(drops=frozenset({"empty"}))
    examination = Examination([corpus_of(pairs)], options=options)
    assert write_fix(examination, tmp_path / "fixed", LANGUAGES)[1] == 1
    # Carriage returns and a byte order mark are kept, too.
    pairs_kept = [*file_corpus(tmp_path / "fixed", *LANGUAGES).pairs()]
    assert pairs_kept == [pair for pair in pairs if all(pair)]


def test_the_command(text, tmp_path, run_doctor):
    write_pairs(tmp_path, train=text[:60] + text[:2], dev=text[60:70])
    data = {"dir": str(tmp_path), "train": "train", "dev": "dev", "test": ""}
    printed = run_doctor(
        {"data": data},
        json=True,
        html=f"{tmp_path}/page.html",
        fix=f"{tmp_path}/fixed",
    )
    content = json.loads(printed)
    rules = {rule["name"]: rule["count"] for rule in content["rules"]}
    assert rules["duplicate"] == 2
    assert content["pairs"] == 62
    assert (tmp_path / "page.html").read_text().startswith("<!doctype html>")
    fixed = [*file_corpus(tmp_path / "fixed", *LANGUAGES).pairs()]
    assert len(fixed) == 62 - content["dropped"]
    with open(tmp_path / "fixed.removed.tsv", encoding="utf-8") as file:
        assert len([*csv.reader(file, delimiter="\t")]) == content["dropped"] + 1


def test_parts_of_a_text_are_examined_and_kept_by_themselves(
    text, tmp_path, run_doctor
):
    rows = [(f"{n % 10 / 10}", *pair) for n, pair in enumerate(text[:60])]
    for name, file_rows in {"a": rows[:25], "b": rows[25:]}.items():
        lines = "".join("\t".join(row) + "\n" for row in file_rows)
        (tmp_path / "raw").mkdir(exist_ok=True)
        (tmp_path / f"raw/{name}.tsv").write_text(lines, encoding="utf-8")
    data = {"dir": str(tmp_path), "train": "raw/*.tsv", "dev": "", "test": ""}
    data |= {"columns": "2,3", "score_column": "1", "min_score": 0.3}
    removed = []
    for part in ("1/3", "2/3", "3/3"):
        run_doctor(
            {"data": data}, fix=f"{tmp_path}/kept", part=part, drop="none,low_score"
        )
        file = tmp_path / f"kept.{part.replace('/', '-of-')}.removed.tsv"
        removed += [line.split("\t")[:3] for line in file.read_text().splitlines()[1:]]
    low = [n for n, row in enumerate(rows) if float(row[0]) < 0.3]
    places = [("a", n + 1) if n < 25 else ("b", n - 24) for n in low]
    expected = [[f"{tmp_path}/raw/{f}.tsv", str(n), "low_score"] for f, n in places]
    assert removed == expected
    kept = open_corpora("kept.*", "en", "de", str(tmp_path))
    assert [pair for corpus in kept for pair in corpus.pairs()] == [
        row[1:] for n, row in enumerate(rows) if n not in low
    ]


def test_text_of_other_languages_is_not_compared_with_the_built_in_sets(
    tmp_path, run_doctor
):
    for language, lines in (
        ("en", "Is he here?\nYes.\n"),
        ("ja", "いますか。\nはい。\n"),
    ):
        (tmp_path / f"train.{language}").write_text(lines, encoding="utf-8")
    data = {"dir": str(tmp_path), "train": "train", "target": "ja"}
    content = json.loads(run_doctor({"data": data}, json=True))
    assert content["pairs"] == 2
    with pytest.raises(UserError, match="--part=1/3: the text has too few"):
        run_doctor({"data": data}, part="1/3")


@pytest.fixture
def run_doctor(capsys):
    """Runs the command with some flags; returns what it prints."""
    flags = {
        **dict.fromkeys(("workdir", "reverse", "contrast", "html", "fix", "part")),
        **{"drop": "", "limit": [], "pieces": False, "examples": 1, "json": False},
    }

    def run(config=None, **values):
        values["config"] = load_config("tiny", **(config or {}))
        command.run(SimpleNamespace(**(flags | values)))
        return capsys.readouterr().out

    return run
