"""The folders of checkpoints: which are there, which are whole, which are best."""

import re

import orbax.checkpoint as ocp
from etils import epath

from t2t_jax.files import locations, sealed
from t2t_jax.terminal.errors import UserError
from t2t_jax.terminal.messages import say

# Orbax may not wait for other processes, which know of no checkpoint.
SINGLE_PROCESS = ocp.options.MultiprocessingOptions(
    primary_host=0, active_processes={0}, barrier_sync_key_prefix="first"
)


def steps_in(folder: epath.Path) -> list[int]:
    """All steps with a checkpoint, ascending.

    One that is being written has another name, or in a bucket lacks a last file: Orbax
    knows.
    """
    names = ocp.path.step.standard_name_format()
    return sorted(found.step for found in names.find_all(folder))


def sealed_steps(folder: epath.Path) -> list[int]:
    """The steps of the checkpoints in a folder that count, ascending."""
    return [step for step in steps_in(folder) if sealed.is_sealed(folder / str(step))]


def incomplete_steps(folder: epath.Path) -> list[int]:
    """The steps of those that do not count."""
    return sorted({*steps_in(folder)} - {*sealed_steps(folder)})


def seal(path: epath.Path, **notes: float) -> None:
    """Seals a checkpoint, with its kind and step, which its folder's names tell."""
    sealed.seal(path, kind=path.parent.name, step=int(path.name), **notes)


def damage(path: epath.Path) -> str:
    """What is wrong with a checkpoint, for a person to read; empty if nothing is."""
    if trouble := sealed.damage(path):
        return trouble
    notes = sealed.notes(path)
    was, here = f"{notes.get('kind')}/{notes.get('step')}", "/".join(path.parts[-2:])
    return "" if was == here else f"it was written as {was}"


def best_steps(folder: epath.Path) -> dict[int, float]:
    """The dev BLEU of each checkpoint in a folder that is kept for it, best first."""
    return ranked(
        {
            step: float(sealed.notes(folder / str(step)).get("bleu", 0.0))
            for step in sealed_steps(folder)
        }
    )


def ranked(bleu: dict[int, float]) -> dict[int, float]:
    """Best first; of equals the earlier step."""
    return dict(sorted(bleu.items(), key=lambda entry: (-entry[1], entry[0])))


def clear_away(folder: epath.Path) -> None:
    """Deletes what a killed run did not come to the end of writing, or of deleting.

    Raises:
      UserError: there is a file where the folder should be.
    """
    for place in (folder.parent, folder):
        if place.exists() and not place.is_dir():
            raise UserError(
                f"{place} is a file; want the folder of a run's checkpoints"
            )
    if not folder.exists():
        return
    steps = {str(step) for step in steps_in(folder)}
    for entry in folder.iterdir():
        half = re.fullmatch(r"\d+\.(orbax-checkpoint-tmp.*|deleted)", entry.name)
        uploading = not locations.is_local(entry) and entry.name.isdecimal()
        if half or (uploading and entry.name not in steps):
            entry.rmtree()
        elif entry.name.isdecimal() and not entry.is_dir():
            set_aside(entry, "is a file, not a checkpoint")


def set_aside(path: epath.Path, why: str) -> None:
    """Moves a checkpoint out of the way, and says why."""
    name = f"{path.parent.name}-{path.name}"
    place = sealed.set_aside(path, path.parent.parent / "set_aside" / name)
    say(f"warning: {path} {why}; it is now {place}")
