"""The package's sampler against the page of `reference.py`: the same rows, draw by draw."""

import copy
from pathlib import Path

import numpy as np
import pytest

from tests.samplers import reference as page
from tests.samplers.reference import Reference
from trl_vade.samplers import ThompsonSampler
from trl_vade.samplers.priors import prompt_words
from trl_vade.trainer.presets import PRESETS
from trl_vade.trainer.selection_choice import cooldown_steps

PRESET_NAMES = [name for name in PRESETS if name != "paper_greedy"]


@pytest.mark.parametrize("preset", PRESET_NAMES)
@pytest.mark.parametrize("num_rows", [40, 200, 800])
def test_the_package_draws_the_rows_of_the_reference(preset, num_rows):
    rules, k, seed = PRESETS[preset], 8, num_rows
    texts = [f"count {row % 7} things of kind {row % 3} number {row}" for row in range(num_rows)]
    rest = cooldown_steps(rules["cooldown"], num_rows, k)
    epoch = cooldown_steps(1.0, num_rows, k) if rules["even_rest"] else 0
    by_words = rules["prior"] == "prompts"
    decays = {"sampled": rules["decay_sampled"], "others": rules["decay_unsampled"]}
    symmetric = rules["information_gain"] == "symmetric"
    reference = Reference(
        num_rows,
        seed,
        symmetric=symmetric,
        by_signal=rules["signal_aware_decay"],
        rest=rest,
        epoch=epoch,
        texts=texts if by_words else None,
        **decays,
    )

    def new_sampler():
        return ThompsonSampler(
            num_rows,
            seed=seed,
            gain=rules["information_gain"],
            decay_sampled=rules["decay_sampled"],
            decay_unsampled=rules["decay_unsampled"],
            signal_aware_decay=rules["signal_aware_decay"],
            cooldown=rest,
            even_rest=epoch,
            prior=rules["prior"],
            words=prompt_words(texts) if by_words else None,
        )

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
