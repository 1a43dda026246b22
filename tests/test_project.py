"""Files around the code agree: versions, Pythons, commands, the wheel's files."""

import itertools
import re
import runpy
from pathlib import Path
from unittest import mock

import pytest
import yaml
from packaging.requirements import Requirement

import t2t_jax
from t2t_jax.commands import config_files
from tests.small_run import ROOT

WORKFLOW = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text())
JOBS = WORKFLOW["jobs"]
README = (ROOT / "README.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def setup_arguments():
    """The arguments with which setup.py calls `setuptools.setup`."""
    with pytest.MonkeyPatch.context() as patch, mock.patch("setuptools.setup") as setup:
        patch.chdir(ROOT)
        runpy.run_path("setup.py")
    return setup.call_args.kwargs


def runs(job):
    """The commands of a job of the workflow."""
    return [step["run"] for step in JOBS[job]["steps"] if "run" in step]


def test_all_files_name_the_same_version(setup_arguments):
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    newest = re.search(r"^## (\S+)", changelog, re.MULTILINE)[1]
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text())["version"]
    assert {setup_arguments["version"], newest, cited} == {t2t_jax.__version__}


def requirements(setup_arguments):
    """All packages that setup.py names, for the extras, too."""
    extras = setup_arguments["extras_require"].values()
    return [*setup_arguments["install_requires"], *itertools.chain(*extras)]


def test_no_extra_allows_the_jax_that_sums_wrongly(setup_arguments):
    versions = [
        requirement
        for requirement in map(Requirement, requirements(setup_arguments))
        if requirement.name == "jax"
    ]
    assert [sorted(version.extras) for version in versions] == [
        [],
        ["cuda12"],
        ["cuda13"],
        ["tpu"],
    ]
    for version in versions:
        assert not version.specifier.contains("0.10.2"), version
        assert version.specifier.contains("0.10.1"), version


def test_a_machine_with_a_card_gets_every_package_that_it_needs(setup_arguments):
    script = (ROOT / "benchmarks/on_a_card.sh").read_text(encoding="utf-8")
    carried = re.search(r"^packages=\(([^)]+)\)", script, re.MULTILINE)[1].split()
    needed = {Requirement(entry).name for entry in setup_arguments["install_requires"]}
    absent = {"jax", "tensorflow", "tensorflow-cpu", "tensorflow-datasets"}
    assert needed - absent <= set(carried)


@pytest.mark.parametrize("platform", ["linux", "darwin"])
def test_python_3_14_wants_no_tensorflow(setup_arguments, platform):
    machine = {"sys_platform": platform, "platform_machine": "x86_64"}
    for python, count in (("3.11", 1), ("3.13", 1), ("3.14", 0)):
        required = [
            entry
            for entry in map(Requirement, setup_arguments["install_requires"])
            if entry.name in ("tensorflow", "tensorflow-cpu")
            and entry.marker.evaluate(machine | {"python_version": python})
        ]
        assert len(required) == count, python


def test_the_wheel_has_every_file_of_the_package(setup_arguments):
    files = [
        path.relative_to(ROOT)
        for path in (ROOT / "t2t_jax").rglob("*")
        if path.is_file() and path.suffix != ".pyc"
    ]
    code = {".".join(p.parent.parts) for p in files if p.suffix == ".py"}
    for folder in ("configs", "experiments"):
        named = {p.parent.relative_to(ROOT) for p in (ROOT / folder).rglob("*.py")}
        code |= {".".join(("t2t_jax", *path.parts)) for path in named}
    assert code == {*setup_arguments["packages"]}
    shipped = {
        path.relative_to(ROOT)
        for package, patterns in setup_arguments["package_data"].items()
        for pattern in patterns
        for path in (ROOT / package.replace(".", "/")).glob(pattern)
    }
    assert {p for p in files if p.suffix != ".py"} <= shipped


def test_the_workflow_runs_every_python_of_setup(setup_arguments):
    named = re.findall(r":: (3\.\d+)", "\n".join(setup_arguments["classifiers"]))
    assert setup_arguments["python_requires"] == f">={named[0]}"
    for job in ("checks", "wheel"):
        assert JOBS[job]["strategy"]["matrix"] == {"python": named}
        python = [
            step["with"]["python-version"]
            for step in JOBS[job]["steps"]
            if step.get("uses", "").startswith("actions/setup-python@")
        ]
        assert python == ["${{ matrix.python }}"]


def test_the_workflow_runs_the_commands_of_the_readme():
    """Its tests by way of .ci/run, which takes the command from README."""
    assert runs("checks") == [".ci/run --python3-only"]
    pattern = re.search(r"sed -n '/(.+)/p' README.md", (ROOT / ".ci/run").read_text())
    (tests,) = re.findall(pattern[1], README, re.MULTILINE)
    assert tests.endswith(" && python -m pytest")

    command, preset = re.search(
        r"(python -m t2t_jax\.main) --config=(\S+)", README
    ).groups()
    built = runs("wheel")[-1].removeprefix(f"fresh/bin/{command} --config=")
    presets = {Path(config_files.resolve(name)).resolve() for name in (preset, built)}
    assert len(presets) == 1


def test_the_wheel_is_tried_without_a_clone():
    used = [step.get("uses", "").partition("@")[0] for step in JOBS["wheel"]["steps"]]
    assert "actions/checkout" not in used
    assert "actions/download-artifact" in used


def test_the_workflow_may_only_read():
    assert WORKFLOW["permissions"] == {"contents": "read"}
    text = (ROOT / ".github/workflows/ci.yml").read_text()
    assert "secrets" not in text
    assert not any("permissions" in job for job in JOBS.values())
    for job in JOBS.values():
        for step in job["steps"]:
            action, _, version = step.get("uses", "").partition("@")
            assert not action or re.fullmatch(r"v\d+", version), action


@pytest.mark.parametrize("category", [DeprecationWarning, PendingDeprecationWarning])
def test_what_our_code_uses_and_will_be_removed_is_an_error(category):
    """Warnings name the module that calls; those within a library stay warnings."""

    def warn_in(module):
        exec(
            "import warnings; warnings.warn('old', category)",
            {"__name__": module, "category": category},
        )

    for module in ("t2t_jax.io.lock", "t2t_jax", "tests.data.test_words", __name__):
        with pytest.raises(category, match="old"):
            warn_in(module)
    with pytest.warns(category, match="old"):
        warn_in("a_library")
