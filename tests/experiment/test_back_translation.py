"""The experiment of back-translation: its rows, and the halves they are made of."""

import dataclasses
import re
import subprocess
import textwrap

import pytest

from experiments import back_translation
from t2t_jax.commands import translate
from t2t_jax.data.tokenizers.vocabulary import parse_symbols
from t2t_jax.text.word_noise import BLANK, parse_noise


def test_rows_differ_in_their_text_alone():
    experiment = back_translation.get_experiment(seeds=1, back="BACK")
    texts = {row.name: row.config.data.train for row in experiment.rows}
    assert [*texts.values()] == [
        *("half", "half,beam", "half,sampled", "half,top10", "half,noised"),
        *("half,tagged", "train"),
    ]
    rows = [dataclasses.asdict(row.config) for row in experiment.rows]
    for row in rows:
        del row["data"]["train"]
    assert all(row == rows[0] for row in rows)
    for row in experiment.rows:
        assert row.config.data.tokenizer == "BACK/tokenizer.model"
    some = back_translation.get_experiment(pairs="tagged")
    names = [row.name for row in some.rows]
    assert names == ["half", "+ beam, tagged", "full parallel"]
    assert "perplexities" in some.note
    with pytest.raises(ValueError, match="unknown pairs bean; want beam, sampled"):
        back_translation.get_experiment(pairs="bean")


def test_the_commands_of_the_docstring_make_the_pairs_of_the_rows(tmp_path):
    text = back_translation.__doc__
    made = re.findall(r"\$back --pairs=FOLDER/(\w+)(.*)", text)
    assert [name for name, _ in made] == [*back_translation.PAIRS]
    flags = " ".join(rest for _, rest in made)
    parse_noise(re.search(r"--noise=(\S+)", flags)[1])
    tag = re.search(r"--tag='(\S+)'", flags)[1]
    symbols = parse_symbols(re.search(r"symbols='(\S+)'", text)[1])
    assert symbols == (tag, BLANK)
    assert {*re.findall(r"--(noise|tag)=", flags)} < {*translate.OF_PAIRS}
    # Splitting a text of seven lines loses none.
    for language in ("en", "de"):
        lines = "".join(f"{language} {n}\n" for n in range(7))
        (tmp_path / f"train.{language}").write_text(lines)
    split = text.partition("cd FOLDER\n")[2].partition("\n\n")[0]
    code = textwrap.dedent(split)
    subprocess.run(["bash", "-euo", "pipefail", "-c", code], cwd=tmp_path, check=True)
    read = {p.name: p.read_text() for p in tmp_path.iterdir()}
    assert read["half.de"] + read["mono.de"] == read["train.de"]
    assert read["half.en"] == "en 0\nen 1\nen 2\n"
