"""A complete payload of an explanation page, made of random but plausible numbers."""

import math

import numpy as np

from t2t_jax.tools.pages.page import Payload
from tests.viewing.made_up_search import made_up_search, penalised


def _words(text):
    return text.split()


WORDS = _words("the old house stands near a quiet river and nobody knows who built it")
TARGET = _words(
    "das alte Haus steht an einem stillen Fluss und niemand weiß wer es baute"
)
OTHERS = _words("ein eine Gebäude Hof liegt neben ruhigen Strom keiner kennt hat da")
EOS = "</s>"
TEXTS = {  # a script each: right to left, without spaces, bytes of an emoji
    "arabic": _words("▁البيت ▁القديم ▁يقف ▁قرب ▁النهر"),
    "japanese": _words("▁ 古い 家 は 静かな 川 の そば に ある 。"),
    "emoji": _words("▁gut <0xF0> <0x9F> <0x98> <0x80> ▁!"),
}


def made_up_payload(
    source_pieces: int = 12,
    target_pieces: int = 11,
    layers: int = 2,
    heads: int = 4,
    models: int = 1,
    readings: int = 1,
    seed: int = 0,
    sentences: int = 1,
    script: str = "",
    missing: bool = False,
) -> Payload:
    """Returns a payload.

    Args:
      source_pieces: pieces of the source with its `</s>`.
      target_pieces: pieces of the translation with its `</s>`.
      readings: 2 adds a target that the user gave.
      script: "arabic", "japanese" or "emoji" for the target's pieces.
      missing: leave out all that a model without attention cannot have.
    """
    rng = np.random.default_rng(seed)
    payload = Payload()
    maker = _Maker(rng, payload, source_pieces, target_pieces, layers, heads)
    maker.script, maker.missing = script, missing
    entries = []
    for first in range(sentences):  # the word that a sentence begins with
        source = maker.pieces(WORDS[first:] + WORDS[:first], source_pieces)
        entries.append([maker.entry(source, readings) for _ in range(models)])
    payload.content = {
        "version": 1,
        "title": "A made-up explanation",
        "models": [_model(index) for index in range(models)],
        "sentences": [
            {"source": " ".join(of[0]["source_word_texts"]), "of": of} for of in entries
        ],
    }
    return payload


def _model(index):
    name = ["tiny", "base"][index]
    passport = [["checkpoints", "average of steps 500, 525"], ["layers", str(index)]]
    model = {"name": f"runs/{name}", "kind": "transformer", "direction": ["en", "de"]}
    return model | {"passport": passport}


