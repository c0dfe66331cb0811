"""What GRPO learns under a sampler, in four made-up worlds: a cheap place to choose the sampler's defaults.

    python scripts/simulate_selection.py
    python scripts/simulate_selection.py --worlds staged --sweep decays --seeds 0 1 2 3
    python scripts/simulate_selection.py --set memory_rate=0 --arms uniform robust

No model is trained, so nothing here shows that selection helps; it shows which settings are worth a run of a model.
The samplers are the product's own. All arms of a seed see the same rows. One step t is one generation batch of B rows
with G completions each, and one policy update. The model of the world, with its parameters in `code`:

Rows. Row i belongs to one of S skills, all of equal size; an `impossible` share of all rows has a wrong label, and
p_i = 0 for ever. The others have difficulties d_i ~ Normal(0, `spread`) and pass rates

    logit p_i = `slope` (e_k - d_i) + z_i + m_i                k the row's skill
    e_k       = min(s_k, e_{k-1} + `gap`)                      a skill needs the one before it: a chain of skills
    z_i       a stationary AR(1), deviation `wander`, half-life `wander_half_life`: a policy moves in ways that no
              skill explains, so evidence grows old
    m_i       in [0, `memory_limit`), what the policy remembers of the row itself; 0 at the start, and it halves in
              `memory_half_life` steps

Skills start at s_k = `levels`[k].

Learning. Of a group with r successes the signal is w_i = 2 sqrt(r/G (1 - r/G)) in [0, 1], what the advantages divided
by their deviation leave; 0 where all rewards are equal. With W = sum(w_i) / B the update has the size

    U = W ** `step_power`        1 is SGD; 0 is Adam where the gradient outweighs its noise, so that more groups with a
                                 gradient are no larger step; 1/2 is Adam where noise rules (steps add up as a walk)

and is split over the skills by what their rows can still teach, the remembered ones less:

    g_k  = sum(w_i (1 - m_i / `memory_limit`), i in k) / sum(w_i)
    s_k += `rate` U (g_k + `transfer` (g_{k-1} + g_{k+1}))
    s_k -= `forgetting` U max(s_k - f_k, 0)        f_k = levels[k] - `drop`: updates made for others wear a skill off
    m_i += (`memory_limit` - m_i) (1 - exp(-`memory_rate` U w_i / W))            fast at first, then less and less

Validation. The score is the mean pass rate of fresh rows of the same distribution, with z and without m.

Left out: rewards by luck (a choice of four), which look like gradient and teach nothing; lengths; KL; a skill's own
ceiling. And no parameter is measured. Three of them decide whether selection pays at all: with `step_power` 0 a
uniform draw beats even the oracle, with `memory_rate` 0.1 it ends above the oracle, and `forgetting` favours it too.

Worlds. `paper_like`: most rows are or become mastered, few are impossible, a uniform draw's effective gradient ratio
falls to about 0.1. `staged`: a chain of eight skills that unlock one another. `many_impossible`: 45 % of the rows are.
`no_headroom`: every row is of medium difficulty throughout, a uniform draw's ratio is about 0.9.

Reported, mean over the seeds and the standard error of the mean: the effective gradient ratio of the batches, over
the run and in its last fifth; lift, the ratio over that of a uniform draw from the same policy and pool; the area
under the score over the rollouts (the mean score); the final score; both also less uniform's of the same seed, in
points of 100; the share of the rollouts until uniform's final score (among the runs that reach it); shares of the
slots: on impossible rows, on rows mastered at that time (p >= 0.95), on the most visited tenth of the rows; and
calibration, the Brier score of the belief's mean against the true pass rate of the rows chosen. Seconds go to standard
error: with `--rows 1000000 --steps 2000` about 8 for `frontier` on one core, 4 ms a step. Time goes up with the rows
that were visited and do not rest; arms that tell unvisited rows apart (learned, greedy, uniform share) draw all rows.
"""

import argparse
import sys
import time

import numpy as np

from trl_vade.samplers import ThompsonSampler, UniformSampler
from trl_vade.samplers.peers.oracle import OracleSampler
from trl_vade.trainer.presets import PRESETS

