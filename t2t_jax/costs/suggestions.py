"""Suggests changes to a run that does not fit.

Candidates are ordered from mild to severe. Their memory is estimated, and those
expected to fit are compiled until one does.
"""

from collections.abc import Callable, Iterator

from t2t_jax import config as fields
from t2t_jax.config import Config

TRIES = 3  # compilations at most, as each takes minutes
# Rough share of a layer's activations that is kept, by `config.model.remat`.
KEPT = {"none": 1.0, "dots": 0.6, "full": 0.25}


def changes(config: Config, count: int) -> Iterator[dict[str, object]]:
    """Yields changes to try, the mildest first: fields of the config and their values.

    More microbatches come first, then remat, both together, sharding over fsdp, and
    last a smaller batch, the only change that affects what is learned.

    Args:
      config: of the run that does not fit.
      count: number of devices.
    """
    # Microbatches of fewer than 1,024 tokens are not proposed.
    microbatches = [
        config.train.accumulate * k
        for k in (2, 4, 8)
        if config.data.batch_tokens // (config.train.accumulate * k) >= 1024
    ]
    remats = [] if config.model.remat == "full" else ["dots", "full"]
    if config.model.remat == "dots":
        remats = ["full"]
    for k in microbatches:
        yield {"train.accumulate": k}
    for remat in remats:
        yield {"model.remat": remat}
    for remat in remats:
        for k in microbatches:
            yield {"train.accumulate": k, "model.remat": remat}
    parts = [f for f in (2, 4, 8, 16, 32) if not count % f and f <= count]
    for fsdp in parts:
        mesh = {"mesh.data": -1, "mesh.fsdp": fsdp, "mesh.tensor": 1}
        yield mesh
        for k in microbatches:
            yield mesh | {"train.accumulate": k}
        if remats and microbatches:
            yield mesh | {
                "train.accumulate": microbatches[-1],
                "model.remat": remats[-1],
            }
    for share in (2, 4, 8):
        yield {"data.batch_tokens": config.data.batch_tokens // share}


def apply_change(config: Config, change: dict[str, object]) -> Config:
    """Returns the config with the fields of a change replaced."""
    for name, value in change.items():
        section, field = name.split(".")
        config = fields.changed(config, section, **{field: value})
    return config


def estimate(forecast: dict, change: dict[str, object]) -> float:
    """Estimates the bytes on a chip after a change.

    Activations are the temporaries without the gradients. They shrink with more
    microbatches, with remat and with fewer tokens; the state is sharded over fsdp.

    Args:
      forecast: the forecast of the run that does not fit, with its `batch_tokens`.
      change: of `changes`.
    """
    parts, mesh = forecast["memory"]["parts"], forecast["mesh"]
    state = parts["parameters"] + parts["average"] + parts["optimizer"]
    state += parts.get("frozen", 0)
    gradients = forecast["memory"]["gradients"]
    activations = max(0.0, parts["temporary"] - gradients)
    fsdp = change.get("mesh.fsdp", mesh["fsdp"]) * change.get("mesh.tensor", 1)
    divided = fsdp / (mesh["fsdp"] * mesh["tensor"])
    more = (
        change.get("train.accumulate", forecast["accumulate"]) / forecast["accumulate"]
    )
    kept = KEPT[change.get("model.remat", forecast["remat"])] / KEPT[forecast["remat"]]
    tokens = change.get("data.batch_tokens", 0) or forecast["batch_tokens"]
    activations *= kept / more * tokens / forecast["batch_tokens"]
    if more > 1:  # the running sum, and the gradients of one microbatch
        gradients *= 2
    # With fsdp, the gathered weights of a few layers are in memory too: a rough 10%.
    gathered = 0.1 * state * (divided > 1)
    other = parts["batch"] + parts.get("program", 0)
    return (state + gradients) / divided + activations + gathered + other


def find_suggestion(
    config: Config,
    current: dict,
    forecast: Callable[[Config], dict],
    report: Callable[[str], None] = lambda _: None,
) -> tuple[dict[str, object], dict] | None:
    """Finds the first change whose compiled forecast fits.

    Args:
      config: of the run that does not fit.
      current: its forecast.
      forecast: compiles a config and returns its forecast.
      report: called with a message about each attempt.

    Returns:
      The change and its forecast; None if no attempt fits.
    """
    current = current | {"batch_tokens": config.data.batch_tokens}
    tried = 0
    margin = 0.95
    for change in changes(config, current["chips"]):
        expected = estimate(current, change)
        if expected > margin * current["memory"]["chip"]:
            continue
        report(f"trying {as_flags(change)}: about {expected / 2**30:.2f} GiB expected")
        result = forecast(apply_change(config, change))
        if result["fits"]:
            return change, result
        tried += 1
        if tried == TRIES:
            return None
        # The estimate was too low by this factor; expect the same of the next ones.
        margin *= min(0.95, expected / result["memory"]["needed"])
    return None


def as_flags(change: dict[str, object]) -> str:
    """Formats a change as command-line flags."""
    return " ".join(f"--config.{name}={value}" for name, value in change.items())
