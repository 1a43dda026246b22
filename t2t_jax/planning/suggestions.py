"""What to change of a run that does not fit: estimated in order, the first compiled."""

from collections.abc import Callable, Iterator

from t2t_jax import config as fields
from t2t_jax.config import Config

TRIES = 3  # compilations, each of which takes minutes
# Share of a layer's activations that is kept, roughly.
KEPT = {"none": 1.0, "dots": 0.6, "full": 0.25}


def changes(config: Config, count: int) -> Iterator[dict[str, object]]:
    """What to try, the mildest first: fields of the config and their values."""
    several = [
        config.train.accumulate * k
        for k in (2, 4, 8)
        if config.data.batch_tokens // (config.train.accumulate * k) >= 1024
    ]
    remats = [] if config.model.remat == "full" else ["dots", "full"]
    if config.model.remat == "dots":
        remats = ["full"]
    for k in several:
        yield {"train.accumulate": k}
    for remat in remats:
        yield {"model.remat": remat}
    for remat in remats:
        for k in several:
            yield {"train.accumulate": k, "model.remat": remat}
    parts = [f for f in (2, 4, 8, 16, 32) if not count % f and f <= count]
    for fsdp in parts:
        mesh = {"mesh.data": -1, "mesh.fsdp": fsdp, "mesh.tensor": 1}
        yield mesh
        for k in several:
            yield mesh | {"train.accumulate": k}
        if remats and several:
            yield mesh | {"train.accumulate": several[-1], "model.remat": remats[-1]}
    for share in (2, 4, 8):
        yield {"data.batch_tokens": config.data.batch_tokens // share}


def apply_change(config: Config, change: dict[str, object]) -> Config:
    for name, value in change.items():
        section, field = name.split(".")
        config = fields.changed(config, section, **{field: value})
    return config


def estimate(told: dict, change: dict[str, object]) -> float:
    """Bytes on a chip after a change, from the forecast of what does not fit.

    Activations are what is temporary beside a gradient, and shrink with microbatches,
    with what is kept of them, and with the tokens; the state is divided by fsdp.
    """
    parts, mesh = told["memory"]["parts"], told["mesh"]
    state = parts["parameters"] + parts["average"] + parts["optimizer"]
    gradients = told["memory"]["gradients"]
    activations = max(0.0, parts["temporary"] - gradients)
    fsdp = change.get("mesh.fsdp", mesh["fsdp"]) * change.get("mesh.tensor", 1)
    divided = fsdp / (mesh["fsdp"] * mesh["tensor"])
    more = change.get("train.accumulate", told["accumulate"]) / told["accumulate"]
    kept = KEPT[change.get("model.remat", told["remat"])] / KEPT[told["remat"]]
    tokens = change.get("data.batch_tokens", 0) or told["batch_tokens"]
    activations *= kept / more * tokens / told["batch_tokens"]
    if more > 1:  # their sum so far, and those of a microbatch
        gradients *= 2
    # Whole weights of a few layers lie beside the parts.
    whole = 0.1 * state * (divided > 1)
    other = parts["batch"] + parts.get("program", 0)
    return (state + gradients) / divided + activations + whole + other


def find_suggestion(
    config: Config,
    told: dict,
    forecast: Callable[[Config], dict],
    tell: Callable[[str], None] = lambda _: None,
) -> tuple[dict[str, object], dict] | None:
    """The first change that fits, compiled: (change, its forecast); None if none does.

    Args:
      told: the forecast of what does not fit.
      forecast: compiles a config.
      tell: is told what is tried.
    """
    told = told | {"batch_tokens": config.data.batch_tokens}
    tried = 0
    margin = 0.95
    for change in changes(config, told["chips"]):
        expected = estimate(told, change)
        if expected > margin * told["memory"]["chip"]:
            continue
        tell(f"trying {as_flags(change)}: about {expected / 2**30:.2f} GiB expected")
        found = forecast(apply_change(config, change))
        if found["fits"]:
            return change, found
        tried += 1
        if tried == TRIES:
            return None
        # The estimate was too low by this much; expect it of the next ones, too.
        margin *= min(0.95, expected / found["memory"]["needed"])
    return None


def as_flags(change: dict[str, object]) -> str:
    """As they are written on the command line."""
    return " ".join(f"--config.{name}={value}" for name, value in change.items())
