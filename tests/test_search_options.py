"""An option of the search is declared once: a line in `SearchOptions`, and it is there.

A copy of the package gets one more line, and a program looks for the option in the
config, the flags, the checks, the help, the provenance of scores and in Python.
"""

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from t2t_jax import config

ROOT = Path(__file__).parent.parent
LINE = '    eagerness: int = field(5, low=2, safe=True, help="How eager it is.")\n'
HEAD = "    beam: int = field("


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with the package, in which `config.py` has one line more."""
    folder = tmp_path_factory.mktemp("package")
    package = folder / "t2t_jax"
    package.mkdir()
    for path in Path(config.__file__).parent.iterdir():
        if path.name not in ("config.py", "__pycache__"):
            (package / path.name).symlink_to(path)
    source = Path(config.__file__).read_text()
    assert source.count(HEAD) == 1
    (package / "config.py").write_text(source.replace(HEAD, LINE + HEAD))
    (folder / "tests").symlink_to(ROOT / "tests")
    return folder


PROGRAM = """
    import inspect

    from absl import flags

    from t2t_jax import UserError, config
    from t2t_jax.commands import evaluate
    from t2t_jax.commands.flags import help_text, search_flags
    from t2t_jax.decoding.translator import Translator
    from t2t_jax.tasks.task import OF_SEARCH
    from tests.decoding.small_translator import translator


    def refusal(call, *arguments, **options):
        try:
            call(*arguments, **options)
        except UserError as e:
            return str(e)


    one = translator(1)
    print("config:", config.from_config_dict({"decode": {"eagerness": 3}}).decode)
    print("default:", config.default_of("decode.eagerness"))
    print("refused:", refusal(config.from_config_dict, {"decode": {"eagerness": 1}}))
    evaluate.define_flags()
    flags.FLAGS(["evaluate", "--workdir=x", "--test=x", "--eagerness=1"])
    print("flag:", refusal(search_flags, flags.FLAGS))
    print("help:", " ".join(help_text("evaluate", "", ["eagerness"]).split()))
    print("unused:", "eagerness" in OF_SEARCH)
    print("provenance:", one.with_options(eagerness=3).provenance()["decode"])
    print("older scores:", one.provenance()["decode"])
    print("signature:", inspect.signature(Translator.translate))
    print("python:", refusal(one.translate, [], eagerness=1))
    print("wrong name:", refusal(one.translate, [], eagernes=3))
    print("accepted:", one.translate([], eagerness=3))
"""


def test_a_line_adds_an_option_everywhere(folder):
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(PROGRAM)],
        cwd=folder,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    found = dict(line.split(": ", 1) for line in done.stdout.splitlines())
    assert "eagerness=3" in found["config"]
    assert found["default"] == "5"
    low = "eagerness=1 is too small; want at least 2"
    assert found["refused"] == f"config.decode.{low}"
    assert found["flag"] == f"--{low}"
    assert "--eagerness How eager it is." in found["help"]
    assert found["unused"] == "True"
    assert "'eagerness': 3" in found["provenance"]
    assert "eagerness" not in found["older scores"]  # they are of its default
    assert "eagerness: int | None = None" in found["signature"]
    assert found["python"] == low
    assert found["wrong name"].endswith("did you mean 'eagerness'?")
    assert found["accepted"] == "[]"


def test_what_is_recorded_of_a_search():
    plain = {"beam": 4, "alpha": 0.6, "penalty": "gnmt", "stop": "best"}
    options = config.SearchOptions()
    assert options.recorded() == plain
    # Without several groups, their cost has no effect.
    assert config.SearchOptions(diversity=2.0).recorded() == plain
    groups = {"groups": 2, "diversity": 0.5}
    assert options.override(groups=2).recorded() == plain | groups
