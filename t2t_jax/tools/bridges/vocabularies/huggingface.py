"""Vocabularies of M2M100, NLLB and Pegasus in Hugging Face folders; what all share.

Each reader takes the folder, its configuration (the dict of config.json, with that of
generation_config.json over it) and the languages that the user named. All raise
UserError: a file is missing or damaged, or the model has no such language.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from t2t_jax.data.tokenizers import table
from t2t_jax.data.tokenizers.vocabulary import Vocabulary
from t2t_jax.io.errors import UserError, did_you_mean
from t2t_jax.text.languages import nearest
from t2t_jax.tools.bridges.model_files import read_json, read_pieces, read_sentencepiece

# Tables of embeddings are rounded up to a multiple of this at most.
ROUNDED_TO = 64


def m2m100_vocabulary(
    folder: Path, config: dict[str, Any], source: str, target: str
) -> Vocabulary:
    """Reads vocab.json and sentencepiece.bpe.model of an M2M100; languages as `de`."""
    file = folder / "sentencepiece.bpe.model"
    model, _ = read_sentencepiece(file)
    pieces = read_pieces(folder / "vocab.json", ("</s>", "<unk>", "<pad>"))
    wmt21 = settings(folder).get("language_codes") == "wmt21"
    tokens = [f"__{language}__" for language in (WMT21 if wmt21 else M2M100).split()]
    tokens = _added(folder, len(pieces)) or tokens
    return pack_vocabulary(
        "m2m100",
        str(file),
        config,
        models=[model],
        pieces=filled(pieces + tokens, config["vocab_size"], folder),
        special=["<s>", "</s>", "<pad>", "<unk>", *tokens],
        bos="</s>",
        first=language_tokens(tokens, "__{}__", target, source),
        never=forbidden(config),
    )


def nllb_vocabulary(
    folder: Path, config: dict[str, Any], source: str, target: str
) -> Vocabulary:
    """Reads sentencepiece.bpe.model of an NLLB; languages as `deu_Latn`."""
    file = folder / "sentencepiece.bpe.model"
    model, model_pieces = read_sentencepiece(file)
    model_pieces = model_pieces[3:]  # after <unk>, <s> and </s>
    special = ["<s>", "<pad>", "</s>", "<unk>"]
    tokens = _added(folder, len(special + model_pieces)) or [*NLLB.split(), "<mask>"]
    languages = [token for token in tokens if "_" in token]
    return pack_vocabulary(
        "nllb",
        str(file),
        config,
        models=[model],
        pieces=filled(special + model_pieces + tokens, config["vocab_size"], folder),
        special=special + tokens,
        bos="</s>",
        first=language_tokens(languages, "{}", target, source),
        never=forbidden(config),
    )


def pegasus_vocabulary(folder: Path, config: dict[str, Any]) -> Vocabulary:
    """Reads spiece.model of a Pegasus."""
    file = folder / "spiece.model"
    model, model_pieces = read_sentencepiece(file)
    offset = settings(folder).get("offset", 103)
    unused = [f"<unk_{i}>" for i in range(2, offset)]
    special = ["<pad>", "</s>", "<mask_1>", "<mask_2>", *unused]
    pieces = special + model_pieces[2:]  # after <pad> and </s>
    return pack_vocabulary(
        "pegasus",
        str(file),
        config,
        models=[model],
        pieces=filled(pieces, config["vocab_size"], folder),
        special=[*special, "<unk>"],
        bos="<pad>",
        first=[[], []],
        never=forbidden(config),
    )


def settings(folder: Path) -> dict[str, Any]:
    """Reads the settings of a folder's tokenizer; empty if it has none."""
    path = folder / "tokenizer_config.json"
    return read_json(path) if path.is_file() else {}


def pack_vocabulary(
    kind: str,
    name: str,
    config: Mapping[str, Any],
    source: Vocabulary | None = None,
    **fields: Any,
) -> Vocabulary:
    """Packs the fields of a tokenizer; checks its special tokens against the config."""
    ids = {piece: i for i, piece in enumerate(fields["pieces"])}
    for key, piece in (
        ("pad_token_id", "<pad>"),
        ("eos_token_id", "</s>"),
        ("decoder_start_token_id", fields["bos"]),
    ):
        if config.get(key, ids[piece]) != ids[piece]:
            raise UserError(
                f"{name}: {piece} has the id {ids[piece]}, and config.json says {key}="
                f"{config[key]}; are the tokenizer's files of another model?"
            )
    return Vocabulary(table.pack(kind, **fields), name, source)


def filled(
    pieces: list[str], size: int, place: Path, rounded_to: int = ROUNDED_TO
) -> list[str]:
    """Appends empty pieces up to the size of the table, which may be rounded up."""
    if not len(pieces) <= size < len(pieces) + rounded_to:
        raise UserError(
            f"the tokenizer in {place} has {len(pieces):,} pieces, and config.json "
            f"says vocab_size={size:,}; one of them is of another model"
        )
    return pieces + [""] * (size - len(pieces))


def forbidden(config: dict[str, Any]) -> list[int]:
    """The tokens that the search is not to generate."""
    banned = config.get("bad_words_ids") or []
    if not isinstance(banned, list) or not all(
        isinstance(word, list) and all(type(token) is int for token in word)
        for word in banned
    ):
        raise UserError(
            f"generation_config.json has bad_words_ids={json.dumps(banned)}; want a "
            "list of lists of token ids"
        )
    if any(len(word) != 1 for word in banned):
        raise UserError(
            "generation_config.json: bad_words_ids has a word of several tokens; only "
            "single tokens can be forbidden: remove it, and use must_not"
        )
    return [word[0] for word in banned]


