"""`plan`: does a run fit on chips that are not here, and how long does it take there?

The training step is compiled for the chips, without them. `docs/planning.md` says what
of the answer is measured and what is assumed.
"""

from ml_collections import ConfigDict

from t2t_jax import config as fields
from t2t_jax.config import Config
from t2t_jax.planning import chips, suggestions, virtual_devices
from t2t_jax.planning import forecast as forecasts
from t2t_jax.terminal.errors import UserError
from t2t_jax.terminal.messages import say
from t2t_jax.terminal.progress import waiting


def plan(
    config: Config | ConfigDict, slice: str, measure: bool = False, remedy: bool = True
) -> dict:
    """Whether a run fits a slice, and how long it takes there.

    Call it before anything else starts JAX: it wants virtual devices.

    Args:
      config: of `load_config`, or a `Config`.
      slice: `v5e:2x4`, `h100:8`, `cpu:1`.
      measure: for `cpu:1`: also run some real steps.
      remedy: what does not fit is changed until it does.

    Returns:
      Strings, numbers, lists and dicts, as `--json` prints them. `remedy` is what to
      change if it does not fit, with its forecast, or None.

    Raises:
      UserError: no such slice, a mesh that does not divide, no TPU compiler.
    """
    if not isinstance(config, Config):
        config = fields.from_config_dict(config)
    if slice.lower().startswith("cpu:"):
        if chips.find(slice, chips.CHIPS["h100"]).count > 1:
            raise UserError(f"--slice={slice}: want cpu:1; this machine is one chip")
        virtual_devices.use_cpu(1)
        rented = chips.find(slice, forecasts.measured_cpu())
    else:
        rented = chips.find(slice)
    devices = virtual_devices.make_devices(rented)

    def one(config: Config) -> dict:
        with waiting(f"compiling for {rented.topology}"):
            return forecasts.forecast(config, rented, devices, config.data.vocab_size)

    told = one(config)
    told["remedy"] = None
    if not told["fits"] and remedy:
        found = suggestions.find_suggestion(config, told, one, say)
        if found:
            told["remedy"] = {"change": found[0], "forecast": found[1]}
    if measure and rented.chip.kind == "cpu":
        told["measured_step"] = forecasts.measure_step(config, config.data.vocab_size)
    return told
