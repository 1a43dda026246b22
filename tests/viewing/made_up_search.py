"""A made-up beam search in which hypotheses meet every fate there is."""

import math

import numpy as np

BEAM = 4
PIECES = [f"▁{word}" for word in ("ein", "eine", "Hof", "liegt", "neben", "Strom")]
EOS = "</s>"


def penalised(log_prob: float, length: int, alpha: float = 0.6) -> float:
    """Returns a score with the GNMT length penalty."""
    return log_prob / ((5 + length) / 6) ** alpha


def made_up_search(rng, translation, targets):
    """Returns the search that found `translation`, a reading."""
    tree = _Tree(rng, translation)
    for step in range(1, len(translation["pieces"]) + 1):
        tree.grow(step)
    tree.name_fates()
    return {
        **{"beam": BEAM, "nbest": 2, "alpha": 0.6, "penalty": "gnmt", "stop": "best"},
        "limit": len(translation["pieces"]) + 1,
        "steps": len(translation["pieces"]),
        **{"nodes": tree.nodes, "finished": tree.finished, "best": tree.best},
        "stopped": {
            "step": len(translation["pieces"]),
            "why": "No unfinished hypothesis can still beat the best finished one.",
        },
        "reference": _reference(tree, targets[0]) if targets else None,
    }


class _Tree:
    def __init__(self, rng, reading):
        self.rng, self.reading = rng, reading
        root = self.node(-1, 0, 0, "<s>", 0.0)
        self.nodes = [root | {"flags": "b"}]
        self.beam, self.best, self.finished = [0], [0], []

    def node(self, parent, step, row, piece, log_prob):
        score = penalised(log_prob, step) if step else 0.0
        return {
            **{"parent": parent, "step": step, "row": row, "piece": piece},
            **{"log_prob": log_prob, "score": score, "fate": "alive", "by": None},
            **{"margin": None, "rank": None, "flags": ""},
            "why": "It has a child in the beam.",
        }

    def grow(self, step):
        """Adds the candidates of one step; the best of them are the next beam."""
        last = step == len(self.reading["pieces"])
        made = [c for parent in self.beam for c in self.children(parent, step)]
        chosen = len(self.nodes)  # the translation's own piece, whatever its rank
        piece = self.reading["pieces"][step - 1]
        log_prob = self.nodes[self.best[-1]]["log_prob"]
        log_prob += float(self.reading["log_probs"][step - 1])
        own = self.node(self.best[-1], step, None, piece, log_prob) | {"flags": "b"}
        ended = [c for c in made if c["piece"] == EOS]
        rest = sorted((c for c in made if c["piece"] != EOS), key=lambda c: -c["score"])
        rest = rest[: BEAM + 1]
        self.nodes += [own, *ended, *rest]
        self.best.append(chosen)
        row = [] if last else [chosen]
        row += range(chosen + 1 + len(ended), chosen + 1 + len(ended) + BEAM - len(row))
        row.sort(key=lambda n: -self.nodes[n]["score"])
        self.beam = [n for n in row if n < len(self.nodes)]
        for place, n in enumerate(self.beam):
            self.nodes[n]["row"] = place
        self.finished += range(chosen + 1, chosen + 1 + len(ended))
        self.finished += [chosen] if last else []

    def children(self, parent, step):
        above = self.nodes[parent]
        others = self.rng.choice(PIECES, 3, replace=False)
        shares = self.rng.dirichlet(np.full(3, 0.7)) * 0.5 + 1e-3
        pairs = [*zip(others, shares, strict=True)]
        if step > 3 and self.rng.random() < 0.12:
            pairs.append((EOS, 0.05))
        return [
            self.node(parent, step, None, str(piece), above["log_prob"] + math.log(p))
            for piece, p in pairs
        ]

    def name_fates(self):
        parents = {n["parent"] for n in self.nodes if n["row"] is not None}
        parents |= {self.nodes[n]["parent"] for n in self.finished}
        for index, node in enumerate(self.nodes):
            if node["piece"] == EOS:
                self.fate(index, "ended", "It took the end of the sentence.")
            elif index not in parents:
                self.outrank(index)
        self.finished.sort(key=lambda n: -self.nodes[n]["score"])
        self.finished.remove(self.best[-1])
        for n in self.finished[1:]:
            self.fate(n, "lost", "It ended, but two finished ones have better scores.")
        self.finished = [self.best[-1], *self.finished[:1]]
        for rank, n in enumerate(self.finished, 1):
            self.nodes[n]["rank"] = rank
        for place, n in enumerate(self.beam):
            fate = "limit" if place == 1 else "stopped"
            self.fate(n, fate, "It was unfinished when the search stopped.")
        outranked = [i for i, n in enumerate(self.nodes) if n["fate"] == "outranked"]
        some = outranked[:: max(1, len(outranked) // 4)]
        for n, fate in zip(some, ("forbidden", "phrase"), strict=False):
            self.fate(n, fate, "A rule of the search forbade its continuation.")

    def fate(self, index, fate, why):
        self.nodes[index] |= {"fate": fate, "why": why, "by": None, "margin": None}

    def outrank(self, index):
        """Names the last hypothesis that got into the beam in this one's place."""
        node = self.nodes[index]
        step = node["step"] + (node["row"] is not None)
        rivals = [
            i
            for i, n in enumerate(self.nodes)
            if n["step"] == step and n["row"] is not None
        ]
        if not rivals:
            return
        by = min(rivals, key=lambda i: self.nodes[i]["score"])
        margin = abs(self.nodes[by]["score"] - node["score"])
        text = f"Outranked by {self.nodes[by]['piece']!r} by {margin:.3f}."
        node |= {"fate": "outranked", "by": by, "margin": margin, "why": text}
        node["rank"] = BEAM + 1


def _reference(tree, target):
    pieces = tree.reading["pieces"]
    at = next(t for t, piece in enumerate(target["pieces"]) if piece != pieces[t])
    for n in tree.best[: at + 1]:
        tree.nodes[n]["flags"] += "r"
    return {
        **{"text": target["text"], "nodes": tree.best[: at + 1], "step": at + 1},
        **{"rank": 7, "margin": 0.42, "verdict": "model error"},
        **{"log_prob": target["log_prob"], "score": target["score"]},
        "best_score": tree.reading["score"],
        "why": "The model gives the search's translation the better score.",
    }
