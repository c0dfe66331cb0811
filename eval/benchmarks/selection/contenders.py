"""The sampler as a user has it, and what one would write without it: full redraws in numpy, torch and plain Python.

Each has the verbs `draw(k)`, which returns the k rows with the largest gains p (1 - p)^2, best first, `observe(rows,
successes)`, equations 5 and 6, `save(directory)` and `load(directory)`. A redraw decays all N rows in `observe`, as
the equations are written, so it holds alpha and beta and nothing else.

`load` first lets go of what is held, since a run that resumes holds nothing yet.
"""

import heapq
import json
import random

import numpy as np

from .evidence import COMPLETIONS, DECAY_SAMPLED, DECAY_UNSAMPLED, STEP, evidence, num_visited


class Ours:
    """`ThompsonSampler` with its defaults. A snapshot is flushed to the disk, and its bytes are held against a digest
    when it is read; the others do neither."""

    def __init__(self, num_rows, percent, seed):
        self.new = lambda: self.make(num_rows, seed)
        self.sampler = self.new()
        state = self.sampler.state_dict()
        posterior = state["posterior"]
        size, place = num_visited(num_rows, percent), 0
        names = ("sample_index", "alpha", "beta", "last_update", "visits")
        posterior |= {name: np.empty(size, posterior[name].dtype) for name in names} | {"step": STEP}
        for part in evidence(num_rows, percent, seed):
            for name, values in zip(names, part, strict=True):
                posterior[name][place : place + part.rows.size] = values
            place += part.rows.size
        self.sampler.load_state_dict(state)

    def make(self, num_rows, seed):
        from trl_vade import ThompsonSampler

        return ThompsonSampler(num_rows, seed=seed)

    def draw(self, k):
        return self.sampler.draw(k).sample_index

    def observe(self, rows, successes):
        self.sampler.observe(rows, successes, np.full(rows.size, COMPLETIONS))

    def save(self, directory):
        from trl_vade import save_snapshot

        save_snapshot(directory, self.sampler)

    def load(self, directory):
        from trl_vade import load_snapshot

        self.sampler = None
        self.sampler = self.new()
        self.sampler.load_state_dict(load_snapshot(directory).sampler_state)


class OursVariants(Ours):
    """The same with problems: nine variants of every tenth row, one of them matched."""

    def make(self, num_rows, seed):
        from trl_vade import ThompsonSampler
        from trl_vade.samplers.problems import VariantRows

        row = np.arange(num_rows)
        variants = VariantRows(row - row % 10, row % 10, ("original", *(f"hint-{level}" for level in range(1, 10))))
        return ThompsonSampler(num_rows, seed=seed, variants=variants, variant_groups=1)


class OursPrompts(Ours):
    """The rule of the default preset: a prior from the words of the prompts, and rests by even draws.

    One row of five has each of the 128 features. An epoch has a thousand steps.
    """

    def make(self, num_rows, seed):
        from trl_vade import ThompsonSampler

        some = np.packbits(np.random.default_rng(seed).random((min(num_rows, 9_999), 128)) < 0.2, axis=1)
        words = some[np.arange(num_rows) % len(some)]
        rule = {"signal_aware_decay": True, "cooldown": 500, "even_rest": 1000}
        return ThompsonSampler(num_rows, seed=seed, prior="prompts", words=words, **rule)


class Numpy:
    """Dense float64 and `Generator.beta`."""

    dtype = np.float64

    def __init__(self, num_rows, percent, seed):
        self.generator = np.random.default_rng(seed)
        self.alpha, self.beta = np.zeros(num_rows, self.dtype), np.zeros(num_rows, self.dtype)
        for part in evidence(num_rows, percent, seed):
            self.alpha[part.rows], self.beta[part.rows] = part.decayed()

    def pass_rates(self):
        return self.generator.beta(self.alpha + 1, self.beta + 1)

    def draw(self, k):
        p = self.pass_rates()
        gain = 1 - p
        gain *= gain
        gain *= p
        best = np.argpartition(gain, gain.size - k)[gain.size - k :]
        return best[np.argsort(-gain[best])]

    def observe(self, rows, successes):
        alpha = DECAY_SAMPLED * self.alpha[rows] + successes
        beta = DECAY_SAMPLED * self.beta[rows] + (COMPLETIONS - successes)
        self.alpha *= DECAY_UNSAMPLED
        self.beta *= DECAY_UNSAMPLED
        self.alpha[rows], self.beta[rows] = alpha, beta

    def save(self, directory):
        np.savez(directory / "counts.npz", alpha=self.alpha, beta=self.beta)

    def load(self, directory):
        self.alpha = self.beta = None
        with np.load(directory / "counts.npz") as file:
            self.alpha, self.beta = file["alpha"], file["beta"]


