# Run: cd examples/samplers && trl-vade train --recipe quickstart --vade_sampler falling_target:FallingTarget
"""Rows by a Gaussian over pass rates whose mean falls: easy rows first, hard rows last, as the recipes of Nemotron."""

import numpy as np


class FallingTarget:
    """Rows without replacement with the chance exp(-(p - target)^2 / (2 width^2)) of their last pass rate p."""

    def __init__(self, num_rows, *, seed=0, first=0.8, last=0.2, draws=200, width=0.15):
        self.rng, self.rate = np.random.default_rng(seed), np.full(num_rows, 0.5)  # better: those of a base policy
        self.first, self.last, self.draws, self.width, self.number = first, last, draws, width, 0

    @property
    def target(self):
        return self.first + (self.last - self.first) * min(self.number / self.draws, 1.0)

    def draw(self, k, *, exclude=()):
        # The largest sums of log chance and Gumbel noise are a draw without replacement.
        order = np.argsort(((self.rate - self.target) / self.width) ** 2 / 2 - self.rng.gumbel(size=self.rate.size))
        self.number += 1
        return order[~np.isin(order, exclude)][:k]

    def observe(self, rows, successes, trials, mixed=None):
        scored = trials > 0
        self.rate[rows[scored]] = successes[scored] / trials[scored]

    def state_dict(self):
        return {"rate": self.rate.tolist(), "number": self.number, "rng": self.rng.bit_generator.state}

    def load_state_dict(self, state):
        self.rate, self.number = np.array(state["rate"]), state["number"]
        self.rng.bit_generator.state = state["rng"]

    def metrics(self):
        return {"target": self.target}
