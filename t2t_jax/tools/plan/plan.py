"""Plans a run on chips that are not here: whether it fits, and how long it takes.

The training step is compiled for the chips without having them. `docs/planning.md` says
which parts of the answer are measured and which are assumed.
"""

from ml_collections import ConfigDict

from t2t_jax import config as fields
from t2t_jax.config import Config
from t2t_jax.costs import chips, memory_check
from t2t_jax.io.errors import UserError
from t2t_jax.io.messages import say, waiting
from t2t_jax.tools.plan import forecast as forecasts
from t2t_jax.tools.plan import virtual_devices


def plan(
    config: Config | ConfigDict, slice: str, measure: bool = False, remedy: bool = True
) -> dict:
    """Forecasts whether a run fits a slice, and how long it takes there.

    Call it before anything else starts JAX, as it needs virtual devices.

    Args:
      config: of `load_config`, or a `Config`.
      slice: `v5e:2x4`, `h100:8`, `cpu:1`.
      measure: for `cpu:1`, also runs and times some real steps.
      remedy: searches for a change that fits if the config does not.

    Returns:
      Strings, numbers, lists and dicts, as `--json` prints them. `remedy` holds the
      `change` that fits and its `forecast`; None if the config fits or no change does.

    Raises:
      UserError: no such slice, a mesh that does not divide, no TPU compiler.
    """
    if not isinstance(config, Config):
        config = fields.from_config_dict(config)
    if slice.lower().startswith("cpu:"):
        # Any chip does for checking the name. Measuring comes after `use_cpu`, as it
        # starts JAX.
        if chips.find_slice(slice, chips.CHIPS["h100"]).count > 1:
            raise UserError(f"--slice={slice}: want cpu:1; this machine is one chip")
        virtual_devices.use_cpu(1)
        rented = chips.find_slice(slice, chips.measured_cpu())
    else:
        rented = chips.find_slice(slice)
    devices = virtual_devices.make_devices(rented)

    def compile_and_forecast(config: Config) -> dict:
        with waiting(f"compiling for {rented.topology}"):
            return forecasts.forecast(config, rented, devices)

    result = compile_and_forecast(config)
    result["remedy"] = None
    if not result["fits"] and remedy:
        suggestion = memory_check.find_suggestion(
            config, result, compile_and_forecast, say
        )
        if suggestion:
            result["remedy"] = {"change": suggestion[0], "forecast": suggestion[1]}
    if measure and rented.chip.kind == "cpu":
        config = fields.changed(config, "model", dtype="float32")
        result["measured_step"] = forecasts.measure_step(config, devices[:1])
    return result