class NumpyGamma(Numpy):
    """The fastest redraw known to the author: float32, and a Beta variate from two Gamma variates, X / (X + Y).

    numpy's Gamma is a ziggurat, while its Beta turns to an older method for a row without evidence.
    """

    dtype = np.float32

    def pass_rates(self):
        x = self.generator.standard_gamma(self.alpha + 1, dtype=np.float32)
        y = self.generator.standard_gamma(self.beta + 1, dtype=np.float32)
        y += x
        x /= y
        return x


class Torch:
    """Dense float32 on the CPU. `torch.distributions.Beta.sample` takes longer than two Gamma variates, as here."""

    def __init__(self, num_rows, percent, seed):
        import torch

        torch.set_num_threads(1)
        torch.manual_seed(seed)
        self.torch = torch
        self.alpha, self.beta = torch.zeros(num_rows), torch.zeros(num_rows)
        for part in evidence(num_rows, percent, seed):
            rows = torch.from_numpy(part.rows)
            self.alpha[rows], self.beta[rows] = (torch.from_numpy(counts).float() for counts in part.decayed())

    def draw(self, k):
        # Not `torch.distributions.Gamma`, which checks its arguments and then calls this.
        p, y = self.torch._standard_gamma(self.alpha + 1), self.torch._standard_gamma(self.beta + 1)
        p /= y.add_(p)
        gain = y.copy_(p).neg_().add_(1).square_().mul_(p)
        return self.torch.topk(gain, k).indices.numpy()

    def observe(self, rows, successes):
        rows, successes = self.torch.from_numpy(rows), self.torch.from_numpy(successes).float()
        alpha = DECAY_SAMPLED * self.alpha[rows] + successes
        beta = DECAY_SAMPLED * self.beta[rows] + (COMPLETIONS - successes)
        self.alpha *= DECAY_UNSAMPLED
        self.beta *= DECAY_UNSAMPLED
        self.alpha[rows], self.beta[rows] = alpha, beta

    def save(self, directory):
        from safetensors.torch import save_file

        save_file({"alpha": self.alpha, "beta": self.beta}, directory / "counts.safetensors")

    def load(self, directory):
        from safetensors.torch import load_file

        self.alpha = self.beta = None
        # load_file maps the file and reads nothing; the others have read it when they return.
        self.alpha, self.beta = (
            counts.clone() for _, counts in sorted(load_file(directory / "counts.safetensors").items())
        )


class Prompt:
    """What the loop holds of a row."""

    __slots__ = ("alpha", "beta")

    def __init__(self, alpha=0.0, beta=0.0):
        self.alpha, self.beta = alpha, beta


class Loop:
    """An object a row, and a loop over them: the form in which samplers of prompts are often published."""

    def __init__(self, num_rows, percent, seed):
        self.generator = random.Random(seed)
        self.prompts = [Prompt() for _ in range(num_rows)]
        for part in evidence(num_rows, percent, seed):
            for row, alpha, beta in zip(part.rows, *(counts.tolist() for counts in part.decayed()), strict=True):
                self.prompts[row].alpha, self.prompts[row].beta = alpha, beta

    def draw(self, k):
        betavariate, gains = self.generator.betavariate, []
        for prompt in self.prompts:
            p = betavariate(prompt.alpha + 1, prompt.beta + 1)
            gains.append(p * (1 - p) ** 2)
        return np.array(heapq.nlargest(k, range(len(gains)), key=gains.__getitem__))

    def observe(self, rows, successes):
        seen = dict(zip(rows.tolist(), successes.tolist(), strict=True))
        for row, prompt in enumerate(self.prompts):
            kept = DECAY_SAMPLED if row in seen else DECAY_UNSAMPLED
            prompt.alpha *= kept
            prompt.beta *= kept
        for row, right in seen.items():
            self.prompts[row].alpha += right
            self.prompts[row].beta += COMPLETIONS - right

    def save(self, directory):
        (directory / "counts.json").write_text(json.dumps([(prompt.alpha, prompt.beta) for prompt in self.prompts]))

    def load(self, directory):
        self.prompts = None
        self.prompts = [Prompt(*counts) for counts in json.loads((directory / "counts.json").read_text())]


CONTENDERS = {"ours": Ours, "numpy": Numpy, "numpy gamma": NumpyGamma, "torch": Torch, "loop": Loop}
DEFAULT = tuple(CONTENDERS)
CONTENDERS["ours, prompts"] = OursPrompts  # these two have another task than the others
CONTENDERS["ours, variants"] = OursVariants
