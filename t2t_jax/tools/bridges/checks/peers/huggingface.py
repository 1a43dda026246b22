"""Runs a Hugging Face model; needs torch and transformers.

Of beam search, `tokenizer_differs` numbers the `lines` whose ids of the folder's own
tokenizer are not the `sources`.

`start`, `forced_bos` and `never` (tokens that are not generated) replace those of
generation_config.json.
"""

import time

import torch
import transformers

ROWS = 32  # sentences in a batch


def load(job):
    """Loads the model in float32, with its own options of generation replaced."""
    model = transformers.AutoModelForSeq2SeqLM.from_pretrained(
        job["model"], dtype=torch.float32, attn_implementation="eager"
    ).eval()
    generation, config = model.generation_config, model.config
    bad_words = [
        words[0] for words in generation.bad_words_ids or [] if len(words) == 1
    ]
    model.generation_config = transformers.GenerationConfig(
        do_sample=False,
        pad_token_id=job.get("pad", config.pad_token_id),
        eos_token_id=job.get("eos", config.eos_token_id),
        decoder_start_token_id=job.get("start", config.decoder_start_token_id),
        forced_bos_token_id=job.get("forced_bos", generation.forced_bos_token_id),
        # A list without tokens is an error there.
        suppress_tokens=job.get("never", bad_words) or None,
    )
    return model


@torch.inference_mode()
def logits(job):
    """Teacher-forced logits, one sentence at a time: nothing is padded."""
    model, rows = load(job), []
    for source, target in zip(job["sources"], job["targets"], strict=True):
        outputs = model(
            input_ids=torch.tensor([source]),
            attention_mask=torch.ones(1, len(source), dtype=torch.long),
            decoder_input_ids=torch.tensor([target]),
            use_cache=False,  # FSMT masks later positions only without a cache
        )
        rows.append(outputs.logits[0].numpy())
    return rows


def search(model, sources, limits, **options):
    """Generates the tokens and scores of each source, in batches of similar length."""
    special = model.generation_config
    tokens, scores = [None] * len(sources), [None] * len(sources)
    order = sorted(range(len(sources)), key=lambda i: (len(sources[i]), limits[i]))
    for start in range(0, len(order), ROWS):
        batch = order[start : start + ROWS]
        width = max(len(sources[i]) for i in batch)
        ids = torch.full((len(batch), width), special.pad_token_id)
        mask = torch.zeros_like(ids)
        for row, i in enumerate(batch):
            ids[row, : len(sources[i])] = torch.tensor(sources[i])
            mask[row, : len(sources[i])] = 1
        with torch.inference_mode():
            outputs = model.generate(
                ids,
                attention_mask=mask,
                max_new_tokens=max(limits[i] for i in batch),
                return_dict_in_generate=True,
                output_scores=True,
                no_repeat_ngram_size=0,
                repetition_penalty=1.0,
                **options,
            )
        for row, i in enumerate(batch):
            tokens[i] = ended(outputs.sequences[row, 1:].tolist(), special.eos_token_id)
            if outputs.get("sequences_scores") is not None:
                scores[i] = outputs.sequences_scores[row].item()
    return tokens, scores


def ended(tokens, eos):
    """Returns the tokens up to the first end of sentence, which is included."""
    return tokens[: tokens.index(eos) + 1] if eos in tokens else tokens


def greedy(job):
    """Greedy search from ids."""
    tokens, _ = search(load(job), job["sources"], job["limits"], num_beams=1)
    # A batch goes on until its longest limit; greedy search is the same up to each.
    return {"tokens": [row[:n] for row, n in zip(tokens, job["limits"], strict=True)]}


def beam(job):
    """Beam search from ids to text."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(job["model"])
    pairs = enumerate(zip(job["lines"], job["sources"], strict=True))
    differs = [i for i, (line, ids) in pairs if tokenizer(line).input_ids != ids]
    options = {"num_beams": job["beam"], "length_penalty": job["alpha"]}
    model, begun = load(job), time.perf_counter()
    tokens, scores = search(model, job["sources"], job["limits"], **options)
    seconds = time.perf_counter() - begun
    texts = tokenizer.batch_decode(tokens, skip_special_tokens=True)
    return {
        "tokenizer_differs": differs,
        "seconds": seconds,
        "scores": scores,
        "texts": texts,
        "tokens": tokens,
    }


TASKS = {"logits": logits, "greedy": greedy, "beam": beam}