class _Maker:
    def __init__(self, rng, payload, source, target, layers, heads):
        self.rng, self.payload = rng, payload
        self.source, self.target = source, target
        self.layers, self.heads = layers, heads

    def entry(self, source, readings):
        pieces, words, texts = source
        self.source_words = len(texts)
        target = self.target_pieces()
        of = [self.reading("translation", target)]
        if readings > 1:
            at = len(target[0]) // 2
            other = [*target[0][:at], "▁anders", *target[0][at + 1 :]]
            of.append(self.reading("target", (other, *target[1:])))
            of[0]["difference"] = _difference(at, target[0][at], "▁anders")
            of[1]["difference"] = _difference(at, "▁anders", target[0][at])
        return {
            "source": pieces,
            "source_words": words,
            "source_word_texts": texts,
            "cut": 0,
            "search": made_up_search(self.rng, of[0], of[1:]),
            "readings": of,
        }

    def target_pieces(self):
        if not self.script:
            return self.pieces(TARGET, self.target)
        pieces = TEXTS[self.script]
        pieces = [*(pieces * self.target)[: self.target - 1], EOS]
        words = [*range(len(pieces) - 1), -1]
        return pieces, words, [p.replace("▁", "") for p in pieces[:-1]]

    def pieces(self, vocabulary, count):
        """Returns `count` pieces with </s>, their words, and the words' texts."""
        pieces, words, texts = [], [], []
        while len(pieces) < count - 1:
            word = vocabulary[len(texts) % len(vocabulary)]
            half = len(word) // 2 + 1
            split = len(word) > 4 and self.rng.random() < 0.5
            parts = [f"▁{word[:half]}", word[half:]] if split else [f"▁{word}"]
            parts = parts[: count - 1 - len(pieces)]
            words += [len(texts)] * len(parts)
            texts.append("".join(parts)[1:])
            pieces += parts
        return [*pieces, EOS], [*words, -1], texts

    def reading(self, name, target):
        pieces, words, texts = target
        chosen = self.rng.beta(3, 1, len(pieces)).clip(0.02, 0.999)
        reading = {"name": name, "text": _text(pieces), "pieces": pieces}
        reading |= {"words": words, "word_texts": texts, "ended": True}
        reading |= {"log_probs": np.log(chosen), "log_prob": np.log(chosen).sum()}
        reading["score"] = penalised(reading["log_prob"], len(pieces))
        reading["entropy"] = 4 * (1 - chosen) + 0.1
        reading |= self.alternatives(reading)
        reading["difference"] = None
        lacking = {"missing": "An LSTM has no attention of this kind."}
        for part in ("attention", "rollout", "alignment", "lens", "attribution"):
            absent = self.missing and part != "alignment"
            reading[part] = lacking if absent else getattr(self, part)(reading)
        if self.missing:
            reading["attention"] = dict.fromkeys(
                ("encoder", "decoder", "cross"), lacking
            )
        return reading

    def alternatives(self, reading):
        lists, ranks, continuations = [], [], []
        for t, piece in enumerate(reading["pieces"]):
            p = math.exp(reading["log_probs"][t])
            others = self.rng.choice(OTHERS, min(9, len(OTHERS)), replace=False)
            shares = self.rng.dirichlet(np.full(12, 0.4))[:9] * (1 - p)
            rivals = [
                [f"▁{o}", float(np.log(s + 1e-6)), None]
                for o, s in zip(others, shares, strict=True)
            ]
            if piece != EOS:
                rivals[-1][0] = EOS
            row = sorted([[piece, math.log(p), None], *rivals], key=lambda a: -a[1])
            ranks.append(1 + [a[0] for a in row].index(piece))
            likely = [a for a in row if a[0] != piece and a[1] > math.log(0.02)][:2]
            for alternative in likely:
                alternative[2] = len(continuations)
                continuations.append(self.continuation(reading, t, alternative))
            lists.append(row)
        return {"rank": ranks, "alternatives": lists, "continuations": continuations}

    def continuation(self, reading, t, alternative):
        piece, log_prob, _ = alternative
        rest = [] if piece == EOS else [*reading["pieces"][t + 1 :]]
        pieces = [*reading["pieces"][:t], piece, *rest]
        total = reading["log_probs"][:t].sum() + log_prob - 0.2 * len(rest)
        return {
            **{"position": t, "piece": piece, "text": _text(pieces), "pieces": pieces},
            **{"log_prob": total, "score": penalised(total, len(pieces))},
            "ended": True,
        }

    def attention(self, reading):
        s, t = self.source, len(reading["pieces"])
        sizes = {"encoder": (s, s), "decoder": (t, t), "cross": (t, s)}
        return {which: self.heads_of(which, *size) for which, size in sizes.items()}

    def heads_of(self, which, queries, keys):
        maps = [
            self.weights(queries, keys, which == "decoder", shift=h % self.heads - 1)
            for h in range(self.layers * self.heads)
        ]
        weights = np.reshape(maps, (self.layers, self.heads, queries, keys))
        of = {"weights": self.payload.add(weights, scale=1 / 255)}
        logs = np.log2(weights, out=np.zeros_like(weights), where=weights > 0)
        of["entropy"] = -(weights * logs).sum(-1).mean(-1)
        if which == "cross":
            of["peak"] = weights.max(-1).mean(-1)
        else:
            away = np.arange(keys) - np.arange(queries)[:, None]
            of["offset"] = (weights * away).sum(-1).mean(-1)
        return of

    def weights(self, queries, keys, causal=False, shift=0, sharpness=4.0):
        """Returns rows that sum to 1, strongest near the diagonal moved by `shift`."""
        at = np.arange(queries)[:, None] * keys / queries + shift
        logits = -np.abs(np.arange(keys) - at) * sharpness / 4
        logits = logits + self.rng.normal(size=(queries, keys))
        if causal:
            logits = np.where(np.tri(queries, keys, dtype=bool), logits, -np.inf)
        weights = np.exp(logits - logits.max(-1, keepdims=True))
        return weights / weights.sum(-1, keepdims=True)

    def rollout(self, reading):
        s, t = self.source, len(reading["pieces"])
        maps = {"encoder": (s, s), "decoder": (t, t, True), "cross": (t, s)}
        return {
            which: self.payload.add(self.weights(*size), scale=1 / 255)
            for which, size in maps.items()
        }

    def alignment(self, reading):
        sources = self.source_words
        targets = len(reading["word_texts"])
        weights = self.weights(targets, sources, sharpness=12)
        coverage = weights.sum(0)
        return {
            "weights": self.payload.add(weights, scale=1 / 255),
            "links": [[int(weights[t].argmax()), t] for t in range(targets)],
            "coverage": coverage,
            "dropped": [int(coverage.argmin())],
            "repeated": [int(coverage.argmax())],
            "layer": self.layers - 1,
        }

    def lens(self, reading):
        found = {"names": [], "top": [], "probability": [], "rank": []}
        for layer in range(1, self.layers + 1):
            last, chosen = layer == self.layers, np.exp(reading["log_probs"])
            guessed = self.rng.integers(1, 7, len(chosen)).tolist()
            found["names"].append(f"layer {layer}")
            found["probability"].append(chosen if last else 0.3 * chosen)
            found["rank"].append(reading["rank"] if last else guessed)
            rows = reading["alternatives"]
            found["top"].append(
                [[[a[0], math.exp(a[1])] for a in row[:5]] for row in rows]
            )
        return found

    def attribution(self, reading):
        t = len(reading["pieces"])
        past = np.tri(t, t, -1)

        def add(keys, mask=1):
            values = self.rng.normal(size=(t, keys)) * self.weights(t, keys) * mask
            return self.payload.add(values, signed=True, by_row=True)

        rows = zip(reading["alternatives"], reading["pieces"], strict=True)
        return {
            "positions": [*range(t)],
            **{"source": add(self.source), "target": add(t, past)},
            "totals": self.rng.normal(size=t) + 4,
            "rivals": [next(a[0] for a in row if a[0] != p) for row, p in rows],
            **{"source_contrast": add(self.source), "target_contrast": add(t, past)},
        }


def _difference(position, piece, rival):
    return {"position": position, "piece": piece, "rival": rival}


def _text(pieces):
    text, raw = "", b""
    for piece in [p for p in pieces if p != EOS] + [""]:
        if piece.startswith("<0x"):
            raw += bytes([int(piece[3:5], 16)])
            continue
        text, raw = text + raw.decode(errors="replace") + piece, b""
    return text.replace("▁", " ").strip()
