"""Rules and evidence of a saved sampler: a resumed run keeps the evidence and follows its own rules.

Rules are settings such as the gain, the cooldown, shares and decays. Evidence are the counts at the saved step, the
visits, the last choices and the random stream.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from trl_vade.checks import MOST_TRIALS

from .base import PosteriorSampler, without_gone
from .posterior import posterior_from


def under_rules_of(
    sampler: PosteriorSampler, state: Mapping[str, Any]
) -> tuple[Mapping[str, Any], dict[str, tuple[Any, Any]]]:
    """Return a saved state that `sampler` can load, and the rules that differ: theirs and ours by name.

    A state of another kind of sampler is returned as it is, and so are settings in `bound`.

    Raises:
        SnapshotCorruptError: no run can have saved these counts.
    """
    settings, posterior = without_gone(state.get("settings")), state.get("posterior")
    if state.get("kind") != sampler.kind or not isinstance(settings, Mapping) or not isinstance(posterior, Mapping):
        return state, {}
    bound = {name: value for name, value in settings.items() if name in sampler.bound}
    rules = {name: value for name, value in sampler.state_dict()["settings"].items() if name not in sampler.bound}
    decays = sampler.posterior.decays
    theirs, ours = {**posterior, **settings}, {**decays, **rules, **bound}
    differing = [name for name in sorted({*settings, *ours}) if theirs.get(name) != ours.get(name)]
    state = {**state, "settings": rules | bound, "posterior": _under_decays(posterior, decays)}
    return state, {name: (theirs.get(name), ours.get(name)) for name in differing}


def _under_decays(state: Mapping[str, Any], decays: Mapping[str, Any]) -> dict[str, Any]:
    """Return the state of a posterior with other decays and the same counts at its step.

    Counts are stored as of a row's last update, so another lambda_2 asks for others there.
    """
    state, lambda_2 = {**state}, decays["decay_unsampled"]
    if state.get("decay_unsampled", lambda_2) != lambda_2:
        saved = posterior_from(state)
        kept = np.power(lambda_2, saved.step - state["last_update"])
        most = MOST_TRIALS * state["visits"]  # reached only by counts that the new lambda_2 makes vanish at once
        for name, counts in zip(("alpha", "beta"), saved.counts(state["sample_index"]), strict=True):
            stored = np.divide(counts, kept, out=np.zeros_like(kept), where=kept > 0.0)
            state[name] = np.minimum(stored, most).astype(state[name].dtype)
    return {**state, **decays}
