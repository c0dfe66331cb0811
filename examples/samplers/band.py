# Run: cd examples/samplers && trl-vade train --recipe quickstart --vade_sampler band:Band
"""Rows whose last pass rate was 20 to 80 %, and new rows, by chance: the filter that many recipes apply offline."""

import numpy as np


class Band:
    """By chance among rows in the band and rows without a score; rows outside the band fill up a batch."""

    def __init__(self, num_rows, *, seed=0, low=0.2, high=0.8):
        self.rng, self.low, self.high = np.random.default_rng(seed), low, high
        self.rate = np.full(num_rows, (low + high) / 2)  # a row without a score counts as inside

    def draw(self, k, *, exclude=()):
        outside = (self.rate < self.low) | (self.rate > self.high)
        order = np.lexsort([self.rng.random(self.rate.size), outside])
        return order[~np.isin(order, exclude)][:k]

    def observe(self, rows, successes, trials, mixed=None):
        scored = trials > 0
        self.rate[rows[scored]] = successes[scored] / trials[scored]

    def state_dict(self):
        return {"rate": self.rate.tolist(), "rng": self.rng.bit_generator.state}

    def load_state_dict(self, state):
        self.rate, self.rng.bit_generator.state = np.array(state["rate"]), state["rng"]

    def metrics(self):
        return {"in_band": float(np.mean((self.rate >= self.low) & (self.rate <= self.high)))}
