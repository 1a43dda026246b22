"""Commands in two processes print and write what they do in one, to the last byte."""

import signal

import pytest

from tests.small_run import contents

SLOW_CHUNKS = """
from t2t_jax.io.output_files import OutputFile
add = OutputFile.add
def slowly(self, *given):
    add(self, *given)
    print("added", file=sys.stderr, flush=True)
    time.sleep(1)
OutputFile.add = slowly
"""
TRANSLATE = {"module": "t2t_jax translate", "devices": 2}

pytestmark = pytest.mark.slow


@pytest.fixture
def source(text):
    """More lines than devices, some of them odd."""
    lines = (text / "train.en").read_text(encoding="utf-8").splitlines()[:40]
    return "".join(f"{line}\n" for line in [*lines, "", " ", "ä\u2028b", "x" * 200])


def test_lines_are_translated_from_standard_input(start, finished, source, tmp_path):
    """The second process prints nothing."""
    content = contents(finished)
    (stdin := tmp_path / "source").write_text(source, encoding="utf-8")
    flags = ["--batch_size=9", "--nbest=2", "--scores", "--alignments"]
    printed = []
    for n in (1, 2):
        children = start(n, f"--workdir={finished}", *flags, stdin=stdin, **TRANSLATE)
        children.ends(*[0] * n)
        gloo = [
            line for line in children.out().splitlines(True) if "[Gloo]" not in line
        ]
        printed.append("".join(gloo))
    assert all("[Gloo]" in line for line in children.out(1).splitlines())
    assert children.err(1) == ""
    numbers = {int(line.partition(" ")[0]) for line in printed[0].split("\n")[:-1]}
    assert numbers == {*range(source.count("\n"))}
    assert printed[0] == printed[1]
    assert contents(finished) == content


def test_an_output_that_was_killed_is_resumed_by_two(start, finished, source, tmp_path):
    (tmp_path / "source").write_text(source, encoding="utf-8")
    command = [f"--workdir={finished}", "--batch_size=9", f"--input={tmp_path}/source"]
    start(1, *command, f"--output={tmp_path}/one", **TRANSLATE).ends(0)

    # The second process cannot write where it is told to, and does not.
    flags = [[*command, f"--output={tmp_path}/{n}"] for n in ("two", "nowhere/two")]
    killed = start(0).start_each(flags, patch=SLOW_CHUNKS, **TRANSLATE).until("added")
    killed.send(signal.SIGKILL, 0).send(signal.SIGKILL, 1)
    killed.ends(-signal.SIGKILL, -signal.SIGKILL, seconds=30)
    assert not (tmp_path / "two").exists()

    start(2, *command, f"--output={tmp_path}/two", "--resume", **TRANSLATE).ends(0, 0)
    assert (tmp_path / "two").read_bytes() == (tmp_path / "one").read_bytes()
    assert not (tmp_path / "nowhere").exists()


@pytest.mark.parametrize("number", [0, 1])
def test_sigterm_ends_a_translation_at_once(start, finished, source, tmp_path, number):
    """Not after the last line of a large text."""
    (tmp_path / "source").write_text(source * 9, encoding="utf-8")
    command = [f"--workdir={finished}", "--batch_size=9", f"--input={tmp_path}/source"]
    command += [f"--output={tmp_path}/two"]
    children = start(2, *command, patch=SLOW_CHUNKS, **TRANSLATE).until("added")
    children.send(signal.SIGTERM, number)
    statuses = children.end(45)
    assert 143 in statuses
    assert set(statuses) <= {143, -signal.SIGABRT, 1}  # JAX ends who was not asked
    assert not (tmp_path / "two").exists()