SHARED = {
    "slope": 2.5,
    "spread": 0.8,
    "gap": 100.0,  # none
    "impossible": 0.05,
    "levels": (0.0,),
    "wander": 0.5,
    "wander_half_life": 100.0,
    "rate": 0.1,
    "step_power": 0.5,
    "transfer": 0.2,
    "forgetting": 0.002,
    "drop": 1.0,
    "memory_rate": 0.02,
    "memory_limit": 4.0,
    "memory_half_life": 150.0,
}
WORLDS = {
    "paper_like": SHARED | {"levels": (3.0, 2.6, 2.2, 1.6, 1.0, 0.3, -0.3, -0.8)},
    "staged": SHARED | {"levels": (0.5, -0.2, -0.8, -1.4, -2.0, -2.0, -2.0, -2.0), "gap": 0.0, "rate": 0.15},
    "many_impossible": SHARED | {"levels": (1.5, 0.9, 0.3, -0.4, -1.0), "impossible": 0.45, "rate": 0.06},
    "no_headroom": SHARED
    | {"levels": (0.1, 0.0, -0.1), "impossible": 0.0, "spread": 0.25, "wander": 0.3}
    | {"rate": 0.005, "forgetting": 5e-4},
}
MASTERED = 0.95
VALIDATION_ROWS = 2000
POOL_SAMPLE = 1000

# The settings of a preset that are the sampler's, by the sampler's names.
NAMES = {"information_gain": "gain"} | {
    name: name
    for name in ("signal_aware_decay", "cooldown", "prior", "uniform_share", "decay_sampled", "decay_unsampled")
}
ROBUST, FRONTIER = (
    {NAMES[name]: value for name, value in PRESETS[preset].items()} for preset in ("robust", "frontier")
)
ARMS = {
    "uniform": {"sampler": "uniform"},
    "paper": {},
    "robust": ROBUST,
    "frontier": FRONTIER,
    "robust, lambda_1 always": ROBUST | {"signal_aware_decay": False},
    "robust, no cooldown": ROBUST | {"cooldown": 0.0},
    "robust, learned prior": ROBUST | {"prior": "learned"},
    "robust, a tenth uniform": ROBUST | {"uniform_share": 0.1},
    "robust, greedy": ROBUST | {"greedy": True},
    "oracle": {"sampler": "oracle"},
}
HALF_LIVES = {"sampled": (0.0, 0.43, 1.0, 3.0, np.inf), "unsampled": (20.0, 60.0, 200.0, 693.0, np.inf)}


def decay_of(half_life):
    """The decay that halves the counts in so many steps: lambda = 2^(-1/h); 0 forgets at once."""
    return 0.0 if half_life == 0 else float(2.0 ** (-1.0 / half_life))


SWEEPS = {
    "decays": {
        f"half-lives {own:g}, {other:g}": {"decay_sampled": decay_of(own), "decay_unsampled": decay_of(other)}
        for own in HALF_LIVES["sampled"]
        for other in HALF_LIVES["unsampled"]
    },
    "cooldown": {f"cooldown {share:g}": {"cooldown": share} for share in (0.0, 0.1, 0.2, 0.3, 0.4, 0.6)},
    "prior": {
        f"prior {prior}, cooldown {share:g}": {"prior": prior, "cooldown": share}
        for prior in ("flat", "learned")
        for share in (0.0, 0.2)
    },
    "uniform_share": {f"uniform share {share:g}": {"uniform_share": share} for share in (0.0, 0.05, 0.1, 0.25, 0.5)},
}


