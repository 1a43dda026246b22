"""Forecasts whether a run fits on chips before they are rented, and how long it takes.

python -m t2t_jax plan --config=big --slice=v5e:2x4 --mesh=data:2,fsdp:4
"""

import json

from absl import flags

from t2t_jax import config as fields
from t2t_jax.commands.flags import define_config_flag
from t2t_jax.costs.chips import CHIPS
from t2t_jax.io.errors import UserError, did_you_mean
from t2t_jax.parallel.mesh import AXES
from t2t_jax.tools.plan.plan import plan
from t2t_jax.tools.plan.plan_page import page, picture, refusal


def default_config() -> str:
    """The preset to plan if no --config is given."""
    return "tiny"


def define_flags():
    define_config_flag()
    flags.DEFINE_string(
        "slice",
        None,
        "Chips to plan for, as CHIP:SIZE, such as v5e:2x4, h100:8 or cpu:1 (this "
        f"machine). Chips: {', '.join(CHIPS)}.",
        required=True,
    )
    flags.DEFINE_string("mesh", "", "Shorthand for config.mesh, such as data:2,fsdp:4.")
    flags.DEFINE_boolean("json", False, "Print a JSON object, for programs.")
    flags.DEFINE_string("picture", "", "PNG file to write a chart of the memory to.")
    flags.DEFINE_boolean(
        "remedy", True, "If the run does not fit, search for a change that does."
    )


def main(_):
    given = flags.FLAGS
    config = fields.from_config_dict(given.config)
    if given.mesh:
        config = fields.changed(config, "mesh", **parse_mesh(given.mesh))
    result = plan(config, given.slice, measure=True, remedy=given.remedy)
    print(json.dumps(result, indent=1) if given.json else page(result))
    if given.picture:
        picture(result, given.picture)
    if not result["fits"]:
        raise UserError(refusal(result))


def parse_mesh(text: str) -> dict[str, int]:
    """Parses --mesh: `data:32,fsdp:8` -> `{"data": 32, "fsdp": 8, "tensor": 1}`.

    Without `data`, the data axis gets all remaining devices (-1).

    Raises:
      UserError: no such axis, or a size that is not a number.
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
