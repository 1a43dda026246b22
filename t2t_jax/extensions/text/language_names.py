"""English names of languages, for programs that show them."""

from t2t_jax.text.languages import identify

# Other languages show their code.
_NAMES = (
    "ar:Arabic bg:Bulgarian bn:Bengali ca:Catalan cs:Czech da:Danish de:German "
    "el:Greek en:English es:Spanish et:Estonian fa:Persian fi:Finnish fr:French "
    "he:Hebrew hi:Hindi hr:Croatian hu:Hungarian id:Indonesian it:Italian "
    "ja:Japanese ko:Korean lt:Lithuanian lv:Latvian nl:Dutch no:Norwegian pl:Polish "
    "pt:Portuguese ro:Romanian ru:Russian sk:Slovak sl:Slovenian sr:Serbian "
    "sv:Swedish th:Thai tr:Turkish uk:Ukrainian ur:Urdu vi:Vietnamese zh:Chinese"
)
NAMES = dict(entry.split(":") for entry in _NAMES.split())


def language_name(code: str) -> str:
    """The name of a language, such as German for `deu_Latn`; else its code."""
    return NAMES.get(identify(code).code, code)
