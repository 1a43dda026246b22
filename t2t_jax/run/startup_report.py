"""The lines that a run prints before its first step."""

import jax

from t2t_jax.config import Config
from t2t_jax.data.batching import Plan
from t2t_jax.data.feeding import feeder_name
from t2t_jax.data.pairs import Pairs
from t2t_jax.data.prepare import report_lines
from t2t_jax.data.tokenizers.vocabulary import Vocabulary, show_sizes
from t2t_jax.io.messages import say
from t2t_jax.model.model import Model, describe_dtype
from t2t_jax.parallel.machine import describe_machine, nondeterminism
from t2t_jax.parallel.mesh import make_mesh, padded_rows
from t2t_jax.training.schedules import schedule
from t2t_jax.workdir import Workdir


def report_start(
    config: Config,
    workdir: Workdir,
    model: Model,
    vocabulary: Vocabulary,
    pairs: Pairs,
    plan: Plan,
    dev_pairs: int,
) -> None:
    """Prints the model, machine, data, batches and schedule of a run."""
    devices = jax.devices()
    machine = describe_machine()
    say(f"workdir     {workdir}")
    say(
        f"model       {model.count():,} parameters, vocabulary "
        f"{show_sizes(vocabulary.sizes)}, "
        f"{describe_dtype(config.model)} on {len(devices)} {devices[0].device_kind}"
    )
    say(
        f"machine     {machine['processor']}, {machine['cores']} cores, jax "
        f"{machine['jax']}, jaxlib {machine['jaxlib']}"
    )
    if len(devices) > 1:
        say(f"mesh        {_mesh(config, plan)}")
    if nondeterminism():
        say(f"            {nondeterminism()}")
    text, *more = report_lines(pairs)
    feeder = feeder_name(config.data)
    say(f"data        {text}, {dev_pairs:,} dev pairs, fed by {feeder}")
    for line in more:
        say(f"            {line}")
    if pairs.variation is not None:
        say(f"            {pairs.variation.describe(pairs, plan.shapes[-1])}")
    shapes = ", ".join(f"{s.rows}x({s.source}+{s.target})" for s in plan.shapes)
    about = "about " if pairs.variation is not None else ""
    say(
        f"batches     {about}{len(plan):,} an epoch, {plan.efficiency:.1%} real "
        f"tokens, {shapes}"
    )
    peak_step = min(config.train.steps, config.train.warmup)
    peak = float(schedule(config)(peak_step - 1))
    say(
        f"training    {config.train.steps:,} steps, "
        f"{config.train.steps / len(plan):.1f} epochs, peak learning rate {peak:.2e} "
        f"at step {peak_step:,}"
    )


def _mesh(config: Config, plan: Plan) -> str:
    """The mesh's axes, and the share of padding rows that make batches divisible."""
    mesh = make_mesh(config.mesh)
    axes = " x ".join(f"{name} {size}" for name, size in mesh.shape.items())
    rows = sum(s.rows for s in plan.shapes)
    padded = sum(
        padded_rows(mesh, s.rows, config.train.accumulate) for s in plan.shapes
    )
    added = 1 - rows / padded
    return axes + (
        f"; {added:.0%} of the rows are padding, to divide into them" if added else ""
    )
