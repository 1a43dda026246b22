"""Presets are found by name, from any folder, in a clone and when installed."""

import shutil
import subprocess
import sys
import zipfile

import pytest

import t2t_jax
from t2t_jax import UserError, load_config
from t2t_jax.commands import config_files
from tests.small_run import ROOT


def test_a_preset_has_a_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert load_config("tiny").data.train == "grammar:train"
    assert load_config("big:en-fr").data.target == "fr"
    # The README's commands, which name files, work from any folder too.
    assert load_config("configs/tiny.py") == load_config("tiny")
    with pytest.raises(UserError, match=r"configs/mine.py does not exist"):
        load_config("configs/mine.py")


def write_config(file, base, changes):
    """A config of the user: that of a preset, with fields of its model changed."""
    file.parent.mkdir(exist_ok=True)
    file.write_text(
        f"from configs import {base}\n\n\ndef get_config():\n"
        f"    config = {base}.get_config()\n    config.model.update({changes})\n"
        "    return config\n"
    )


def test_a_file_comes_before_a_preset_of_its_name(tmp_path, monkeypatch):
    write_config(tmp_path / "configs/tiny.py", "base", "layers=2")
    monkeypatch.chdir(tmp_path)
    assert load_config("configs/tiny.py").model.layers == 2
    assert load_config("tiny") == load_config(ROOT / "configs/tiny.py")


def test_a_config_of_ones_own_builds_on_presets_and_on_its_neighbours(tmp_path):
    for folder in ("configs", "ideas"):
        write_config(tmp_path / folder / "wide.py", "big", "width=2048")
        config = load_config(tmp_path / folder / "wide.py")
        assert (config.model.width, config.model.heads) == (2048, 16)
    # A neighbour of the same name comes first, as in a fork.
    write_config(tmp_path / "configs/big.py", "base", "heads=4")
    assert load_config(tmp_path / "configs/wide.py").model.heads == 4
    assert load_config(tmp_path / "ideas/wide.py").model.heads == 16


def test_an_installed_package_has_its_presets_inside(tmp_path, monkeypatch):
    package = tmp_path / "site-packages/t2t_jax"
    package.mkdir(parents=True)
    shutil.copytree(ROOT / "configs", package / "configs")
    monkeypatch.setattr(t2t_jax, "__file__", str(package / "__init__.py"))
    monkeypatch.chdir(tmp_path)
    assert config_files.shipped_folder("configs") == package / "configs"
    assert load_config("big").model.width == 1024  # which imports base
    assert str(package) not in sys.path  # or `config` would be a module


@pytest.mark.slow
def test_an_editable_install_is_found_next_to_the_clone(tmp_path):
    clone = shutil.copytree(
        ROOT, tmp_path / "t2t_jax", ignore=shutil.ignore_patterns(".*", "tests", "docs")
    )
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "env"], check=True)
    python = tmp_path / "env/bin/python"
    install = [python, "-m", "pip", "install", "--no-deps", "-q", "-e", clone]
    subprocess.run(install, check=True)
    code = "import importlib.util as u; print(u.find_spec('t2t_jax').origin)"
    for folder in (tmp_path, clone, tmp_path / "env"):
        found = subprocess.check_output([python, "-c", code], cwd=folder, text=True)
        assert found.strip() == str(clone / "t2t_jax/__init__.py")


@pytest.mark.slow
def test_a_wheel_describes_every_preset_from_an_empty_folder(tmp_path):
    """Builds with pip, which fetches setuptools."""
    build = [sys.executable, "-m", "pip", "wheel", "--no-deps", "-q", "-w", "."]
    subprocess.run([*build, str(ROOT)], cwd=tmp_path, check=True)
    (wheel,) = tmp_path.glob("t2t_jax-*.whl")
    zipfile.ZipFile(wheel).extractall(tmp_path / "site")
    empty = tmp_path / "empty"
    empty.mkdir()
    for preset in set(config_files.shipped_names("configs")) - {"finetune", "student"}:
        code = (
            f"import sys; sys.path.insert(0, {str(tmp_path / 'site')!r})\n"
            "from t2t_jax.commands import launch\n"
            "launch.huge_pages.restart_if_useful = lambda: None\n"
            f"sys.argv = ['t2t_jax', 'describe', '--config={preset}']\nlaunch.main()"
        )
        done = subprocess.run(
            [sys.executable, "-c", code], cwd=empty, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        assert "parameters" in done.stdout
