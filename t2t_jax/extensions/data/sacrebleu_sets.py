"""Published test sets, which sacreBLEU fetches once: `sacrebleu:wmt14/full`.

They are in `$SACREBLEU` (or `~/.sacrebleu`). A machine without a network reads them
from a copy of that folder.
"""

from pathlib import Path

from t2t_jax.data.corpus import Corpus, file_pairs, hash_of
from t2t_jax.data.text_files import file_hash
from t2t_jax.io.errors import UserError, did_you_mean
from t2t_jax.text.languages import identify


def open_set(spec: str, source: str, target: str) -> Corpus:
    """Opens a test set; of several references, the first (`--references=all`: all).

    Raises UserError if sacreBLEU has none of this name or direction; while it is read,
    if it is not there and cannot be fetched.
    """
    from sacrebleu import utils

    name = spec.removeprefix("sacrebleu:")
    if name not in (known := utils.get_available_testsets()):
        raise UserError(f"{spec}: no such test set{did_you_mean(name, known)}")
    pair = "-".join(identify(language).code for language in (source, target))
    if pair not in (pairs := utils.get_langpairs_for_testset(name)):
        raise UserError(f"{spec} has no {pair}; it has {', '.join(pairs)}")
    folder = Path(utils.SACREBLEU_DIR)

    def files() -> tuple[Path, Path]:
        source_file, target_file, *_ = set_files(spec, source, target)
        return source_file, target_file

    return Corpus(
        spec,
        name.replace("/", "-"),
        source,
        target,
        lambda: file_pairs(files()),
        lambda: hash_of(*(bytes.fromhex(file_hash(file)) for file in files())),
        is_here=lambda: any((folder / name).glob(f"*.{pair}.*")),
    )


def set_files(spec: str, source: str, target: str) -> list[Path]:
    """The files of a set's source, and of the references that sacreBLEU scores with.

    Raises UserError if they are not there and cannot be fetched.
    """
    from sacrebleu import utils

    name = spec.removeprefix("sacrebleu:")
    pair = "-".join(identify(language).code for language in (source, target))
    try:
        references = utils.get_reference_files(name, pair)
        return [*map(Path, (utils.get_source_file(name, pair), *references))]
    except (OSError, SystemExit) as e:
        raise UserError(
            f"{spec} is not in {utils.SACREBLEU_DIR}, and was not fetched ({e}). Where "
            f"there is a network: sacrebleu -t {name} -l {pair} --echo src > /dev/null;"
            " then copy its ~/.sacrebleu here, or set SACREBLEU to the copy"
        ) from None
