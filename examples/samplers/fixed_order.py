# Run: cd examples/samplers && trl-vade train --recipe quickstart --vade_sampler fixed_order:FixedOrder
"""The rows in the order of the file, again and again: a curriculum that somebody has sorted."""

import numpy as np


class FixedOrder:
    """Rows 0, 1, 2 and so on."""

    def __init__(self, num_rows, *, seed=0):
        self.num_rows, self.next = num_rows, 0

    def draw(self, k, *, exclude=()):
        order = np.arange(self.next, self.next + self.num_rows) % self.num_rows
        rows = order[~np.isin(order, exclude)][:k]
        self.next = int(rows[-1] + 1) % self.num_rows
        return rows

    def observe(self, rows, successes, trials, mixed=None):
        """Learn nothing: the order is fixed."""

    def state_dict(self):
        return {"next": self.next}

    def load_state_dict(self, state):
        self.next = state["next"]

    def metrics(self):
        return {"order_place": float(self.next)}