def _added(folder: Path, first_id: int) -> list[str]:
    """The tokens that a folder adds to its vocabulary, with ids from `first_id` on."""
    stored = settings(folder).get("added_tokens_decoder", {})
    try:
        added = {int(i): str(token["content"]) for i, token in stored.items()}
        if not added and (folder / "tokenizer.json").is_file():
            tokens = read_json(folder / "tokenizer.json").get("added_tokens", ())
            added = {int(token["id"]): str(token["content"]) for token in tokens}
    except (AttributeError, LookupError, TypeError, ValueError):
        raise UserError(
            f"the tokenizer in {folder} is damaged: want ids of added tokens, each "
            "with its `content`, in added_tokens_decoder or tokenizer.json"
        ) from None
    added = {i: added[i] for i in sorted(added) if i >= first_id}
    if [*added] != [*range(first_id, first_id + len(added))]:
        raise UserError(
            f"the tokenizer in {folder} has added tokens with the ids {[*added]}; want "
            f"all from {first_id}, the end of its vocabulary"
        )
    return [*added.values()]


def language_tokens(
    tokens: Sequence[str], form: str, target: str, source: str
) -> list[list[str]]:
    """The tokens that target and source lines begin with; `form` has a language.

    A language need not be spelled as in the model: `de` is the `deu_Latn` of an NLLB.
    """
    prefix, suffix = form.split("{}")
    languages = [t.removeprefix(prefix).removesuffix(suffix) for t in tokens]
    requested, side_tokens = {"target": target, "source": source}, []
    for flag, language in requested.items():
        if (spelling := nearest(language, languages)) is None:
            raise UserError(
                f"--{flag}={language} is not a language of this model"
                f"{did_you_mean(language, languages)}"
            )
        side_tokens.append([form.format(spelling)])
    return side_tokens


# Languages of multilingual models, in the order of the ids of their tokens.

# Of facebook/m2m100_*.
M2M100 = """\
af am ar ast az ba be bg bn br bs ca ceb cs cy da de el en es et fa ff fi fr fy
ga gd gl gu ha he hi hr ht hu hy id ig ilo is it ja jv ka kk km kn ko lb lg ln
lo lt lv mg mk ml mn mr ms my ne nl no ns oc or pa pl ps pt ro ru sd si sk sl so
sq sr ss su sv sw ta th tl tn tr uk ur uz vi wo xh yi yo zh zu"""

# Of facebook/wmt21-dense-24-wide-*.
WMT21 = "en ha is ja cs ru zh de"

# Of facebook/nllb-200-*, with their scripts.
NLLB = """\
ace_Arab ace_Latn acm_Arab acq_Arab aeb_Arab afr_Latn ajp_Arab aka_Latn amh_Ethi
apc_Arab arb_Arab ars_Arab ary_Arab arz_Arab asm_Beng ast_Latn awa_Deva ayr_Latn
azb_Arab azj_Latn bak_Cyrl bam_Latn ban_Latn bel_Cyrl bem_Latn ben_Beng bho_Deva
bjn_Arab bjn_Latn bod_Tibt bos_Latn bug_Latn bul_Cyrl cat_Latn ceb_Latn ces_Latn
cjk_Latn ckb_Arab crh_Latn cym_Latn dan_Latn deu_Latn dik_Latn dyu_Latn dzo_Tibt
ell_Grek eng_Latn epo_Latn est_Latn eus_Latn ewe_Latn fao_Latn pes_Arab fij_Latn
fin_Latn fon_Latn fra_Latn fur_Latn fuv_Latn gla_Latn gle_Latn glg_Latn grn_Latn
guj_Gujr hat_Latn hau_Latn heb_Hebr hin_Deva hne_Deva hrv_Latn hun_Latn hye_Armn
ibo_Latn ilo_Latn ind_Latn isl_Latn ita_Latn jav_Latn jpn_Jpan kab_Latn kac_Latn
kam_Latn kan_Knda kas_Arab kas_Deva kat_Geor knc_Arab knc_Latn kaz_Cyrl kbp_Latn
kea_Latn khm_Khmr kik_Latn kin_Latn kir_Cyrl kmb_Latn kon_Latn kor_Hang kmr_Latn
lao_Laoo lvs_Latn lij_Latn lim_Latn lin_Latn lit_Latn lmo_Latn ltg_Latn ltz_Latn
lua_Latn lug_Latn luo_Latn lus_Latn mag_Deva mai_Deva mal_Mlym mar_Deva min_Latn
mkd_Cyrl plt_Latn mlt_Latn mni_Beng khk_Cyrl mos_Latn mri_Latn zsm_Latn mya_Mymr
nld_Latn nno_Latn nob_Latn npi_Deva nso_Latn nus_Latn nya_Latn oci_Latn gaz_Latn
ory_Orya pag_Latn pan_Guru pap_Latn pol_Latn por_Latn prs_Arab pbt_Arab quy_Latn
ron_Latn run_Latn rus_Cyrl sag_Latn san_Deva sat_Beng scn_Latn shn_Mymr sin_Sinh
slk_Latn slv_Latn smo_Latn sna_Latn snd_Arab som_Latn sot_Latn spa_Latn als_Latn
srd_Latn srp_Cyrl ssw_Latn sun_Latn swe_Latn swh_Latn szl_Latn tam_Taml tat_Cyrl
tel_Telu tgk_Cyrl tgl_Latn tha_Thai tir_Ethi taq_Latn taq_Tfng tpi_Latn tsn_Latn
tso_Latn tuk_Latn tum_Latn tur_Latn twi_Latn tzm_Tfng uig_Arab ukr_Cyrl umb_Latn
urd_Arab uzn_Latn vec_Latn vie_Latn war_Latn wol_Latn xho_Latn ydd_Hebr yor_Latn
yue_Hant zho_Hans zho_Hant zul_Latn"""
