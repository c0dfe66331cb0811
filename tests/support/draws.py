"""Draws of samplers, their bits, and a training run."""

import numpy as np


def fields(draw):
    return [draw.sample_index, draw.sampled_pass_rate, draw.information_gain, draw.posterior_mean]


def bits(draw):
    return [array.tobytes() for array in fields(draw)]


def run(sampler, num_steps, k=4, seed=0):
    """Draw and observe as a training run does; row i is solved with a probability of about i / N."""
    rng = np.random.default_rng(seed)
    for _ in range(num_steps):
        rows = sampler.draw(k).sample_index
        sampler.observe(rows, rng.binomial(8, rows / sampler.posterior.num_samples), np.full(k, 8))
    return sampler
