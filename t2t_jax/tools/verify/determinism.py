"""Checks of equal results: twice, after a kill, on other devices, among other lines."""

import dataclasses
import os
from collections.abc import Sequence
from pathlib import Path

import jax
import numpy as np

from t2t_jax import config as fields
from t2t_jax.config import MeshConfig
from t2t_jax.data.tokenizers.training import train_tokenizer
from t2t_jax.data.tokenizers.vocabulary import Vocabulary
from t2t_jax.decoding.translator import Translator
from t2t_jax.extensions.grammar import corpus
from t2t_jax.model.model import build
from t2t_jax.parallel.process_setup import set_up_process
from t2t_jax.run.differences import COMPARED, workdir_differences
from t2t_jax.tools.verify import child_runs, numbers
from t2t_jax.tools.verify.check import (
    Context,
    Measured,
    Unavailable,
    all_equal,
    at_most,
    with_details,
    worst,
)
from t2t_jax.tools.verify.own_process import in_own_process
from t2t_jax.tools.verify.random_models import PAPER, SmallModel, small_models

# Of losses, relative: devices add in another order (docs/results/devices.md).
ORDER = 1e-5
VIRTUAL_DEVICES = 4
PIECES = 330  # of the vocabulary of the translator of `lines`


# ------------------------------------------------------------------------ runs as bytes


def twice(context: Context) -> Measured:
    """Trains twice from one config, and compares all that the two runs wrote."""
    undisturbed = child_runs.baseline(context)
    return same_workdirs(undisturbed, child_runs.child_runs(context).finished("again"))


def resume(context: Context) -> Measured:
    """Kills a run by SIGKILL, lets it go on, and compares it with an undisturbed one.

    With --full it is killed three times.
    """
    undisturbed = child_runs.baseline(context)
    steps = [5, 10, 15] if context.full else [10]
    workdir, deaths = child_runs.child_runs(context).killed("killed", steps)
    if not deaths:
        raise Unavailable("each run came to its end before it could be killed")
    note = f"killed when the checkpoint of step {', '.join(map(str, deaths))} was there"
    return same_workdirs(undisturbed, workdir, note)


def same_workdirs(undisturbed: Path, workdir: Path, *details: str) -> Measured:
    """Compares checkpoints to the last bit, and metrics and files, without times."""
    differences = workdir_differences(undisturbed, workdir)
    compared = sum(len(read(undisturbed)) for read in COMPARED.values())
    listed = [
        f"{kind}: {name}" for kind, names in differences.items() for name in names
    ]
    measured = all_equal(len(listed), compared, "values", differences=listed[:100])
    return with_details(dataclasses.replace(measured, details=details), listed)


def processes(context: Context) -> Measured:
    """Trains in two processes, as launch/local.sh starts them, and compares losses."""
    single = child_runs.baseline(context)
    environments = two_environments(child_runs.machine_of(single))
    runs = child_runs.child_runs(context)
    workdir, restarted = runs.group("two_processes", environments)
    group_losses, single_losses = child_runs.losses(workdir), child_runs.losses(single)
    devices = child_runs.machine_of(workdir)["devices"]
    measured = at_most(
        loss_difference(group_losses, single_losses),
        ORDER,
        steps=len(single_losses),
        devices=devices,
    )
    note = "started twice: the machine is busy, and XLA waits 30 s for a process"
    return with_details(measured, [note] if restarted else [])


def two_environments(machine: dict) -> list[dict[str, str]]:
    """The environments of two processes on a machine, with devices of their own."""
    if machine["device"] == "cpu":
        return [{}, {}]
    if "tpu" in machine["device"].lower():
        raise Unavailable("the processes of a TPU start on its hosts: launch/tpu_vm.sh")
    count = machine["devices"]
    if count < 2:
        raise Unavailable("two processes need a GPU each, and there is one")
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    names = visible.split(",") if visible else [*map(str, range(count))]
    half = count // 2
    return [
        {"CUDA_VISIBLE_DEVICES": ",".join(part)}
        for part in (names[:half], names[half : 2 * half])
    ]


def loss_difference(actual: dict[int, float], expected: dict[int, float]) -> float:
    """The largest relative difference of losses by step; infinite if steps differ."""
    if not expected or actual.keys() != expected.keys():
        return float("inf")
    return worst(abs(actual[step] / expected[step] - 1) for step in expected)


# -------------------------------------------------------------------------- devices


def devices(context: Context) -> Measured:
    """Compares the losses of three steps on one device with those on all of them.

    A CPU has one device; there a process with virtual devices runs this check.
    """
    if len(jax.devices()) > 1:
        return on_all_devices(context.full)
    if jax.default_backend() != "cpu":
        raise Unavailable("there is one device only")
    measured = in_own_process(_on_virtual_devices, context.full)
    details = (f"virtual devices of a CPU: {detail}" for detail in measured.details)
    return dataclasses.replace(measured, details=tuple(details))


