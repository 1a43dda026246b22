"""Workdirs anywhere: paths as people write them, and runs in a bucket.

The bucket here is a folder that takes only what Google Cloud Storage takes: whole
objects. It has no folders, nothing is renamed or grows, and what is half written is not
there.
"""

import io
import os
import shutil
import sys
import types
from pathlib import Path

import jax
import pytest
from etils.epath import backend, gpath
from orbax.checkpoint._src.path import gcs_utils

from t2t_jax import Translator, UserError, train
from t2t_jax.config import Config, ModelConfig
from t2t_jax.io import atomic, locations
from t2t_jax.model.model import build
from t2t_jax.parallel.mesh import make_mesh
from t2t_jax.training.averaging import parameter_steps
from t2t_jax.training.checkpoint import Checkpoints, RunProgress
from t2t_jax.training.reporter import Reporter
from t2t_jax.training.step import compile_steps
from t2t_jax.workdir import Workdir
from tests.small_run import assert_same, assert_same_run, config_for, parameters_of

pytestmark = pytest.mark.usefixtures("compiled_once")


class Killed(BaseException):
    """The machine is gone."""


class Bucket(backend.Backend):
    """What epath asks of a bucket."""

    def __init__(self, folder):
        self.folder = folder
        self.lives = None  # changes before the machine is gone; without end
        self.broken = False

    def file(self, path):
        scheme, _, name = os.fspath(path).partition("://")
        assert scheme == "gs"
        return self.folder / name

    def names(self):
        """Every object, without the bucket's name."""
        return sorted(
            str(f.relative_to(self.folder / "bucket"))
            for f in self.folder.rglob("*")
            if f.is_file()
        )

    def _change(self):
        if self.broken:
            raise OSError("503")
        if self.lives == 0:
            raise Killed
        if self.lives is not None:
            self.lives -= 1

    def open(self, path, mode):
        file = self.file(path)
        if "r" in mode:
            return open(file, mode)
        assert "w" in mode, f"an object cannot grow: {mode}"
        bucket = self

        class Upload(io.BytesIO if "b" in mode else io.StringIO):
            def close(self):
                if not self.closed:
                    bucket._change()
                    file.parent.mkdir(parents=True, exist_ok=True)
                    content = self.getvalue()
                    file.write_bytes(content if "b" in mode else content.encode())
                super().close()

        return Upload()

    def exists(self, path):
        return self.file(path).is_file() or self.isdir(path)

    def isdir(self, path):
        return any(f.is_file() for f in self.file(path).rglob("*"))

    def glob(self, path):
        matches = self.folder.glob(str(self.file(path).relative_to(self.folder)))
        names = (f"gs://{f.relative_to(self.folder)}" for f in matches)
        return [name for name in names if self.exists(name)]

    def listdir(self, path):
        return [Path(name).name for name in self.glob(f"{os.fspath(path)}/*")]

    def makedirs(self, path, *, exist_ok=False, mode=None):
        """A bucket has no folders."""

    mkdir = makedirs

    def remove(self, path):
        self._change()
        self.file(path).unlink()

    def rmtree(self, path):
        self._change()
        shutil.rmtree(self.file(path))

    def stat(self, path):
        return backend.os_backend.stat(self.file(path))

    def _cannot(self, *arguments, **options):
        raise AssertionError("a bucket cannot do this at once")

    rename = replace = copy = walk = _cannot


class Client:
    """What Orbax and `workdir.path` ask of google-cloud-storage."""

    def get_bucket(self, name, **options):
        if name != "bucket":
            raise LookupError(f"404 {name}")
        return types.SimpleNamespace()


@pytest.fixture(scope="module")
def bucket(tmp_path_factory):
    """A bucket named gs://bucket."""
    stand_in = Bucket(tmp_path_factory.mktemp("cloud"))
    storage = types.SimpleNamespace(Client=Client)
    modules = {
        "gcsfs": types.ModuleType("gcsfs"),
        "google.cloud": types.SimpleNamespace(storage=storage),
        "google.cloud.storage": storage,
    }
    with pytest.MonkeyPatch.context() as patch:
        for name, module in modules.items():
            patch.setitem(sys.modules, name, module)
        patch.setattr(gpath, "_is_tf_installed", lambda: False)
        patch.setitem(gpath._PREFIX_TO_BACKEND, "gs", stand_in)
        # Arrays go another way than epath's: TensorStore would go to Google.
        patch.setattr(
            gcs_utils,
            "get_kvstore_for_gcs",
            lambda path: {"driver": "file", "path": str(stand_in.file(path))},
        )
        gcs_utils.get_bucket.cache_clear()
        locations._reach.cache_clear()
        yield stand_in
    gcs_utils.get_bucket.cache_clear()
    locations._reach.cache_clear()


def test_a_path_is_what_a_person_means(bucket):
    for path, expected in (
        (Path("runs/tiny"), "runs/tiny"),
        ("/runs/tiny/", "/runs/tiny"),
        ("~/tiny", str(Path.home() / "tiny")),
        ("gs://bucket/runs//tiny/", "gs://bucket/runs/tiny"),
    ):
        located = locations.locate(path)
        assert str(located) == str(locations.locate(located)) == expected
        assert locations.is_local(located) == (not expected.startswith("gs://"))


