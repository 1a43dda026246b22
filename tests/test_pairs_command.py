"""`translate --pairs` as a user runs it, and its pairs as training reads them."""

import subprocess
import sys
import textwrap

import pytest

from t2t_jax.config import Config, changed
from t2t_jax.data.corpus import open_corpora
from t2t_jax.io.atomic import read_checked_json
from t2t_jax.io.errors import UserError
from t2t_jax.run.train import train
from t2t_jax.text.word_noise import add_noise, parse_noise
from tests.small_run import ROOT

LINES = ["The cat sees one dog.", "", "A dog sleeps here.", "One two three four."]
# The command itself, with a translator that only remembers what it is asked for.
PROGRAM = textwrap.dedent(
    """
    import sys
    from t2t_jax.commands import runner, translate
    from t2t_jax.commands.flags import define_ideas_flag
    from t2t_jax.config import Config
    from t2t_jax.decoding.results import Hypothesis, Translation

    class Upper:
        config = Config()

        def provenance(self):
            return {"parameters_sha256": ["abc"]}

        def sample(self, lines, **options):
            found = [Hypothesis(line.upper(), 0.0, 0.0, True) for line in lines]
            return [Translation(line, (best,)) for line, best in zip(lines, found)]

    translate.Translator.load = lambda *_: Upper()
    define_ideas_flag()
    translate.define_flags()
    runner._parse(["translate", "--workdir=DE", *sys.argv[1:]])
    translate.main([])
    """
)


def test_the_command_makes_pairs_and_says_how(tmp_path):
    (tmp_path / "mono").write_text("\n".join(LINES))
    done = subprocess.run(
        [
            *(sys.executable, "-c", PROGRAM),
            *(f"--input={tmp_path}/mono", f"--pairs={tmp_path}/bt", "--resume"),
            *("--sample", "--top_k=10", "--seed=5", "--batch_size=3"),
            *("--noise=swap@1", "--noise_seed=2", "--tag=<bt>"),
        ],
        cwd=ROOT,
        text=True,
        capture_output=True,
    )
    assert done.returncode == 0, done.stderr
    swap = parse_noise("swap@1")
    wanted = [
        (f"<bt> {add_noise(line.upper(), swap, 2, n)}" if line else "", line)
        for n, line in enumerate(LINES, 1)
    ]
    (mix,) = open_corpora("bt@0.5", "de", "en", str(tmp_path), weights=True)
    assert list(mix.pairs()) == wanted
    assert mix.weight == 0.5
    record = read_checked_json(tmp_path / "bt.json")
    assert (record["workdir"], record["input"]) == ("DE", f"{tmp_path}/mono")
    wanted = {"parameters_sha256": ["abc"], "top_k": 10, "seed": 5}
    assert wanted.items() <= record["made_from"].items()
    data = {"source": "en", "target": "de", "dir": str(tmp_path), "train": "bt@0.5"}
    for symbols, wanted in (
        ("", "symbols='<bt>'"),
        ("<x>", "symbols='<x>,<bt>'"),
        ("<x>,<bt>", "nothing.en"),  # accepted, so that the dev set is missed
    ):
        config = changed(Config(), "data", symbols=symbols, dev="nothing", **data)
        with pytest.raises(UserError, match=wanted):
            train(config, tmp_path / "run")
