"""Specs with `*`, `?` or `[...]`, which stand for all files of such a name."""

import glob
import re
from pathlib import Path

from t2t_jax.data.corpus import scheme_of
from t2t_jax.data.text_files import HASHES_ENDING, similar_files
from t2t_jax.io.errors import UserError

# Endings of files that are next to those of a pair.
_NO_SIDE = f".{HASHES_ENDING}", ".json", ".tsv", ".jsonl"


def matches(spec: str, folder: str) -> list[str]:
    """The specs that match one with `*`, `?` or `[...]`, sorted; else itself.

    A pattern whose last letters have a dot, as `*.tsv.gz`, matches names of files; any
    other, as `part*`, the prefixes of pairs of files. So a missing half is noticed.
    """
    if any(map(scheme_of, (spec, spec.partition(":")[2]))):  # of a mixture, too
        return [spec]
    subtask, colon, pattern = spec.rpartition(":")
    root, pattern = Path(folder).expanduser(), str(Path(pattern).expanduser())
    of_files = "." in re.split(r"[*?\]]", pattern)[-1]
    found = glob.glob(pattern if of_files else f"{pattern}.*", root_dir=root)
    names = {name for name in found if (root / name).is_file()}
    if not of_files:
        sides = [Path(name.removesuffix(".gz")) for name in names]
        names = {str(s.with_suffix("")) for s in sides if s.suffix not in _NO_SIDE}
    if not names:
        raise UserError(f"{spec} matches no file; {similar_files(root / pattern)}")
    return [subtask + colon + name for name in sorted(names)]
