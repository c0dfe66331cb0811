"""The package's sampler against the page of `reference.py`: the same rows, draw by draw."""

import copy
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from tests.samplers import reference as page
from tests.samplers.reference import Reference
from trl_vade.trainer.grpo_config import VADE_DEFAULTS
from trl_vade.trainer.presets import PRESETS
from trl_vade.trainer.selection_choice import make_sampler


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("num_rows", [40, 200, 800])
def test_the_sampler_that_a_run_gets_draws_the_rows_of_the_reference(preset, num_rows):
    rules, k, seed = PRESETS[preset], 8, num_rows
    texts = [f"count {row % 7} things of kind {row % 3} number {row}" for row in range(num_rows)]
    rests = {"rest": round(rules["cooldown"] * num_rows / k), "epoch": rules["even_rest"] * round(num_rows / k)}
    gain = {"symmetric": rules["information_gain"] == "symmetric", "greedy": preset == "paper_greedy"}
    decays = {"sampled": rules["decay_sampled"], "others": rules["decay_unsampled"]}
    known = texts if rules["prior"] == "prompts" else None
    by_signal = rules["signal_aware_decay"]
    reference = Reference(num_rows, seed, texts=known, by_signal=by_signal, **rests, **gain, **decays)
    args = SimpleNamespace(**VADE_DEFAULTS | {"vade_preset": preset, "seed": seed, "num_generations": 8})

    def new_sampler():
        return make_sampler(args, num_rows, num_groups=k, prompts=texts)

    sampler, rng = new_sampler(), np.random.default_rng(seed)
    solved = rng.beta(0.7, 0.7, num_rows)
    for step in range(60):
        if step % 20 == 13:  # a resume
            state, sampler = copy.deepcopy(sampler.state_dict()), new_sampler()
            sampler.load_state_dict(state)
        exclude = rng.choice(num_rows, size=step % 3 * 4, replace=False)
        rows = sampler.draw(k, exclude=exclude).sample_index
        assert rows.tolist() == reference.draw(k, exclude).tolist(), step
        trials = rng.integers(6, 9, k)
        trials[: step % 4 == 3] = 0  # a group without a score
        right = rng.binomial(trials, solved[rows])
        sampler.observe(rows, right, trials)
        reference.observe(rows, right, trials)
        solved = np.clip(solved + 0.002, 0, 1)
    for ours, theirs in zip(sampler.posterior.counts(), reference.counts(), strict=True):
        assert ours.tobytes() == theirs.tobytes()


def test_the_documentation_shows_the_reference():
    code = Path(page.__file__).read_text().split('"""\n\n', 1)[1]
    shown = (Path(__file__).parents[2] / "docs/concepts/how_it_works.md").read_text()
    assert f"```python\n{code}```" in shown