class World:
    """The rows and the policy. A row's memory and wandering are brought up to date when it is read, so that a step
    costs O(B) and not O(N).
    """

    def __init__(self, parameters, num_rows, seed):
        self.parameters = parameters
        self.levels = np.array(parameters["levels"], dtype=np.float64)  # (S,)
        self.floors = self.levels - parameters["drop"]
        rows, validation, self._chance = (np.random.default_rng([seed, stream]) for stream in range(3))
        self.skill, self.impossible, self._difficulty, self._wander = self._population(num_rows, rows)
        self._validation = self._population(VALIDATION_ROWS, validation)
        self._memory = np.zeros(num_rows)
        self._read_at = np.zeros(num_rows, dtype=np.int64)  # the step of _wander and _memory
        self.step = 0

    def _population(self, size, rng):
        impossible = rng.permutation(size) < round(self.parameters["impossible"] * size)
        difficulty, wander = rng.normal(0.0, [[self.parameters["spread"]], [self.parameters["wander"]]], (2, size))
        return rng.permutation(size) % self.levels.size, impossible, difficulty, wander

    def _abilities(self):
        """(S,) e_k, levels as far as those before them carry: a running minimum, with a slope of `gap`."""
        slope = self.parameters["gap"] * np.arange(self.levels.size)
        return np.minimum.accumulate(self.levels - slope) + slope

    def _pass_rates(self, skill, impossible, difficulty, others):
        logit = self.parameters["slope"] * (self._abilities()[skill] - difficulty) + others
        return np.where(impossible, 0.0, 1.0 / (1.0 + np.exp(-logit)))

    def _bring_up_to_date(self, rows):
        elapsed = self.step - self._read_at[rows]
        self._memory[rows] *= 0.5 ** (elapsed / self.parameters["memory_half_life"])
        kept = 0.5 ** (elapsed / self.parameters["wander_half_life"])
        noise = self._chance.normal(0.0, self.parameters["wander"], rows.size)
        self._wander[rows] = kept * self._wander[rows] + np.sqrt(1.0 - kept**2) * noise
        self._read_at[rows] = self.step

    def pass_rates(self, rows):
        """(K,) of distinct rows."""
        self._bring_up_to_date(rows)
        return self._pass_rates(
            self.skill[rows], self.impossible[rows], self._difficulty[rows], self._wander[rows] + self._memory[rows]
        )

    def score(self):
        return float(self._pass_rates(*self._validation).mean())

    def update(self, rows, success_rate):
        """One step of the policy, from (B,) shares of successes of rows that were just read."""
        p = self.parameters
        signal = 2.0 * np.sqrt(success_rate * (1.0 - success_rate))
        self.step += 1
        if not signal.any():
            return
        strength = signal.mean()
        size = strength ** p["step_power"]
        new = signal * (1.0 - self._memory[rows] / p["memory_limit"])
        share = np.bincount(self.skill[rows], new, minlength=self.levels.size) / signal.sum()
        from_others = np.zeros_like(share)
        from_others[1:] += share[:-1]
        from_others[:-1] += share[1:]
        worn = p["forgetting"] * size * np.maximum(self.levels - self.floors, 0.0)
        self.levels += p["rate"] * size * (share + p["transfer"] * from_others) - worn
        learned = 1.0 - np.exp(-p["memory_rate"] * size * signal / strength)
        self._memory[rows] += (p["memory_limit"] - self._memory[rows]) * learned


def make_sampler(settings, options, seed):
    settings = dict(settings)
    kind = settings.pop("sampler", "thompson")
    if kind == "uniform":
        return UniformSampler(options.rows, seed=seed)
    if kind == "oracle":
        return OracleSampler(options.rows, num_generations=options.generations, seed=seed)
    settings["cooldown"] = round(settings.get("cooldown", 0.0) * options.rows / options.batch)
    return ThompsonSampler(options.rows, seed=seed, **settings)


def mixed(p, generations):
    """The probability that a group has a gradient."""
    return 1.0 - p**generations - (1.0 - p) ** generations


