"""A sampler of a user's own, as docs/guides/own_sampler.md has one: it knows nothing of trl_vade."""

import numpy as np

OWN = "tests.support.own_samplers:WorstLast"


class WorstLast:
    """The rows with the worst last pass rate; unseen rows count as 1/2, and chance breaks ties."""

    def __init__(self, num_samples, *, seed=0, seen=()):
        self.rng, self.rate = np.random.default_rng(seed), np.full(num_samples, 0.5)
        self.rate[list(seen)] = 1.0

    def draw(self, k, *, exclude=None):
        order = np.lexsort([self.rng.random(self.rate.size), self.rate])
        return order[~np.isin(order, [] if exclude is None else exclude)][:k]

    def observe(self, sample_index, successes, trials, mixed=None):
        scored = np.asarray(trials) > 0
        self.rate[sample_index[scored]] = successes[scored] / trials[scored]

    def state_dict(self):
        return {"rate": self.rate.tolist(), "rng": self.rng.bit_generator.state}

    def load_state_dict(self, state):
        self.rate, self.rng.bit_generator.state = np.array(state["rate"]), state["rng"]

    def metrics(self):
        return {"failed_last": float(np.mean(self.rate == 0))}