@pytest.mark.parametrize(
    ("place", "message"),
    [
        ("s3://bucket/run", "want a folder or gs://BUCKET/FOLDER"),
        (Path("gs://bucket/run"), "give a bucket as a string, 'gs://bucket/run'"),
        ("gs://nobody/run", "gs://nobody cannot be used from here: 404 nobody"),
    ],
)
def test_a_place_that_is_no_workdir_is_told(bucket, text, place, message):
    with pytest.raises(UserError, match=message):
        Translator.load(place)
    with pytest.raises(UserError, match=message):
        train(config_for(text), place)


def test_tensorboard_that_cannot_be_written_does_not_end_a_run(bucket, capsys):
    values = {"loss": 1.5}
    workdir = locations.locate("gs://bucket/board")
    watch = Reporter(Workdir(workdir), 0, 100)
    write = watch._lines.write
    watch._lines.write = lambda *_: bucket.broken or write(*_)  # that one has to be
    bucket.broken = True
    watch.record(1, "train", values)
    for step in range(2, 50):  # more than tensorboardX holds back
        watch.record(step, "train", values)
    assert "could not be written: 503" in capsys.readouterr().err
    bucket.broken = False
    watch.record(50, "train", values)
    watch.close()
    (file,) = (workdir / "tensorboard").iterdir()
    assert file.read_bytes().count(b"train/loss") == 50


def contents(bucket):
    return {(bucket.folder / "bucket" / name).read_bytes() for name in bucket.names()}


@pytest.mark.parametrize("lives", range(5))
def test_nothing_is_lost_wherever_the_machine_is_gone(bucket, tmp_path, lives):
    folder = locations.locate(f"gs://bucket/{tmp_path.name}")
    files_kept = folder / "scores/a.json", folder / "translations/a.de"
    for number, file in enumerate(files_kept):
        atomic.write_atomically(file, f"{tmp_path} {number}".encode())
    (folder / "scores/a.1.json").write_text("older")
    before = contents(bucket)
    bucket.lives = lives
    try:
        atomic.keep_earlier(*files_kept)
        assert lives == 4
    except Killed:
        pass
    finally:
        bucket.lives = None
    assert contents(bucket) == before
    atomic.keep_earlier(*files_kept)
    assert contents(bucket) == before
    assert not any(file.exists() for file in files_kept)
    if lives == 4:  # they move together, to the first number that is free for both
        names = {f.name for file in files_kept for f in file.parent.iterdir()}
        assert names == {"a.1.json", "a.2.json", "a.2.de"}


def test_a_checkpoint_that_is_not_yet_whole_is_none(bucket):
    bucket.lives, bucket.broken = None, False
    place = locations.locate("gs://bucket/half")
    config = Config(model=ModelConfig(layers=1, width=8, heads=2, hidden=8))
    model = build(config.model, 11)
    steps = compile_steps(model, config, make_mesh(), bos=1)

    def save(*numbers):
        checkpoints = Checkpoints(Workdir(place), 3, 1)
        for number in numbers:
            state = steps.init()
            state = state._replace(step=state.step + number)
            checkpoints.save(state, RunProgress())
        checkpoints.close()

    save(1, 2)
    assert parameter_steps(place) == [1, 2]
    for kind in ("parameters", "state"):  # killed before the last thing that is written
        (place / "checkpoints" / kind / "2/commit_success.txt").unlink()
    assert parameter_steps(place) == [1]
    checkpoints = Checkpoints(Workdir(place), 3, 1)
    assert int(checkpoints.restore(steps.shapes)[0].step) == 1
    checkpoints.close()
    save(2)
    assert parameter_steps(place) == [1, 2]
    assert_same(*(parameters_of(place, step, model.shapes) for step in (1, 2)))


@pytest.fixture(scope="module")
def clouded(bucket, text):
    """A run in a bucket that was stopped and continued."""
    bucket.lives, bucket.broken = None, False
    for steps in (7, 12):
        scores = train(config_for(text, train={"steps": steps}), "gs://bucket/run")
    return locations.locate("gs://bucket/run"), scores


def test_a_run_in_a_bucket_leaves_what_it_leaves_on_disk(bucket, clouded, text):
    on_disk = bucket.folder.parent / "on_disk"
    for steps in (7, 12):
        scores = train(config_for(text, train={"steps": steps}), on_disk)
    workdir, scores_there = clouded
    assert scores_there == scores
    assert_same_run(on_disk, bucket.folder / "bucket/run", "names")
    tops = {f.relative_to(on_disk).parts[0] for f in on_disk.rglob("*") if f.is_file()}
    names = [n.removeprefix("run/") for n in bucket.names() if n.startswith("run/")]
    assert {name.partition("/")[0] for name in names} == tops
    for choice in ("average", "last", "best"):
        translators = [Translator.load(w, choice) for w in (str(workdir), on_disk)]
        assert translators[0].steps == translators[1].steps
        assert_same(*(jax.device_get(t.parameters) for t in translators))


def test_a_finished_run_in_a_bucket_stays_as_it_is(bucket, clouded, text, capsys):
    def changed():
        places = {n: bucket.folder / "bucket" / n for n in bucket.names()}
        return {n: place.stat().st_mtime_ns for n, place in places.items()}

    workdir, scores = clouded
    before = changed()
    assert train(config_for(text), str(workdir)) == scores
    assert "gs://bucket/run is finished: 12 of 12" in capsys.readouterr().err
    assert changed() == before
    with pytest.raises(UserError, match="gs://bucket/run was made with another config"):
        train(config_for(text, model={"width": 64}), str(workdir))
