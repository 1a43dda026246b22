"""Runs a published tokenizer in a process of its own: `published_peer.py JOB.json`.

The job has `kind`, `folder`, `source` and `target` languages, `lines` and `rows` of
ids; the result has the ids of lines as source and as target, and the rows' texts.
"""

import json
import sys

import transformers

CLASSES = {
    "marian": "MarianTokenizer",
    "m2m100": "M2M100Tokenizer",
    "nllb": "NllbTokenizer",
    "pegasus": "PegasusTokenizer",
    "fsmt": "FSMTTokenizer",
}


def main():
    with open(sys.argv[1]) as file:
        job = json.load(file)
    made = getattr(transformers, CLASSES[job["kind"]])
    languages = {"src_lang": job["source"], "tgt_lang": job["target"]}
    languages = {name: value for name, value in languages.items() if value}
    tokenizer = made.from_pretrained(job["folder"], **languages)
    result = {
        "source": tokenizer(job["lines"])["input_ids"],
        "target": tokenizer(text_target=job["lines"])["input_ids"],
        "texts": [tokenizer.decode(r, skip_special_tokens=True) for r in job["rows"]],
        "length": len(tokenizer),
    }
    with open(job["output"], "w") as file:
        json.dump(result, file)


if __name__ == "__main__":
    main()
