"""Commands in two processes print and write what they do in one, to the last byte."""

import json
import shutil
import signal

import pytest

from tests.processes.group import ours
from tests.small_run import contents

TWO = {"devices": 2}  # of each process
SLOW_CHUNKS = """
from t2t_jax.io.output_files import OutputFile
add = OutputFile.add
def slowly(self, *given):
    add(self, *given)
    print("added", file=sys.stderr, flush=True)
    time.sleep(1)
OutputFile.add = slowly
"""


@pytest.fixture
def workdir(trained, tmp_path):
    """A copy of a run of one process."""
    return shutil.copytree(trained[0], tmp_path / "work")


@pytest.fixture
def source(text):
    """More lines than devices, some of them odd."""
    lines = (text / "train.en").read_text(encoding="utf-8").splitlines()[:40]
    return "".join(f"{line}\n" for line in [*lines, "", " ", "ä\u2028b", "x" * 200])


def both(group, module, *arguments, **given):
    """What one process prints, and what two do, where the second prints nothing."""
    printed = []
    for n in (1, 2):
        some = group(n, *arguments, module=module, **TWO, **given)
        assert some.end() == [0] * n, some.said()
        gloo = [line for line in some.out().splitlines(True) if "[Gloo]" not in line]
        printed.append("".join(gloo))
        if n == 2:
            assert "[Gloo]" in some.out(1) or not some.out(1)
            assert all("[Gloo]" in line for line in some.out(1).splitlines())
            assert some.err(1) == ""
    return printed


@pytest.mark.slow
def test_lines_are_translated_from_standard_input(group, workdir, source):
    before = contents(workdir)
    command = [f"--workdir={workdir}", "--batch_size=9", "--nbest=2", "--scores"]
    one, two = both(group, "t2t_jax translate", *command, "--alignments", stdin=source)
    numbers = {int(line.partition(" ")[0]) for line in one.split("\n")[:-1]}
    assert numbers == {*range(source.count("\n"))}
    assert one == two
    assert contents(workdir) == before


@pytest.mark.slow
def test_an_output_that_was_killed_is_resumed_by_two(group, workdir, source, tmp_path):
    (tmp_path / "source").write_text(source, encoding="utf-8")
    command = [f"--workdir={workdir}", "--batch_size=9", f"--input={tmp_path}/source"]
    module = {"module": "t2t_jax translate"} | TWO
    one = group(1, *command, f"--output={tmp_path}/one", **module)
    assert one.end() == [0], one.said()

    killed = group(0)
    for they, name in zip(ours(2), ("two", "nowhere/two"), strict=True):
        output = f"--output={tmp_path}/{name}"
        killed.start(*they, *command, output, patch=SLOW_CHUNKS, **module)
    killed.until("added").send(signal.SIGKILL, 0).send(signal.SIGKILL, 1)
    assert killed.end(30) == [-signal.SIGKILL] * 2
    assert not (tmp_path / "two").exists()

    two = group(2, *command, f"--output={tmp_path}/two", "--resume", **module)
    assert two.end() == [0, 0], two.said()
    assert (tmp_path / "two").read_bytes() == (tmp_path / "one").read_bytes()
    assert not (tmp_path / "nowhere").exists()


@pytest.mark.slow
@pytest.mark.parametrize("signalled", [(0,), (1,), (0, 1)])
def test_sigterm_ends_a_translation_at_once(
    group, workdir, source, tmp_path, signalled
):
    """Not after the last line of a large text."""
    (tmp_path / "source").write_text(source * 9, encoding="utf-8")
    command = [f"--workdir={workdir}", "--batch_size=9", f"--input={tmp_path}/source"]
    two = group(
        2,
        *(*command, f"--output={tmp_path}/two"),
        module="t2t_jax translate",
        patch=SLOW_CHUNKS,
        **TWO,
    ).until("added")
    for number in signalled:
        two.send(signal.SIGTERM, number)
    statuses = two.end(45)
    assert 143 in statuses
    assert set(statuses) <= {143, -signal.SIGABRT, 1}  # JAX ends who was not asked
    assert not (tmp_path / "two").exists()


@pytest.mark.slow
def test_scores_are_the_same(group, workdir, text):
    command = [f"--workdir={workdir}", f"--test={text}/dev,{text}/test", "--tokens"]
    one, two = both(group, "t2t_jax score", *command)
    assert len(one.splitlines()) == 30
    assert one == two


@pytest.mark.slow
def test_an_evaluation_is_the_same(group, workdir, trained, text, tmp_path):
    found = []
    for n in (1, 2):
        place = tmp_path / f"of {n}"
        shutil.copytree(trained[0], place)
        command = [f"--workdir={place}", f"--test={text}/dev"]
        some = group(n, *command, module="t2t_jax evaluate", **TWO)
        assert some.end() == [0] * n, some.said()
        printed = some.out()[some.out().index("{\n") :]
        scores = json.loads(printed)
        assert scores.pop("machine")["processes"] == n
        found.append((scores, (place / "translations" / "dev.de").read_bytes()))
    assert found[0] == found[1]