def simulate(parameters, settings, seed, options):
    """One run: a dict of figures, and `curve`, the scores from the start to the end."""
    world = World(parameters, options.rows, seed)
    sampler = make_sampler(settings, options, seed)
    chance, sample = np.random.default_rng([seed, 3]), np.random.default_rng([seed, 4])
    trials = np.full(options.batch, float(options.generations))
    every_row, visits = np.arange(options.rows), np.zeros(options.rows, dtype=np.int64)
    curve, ratios, true_ratios, pool_ratios, brier, impossible, mastered = ([] for _ in range(7))

    for step in range(options.steps):
        if step % options.measure_every == 0:
            curve.append(world.score())
            some = sample.choice(options.rows, min(POOL_SAMPLE, options.rows), replace=False)
            pool_ratios.append(mixed(world.pass_rates(some), options.generations).mean())
        if isinstance(sampler, OracleSampler):
            sampler.set_pass_rates(world.pass_rates(every_row))
        draw = sampler.draw(options.batch)
        rows = draw.sample_index
        p = world.pass_rates(rows)
        successes = chance.binomial(options.generations, p).astype(np.float64)
        sampler.observe(rows, successes, trials)
        world.update(rows, successes / trials)

        visits[rows] += 1
        ratios.append(np.mean((successes > 0) & (successes < trials)))
        true_ratios.append(mixed(p, options.generations).mean())
        brier.append(np.mean((draw.posterior_mean - p) ** 2))
        impossible.append(world.impossible[rows].mean())
        mastered.append(np.mean(p >= MASTERED))
    curve.append(world.score())

    tenth = max(1, options.rows // 10)
    return {
        "ratio": np.mean(ratios),
        "late": np.mean(ratios[-(options.steps // 5 or 1) :]),
        "lift": np.mean(true_ratios) / np.mean(pool_ratios),
        "area": np.mean(curve),
        "final": curve[-1],
        "impossible": np.mean(impossible),
        "mastered": np.mean(mastered),
        "tenth": np.sort(visits)[-tenth:].sum() / visits.sum(),
        "brier": np.mean(brier),
        "curve": np.array(curve),
    }


def beside(run, uniform):
    """The figures of a run that need uniform's of the same seed."""
    reached = np.flatnonzero(run["curve"] >= uniform["final"])
    return run | {
        "area_gain": 100.0 * (run["area"] - uniform["area"]),
        "final_gain": 100.0 * (run["final"] - uniform["final"]),
        "rollouts": reached[0] / (run["curve"].size - 1) if reached.size else None,
    }


COLUMNS = {  # title -> figure, digits
    "ratio": ("ratio", 3),
    "late": ("late", 3),
    "lift": ("lift", 2),
    "area": ("area", 3),
    "final": ("final", 3),
    "area, over uniform": ("area_gain", 2),
    "final, over uniform": ("final_gain", 2),
    "rollouts to its final": ("rollouts", 2),
    "impossible": ("impossible", 3),
    "mastered": ("mastered", 3),
    "top tenth": ("tenth", 3),
    "Brier": ("brier", 4),
}


def spread(values, digits):
    reached = np.array([value for value in values if value is not None], dtype=np.float64)
    never = len(values) - reached.size
    if not reached.size:
        return "never"
    error = reached.std(ddof=1) / np.sqrt(reached.size) if reached.size > 1 else 0.0
    return f"{reached.mean():.{digits}f} ± {error:.{digits}f}" + (f", {never} never" if never else "")


def parameter(text):
    name, _, value = text.partition("=")
    if name not in SHARED or name == "levels":
        raise argparse.ArgumentTypeError(f"no parameter {name!r}; there are {', '.join(SHARED)}")
    return name, float(value)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", nargs="+", type=int, default=list(range(8)))
    parser.add_argument("--worlds", nargs="+", choices=WORLDS, default=list(WORLDS))
    parser.add_argument("--arms", nargs="+", choices=ARMS, default=list(ARMS))
    parser.add_argument("--sweep", nargs="+", choices=SWEEPS, default=[], help="in place of arms: changes to robust")
    # The paper's run in small: its 8,524 rows in batches of 512, 15 epochs, are 249 steps of 1/16.6 of the rows.
    parser.add_argument("--rows", type=int, default=2048)
    parser.add_argument("--batch", type=int, default=128, help="rows in a generation batch")
    parser.add_argument("--generations", type=int, default=8, help="completions of a row")
    parser.add_argument("--steps", type=int, default=250, help="generation batches")
    parser.add_argument("--measure_every", type=int, default=5, help="steps between two scores")
    parser.add_argument("--set", nargs="+", type=parameter, default=[], metavar="NAME=VALUE", help="of all worlds")
    options = parser.parse_args()

    arms = {name: ARMS[name] for name in options.arms}
    if options.sweep:
        arms = {"uniform": ARMS["uniform"], "robust": ROBUST}
        arms |= {name: ROBUST | change for sweep in options.sweep for name, change in SWEEPS[sweep].items()}
    print(
        f"{options.rows} rows, {options.steps} batches of {options.batch} x {options.generations}; mean over "
        f"{len(options.seeds)} seeds ± standard error\n"
    )
    print("| world | arm |", " | ".join(COLUMNS), "|")
    print("| --- " * (2 + len(COLUMNS)) + "|")
    for world in options.worlds:
        parameters = WORLDS[world] | dict(options.set)
        uniform = [simulate(parameters, ARMS["uniform"], seed, options) for seed in options.seeds]
        for name, settings in arms.items():
            start = time.perf_counter()
            runs = uniform
            if name != "uniform":
                runs = [simulate(parameters, settings, seed, options) for seed in options.seeds]
            seconds = (time.perf_counter() - start) / len(runs)
            runs = [beside(run, of_seed) for run, of_seed in zip(runs, uniform, strict=True)]
            figures = " | ".join(spread([run[key] for run in runs], digits) for key, digits in COLUMNS.values())
            print(f"| {world} | {name} | {figures} |", flush=True)
            print(f"{world}, {name}: {seconds:.2f} s a run", file=sys.stderr)


if __name__ == "__main__":
    main()
