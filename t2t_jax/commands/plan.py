"""Forecasts, before chips are rented, whether a run fits and how long it takes.

python -m t2t_jax.plan --config=big --slice=v5e:2x4 --mesh=data:2,fsdp:4
"""

import json

from absl import flags

from t2t_jax import config as fields
from t2t_jax.commands.flags import define_config_flag
from t2t_jax.parallel.mesh import AXES
from t2t_jax.planning.chips import CHIPS
from t2t_jax.planning.plan import plan
from t2t_jax.planning.plan_page import page, picture, refusal
from t2t_jax.terminal.errors import UserError, did_you_mean


def default_config() -> str:
    return "tiny"


def define_flags():
    define_config_flag()
    flags.DEFINE_string(
        "slice",
        None,
        f"Chips to plan for: v5e:2x4, h100:8, cpu:1; {', '.join(CHIPS)}.",
        required=True,
    )
    flags.DEFINE_string("mesh", "", "Short for config.mesh: data:2,fsdp:4.")
    flags.DEFINE_boolean("json", False, "Prints a JSON object, for programs.")
    flags.DEFINE_string("picture", "", "A PNG of the memory to write.")
    flags.DEFINE_boolean(
        "remedy", True, "Looks for a change that fits if this does not."
    )


def main(_):
    given = flags.FLAGS
    config = fields.from_config_dict(given.config)
    if given.mesh:
        config = fields.changed(config, "mesh", **parse_mesh(given.mesh))
    found = plan(config, given.slice, measure=True, remedy=given.remedy)
    print(json.dumps(found, indent=1) if given.json else page(found))
    if given.picture:
        picture(found, given.picture)
    if not found["fits"]:
        raise UserError(refusal(found))


def parse_mesh(text: str) -> dict[str, int]:
    """`data:32,fsdp:8` -> `{"data": 32, "fsdp": 8, "tensor": 1}`.

    Without `data` that is the rest of the devices.
    """
    sizes = {"data": -1, "fsdp": 1, "tensor": 1}
    for part in filter(None, text.split(",")):
        axis, _, size = part.partition(":")
        if axis not in AXES:
            raise UserError(
                f"--mesh={text}: no axis {axis!r}" + did_you_mean(axis, AXES)
            )
        if not size.lstrip("-").isdecimal():
            raise UserError(f"--mesh={text}: want AXIS:NUMBER, such as {axis}:2")
        sizes[axis] = int(size)
    return sizes
