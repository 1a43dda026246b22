"""An option of the search is declared once: a line in `SearchOptions`, and it is there.

A copy of the package gets one more line, and a program looks for the option in the
config, the flags, the checks, the help, the provenance of scores and in Python.
"""

import subprocess
import sys
import textwrap

from tests.small_run import ROOT

LINE = '    eagerness: int = field(5, low=2, safe=True, help="How eager it is.")\n'
HEAD = "    beam: int = field("


PROGRAM = """
    import inspect

    import pytest
    from absl import flags

    from t2t_jax import UserError, config
    from t2t_jax.commands import evaluate
    from t2t_jax.commands.flags import help_text, search_flags
    from t2t_jax.decoding.translator import Translator
    from t2t_jax.model.model import build
    from t2t_jax.tasks.task import OF_SEARCH
    from tests.decoding.small_translator import CONFIG, vocabulary
    from tests.small_run import random_parameters

    low, model = "eagerness=1 is too small; want at least 2", build(CONFIG.model, 290)
    one = Translator(CONFIG, vocabulary(), model, random_parameters(model), [7])
    found = config.from_config_dict({"decode": {"eagerness": 3}}).decode
    assert found.eagerness == 3
    assert config.default_of("decode.eagerness") == 5
    with pytest.raises(UserError, match=f"config.decode.{low}"):
        config.from_config_dict({"decode": {"eagerness": 1}})
    evaluate.define_flags()
    flags.FLAGS(["evaluate", "--workdir=x", "--test=x", "--eagerness=1"])
    with pytest.raises(UserError, match=f"--{low}"):
        search_flags(flags.FLAGS)
    text = " ".join(help_text("evaluate", "", ["eagerness"]).split())
    assert "--eagerness How eager it is." in text
    assert "eagerness" in OF_SEARCH
    assert one.with_options(eagerness=3).provenance()["decode"]["eagerness"] == 3
    assert "eagerness" not in one.provenance()["decode"]  # as in older scores
    signature = str(inspect.signature(Translator.translate))
    assert "eagerness: int | None = None" in signature
    with pytest.raises(UserError, match=f"^{low}"):
        one.translate([], eagerness=1)
    with pytest.raises(UserError, match="did you mean 'eagerness'"):
        one.translate([], eagernes=3)
    assert one.translate([], eagerness=3) == []
"""


def test_a_line_adds_an_option_everywhere(tmp_path):
    package = tmp_path / "t2t_jax"  # in which `config.py` has one line more
    package.mkdir()
    for path in (ROOT / "t2t_jax").iterdir():
        if path.name not in ("config.py", "__pycache__"):
            (package / path.name).symlink_to(path)
    source = (ROOT / "t2t_jax/config.py").read_text()
    assert source.count(HEAD) == 1
    (package / "config.py").write_text(source.replace(HEAD, LINE + HEAD))
    (tmp_path / "tests").symlink_to(ROOT / "tests")
    program = [sys.executable, "-c", textwrap.dedent(PROGRAM)]
    subprocess.run(program, cwd=tmp_path, check=True)