def _on_virtual_devices(full: bool) -> Measured:
    """`on_all_devices` in a process that has not started JAX."""
    jax.config.update("jax_platforms", "cpu")
    jax.config.update("jax_num_cpu_devices", VIRTUAL_DEVICES)
    set_up_process()
    return on_all_devices(full)


def on_all_devices(full: bool) -> Measured:
    """The check `devices` of a process that has several; `full` as of `meshes_of`."""
    small = small_models()[PAPER]
    copies = len(jax.devices())  # so that rows divide among any number of devices
    batch = {name: np.tile(x, (copies, 1)) for name, x in small.batch.items()}
    expected = mesh_losses(batch, MeshConfig(), jax.devices()[:1])
    errors = {}
    for name, mesh in meshes_of(copies, full).items():
        losses = mesh_losses(batch, mesh, jax.devices())
        errors[name] = loss_difference(
            dict(enumerate(losses)), dict(enumerate(expected))
        )
    measured = at_most(worst(errors.values()), ORDER, meshes=errors)
    note = f"{copies} x {jax.devices()[0].device_kind}: {', '.join(errors)}"
    return with_details(measured, [note])


def meshes_of(count: int, full: bool) -> dict[str, MeshConfig]:
    """Meshes of so many devices: one that divides batch and weights, if it can be.

    Args:
      full: also those that divide the batch only, and heads and features.
    """
    half, quarter = count // 2, count // 4
    only_data = {f"{count} data": MeshConfig(data=count)}
    if count % 2:
        return only_data
    mesh_configs = {f"{half} data x 2 fsdp": MeshConfig(data=half, fsdp=2)}
    if full:
        mesh_configs |= only_data
    if full and count % 4 == 0:
        name = f"{quarter} data x 2 fsdp x 2 tensor"
        mesh_configs[name] = MeshConfig(data=quarter, fsdp=2, tensor=2)
    return mesh_configs


def mesh_losses(batch, mesh: MeshConfig, devices: Sequence) -> list[float]:
    """The losses of three steps with dropout on a mesh; all from one seed."""
    config = numbers.step_config(warmup=400, layers=1, dropout=0.1)
    config = dataclasses.replace(config, mesh=mesh)
    steps = numbers.compiled(SmallModel(config.model), config, devices)
    _, losses = numbers.trained(steps, batch)
    return [float(loss) for loss in losses]


# ------------------------------------------------------------------------------- lines


def lines(context: Context) -> Measured:
    """Translates lines in other orders, batches and company; counts what changes.

    Texts, tokens and log-probabilities must be equal to the last bit.
    """
    translator = random_translator()
    texts = short_lines(40 if context.full else 16)
    expected = results(translator, texts, batch_size=64)
    differing = compared = 0
    for order, batch_size in line_orders(len(texts), context.full):
        actual = results(translator, [texts[n] for n in order], batch_size)
        differing += sum(
            result != expected[n] for result, n in zip(actual, order, strict=True)
        )
        compared += len(order)
    return all_equal(differing, compared, "translations")


def line_orders(count: int, full: bool) -> list[tuple[list[int], int]]:
    """Orders of lines, and how many of them are sorted into batches together.

    Shuffled; each line among copies of a few others; some lines all alone.
    """
    random = np.random.default_rng(0)
    orders = [
        (random.permutation(count).tolist(), 7),
        ([*range(count), *random.integers(0, count, 3 * count).tolist()], 64),
    ]
    alone = range(count) if full else range(0, count, max(1, count // 3))
    return orders + [([n], 1) for n in alone]


def results(translator: Translator, texts: Sequence[str], batch_size: int) -> list:
    """The tokens and log-probabilities of all hypotheses of each line."""
    translations = translator.translate(
        texts, nbest=2, batch_size=batch_size, warn=False
    )
    return [
        [(h.text, [*h.tokens], h.log_prob, h.score) for h in translation.hypotheses]
        for translation in translations
    ]


def short_lines(count: int) -> list[str]:
    """Different sources of the built-in corpus that fall into few shapes."""
    sources = dict.fromkeys(source for source, _ in corpus.pairs("dev"))
    return [line for line in sources if len(line) <= child_runs.LONGEST_LINE][:count]


def random_translator() -> Translator:
    """A translator with random weights that is sure of what it says."""
    config = fields.from_config_dict(
        {
            "model": {"layers": 1, "width": 16, "heads": 2, "hidden": 16},
            "decode": {"beam": 3, "extra_length": 5, "batch_tokens": 256},
        }
    )
    text = [line for pair in corpus.pairs("dev")[:200] for line in pair]
    vocabulary = Vocabulary(train_tokenizer(text, PIECES))
    model = build(config.model, PIECES)
    # Larger weights: probabilities far from equal, as those of a trained model.
    parameters = jax.tree.map(lambda x: 4 * x, model.init(jax.random.key(1)))
    return Translator(config, vocabulary, model, parameters, [1])
