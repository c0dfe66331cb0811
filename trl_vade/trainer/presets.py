"""The presets, and readers of VADE's settings that take the preset's value where a setting is None."""

from typing import Any

from trl_vade.samplers.own import SAMPLERS

COLUMN = "column:"  # begins the value of `vade_posterior_init` that names a column of pass rates
POSTERIOR_INITS = ("prior", "rollout")  # any other value is a source, see `warm_start_source`
_PAPER: dict[str, Any] = {
    **{"information_gain": "asymmetric", "signal_aware_decay": False, "cooldown": 0.0},
    **{"decay_sampled": 0.2, "decay_unsampled": 0.999, "posterior_init": "rollout"},
    **{"sampler": "thompson", "prior": "flat", "even_rest": False},
}
_FRONTIER = _PAPER | {"signal_aware_decay": True, "cooldown": 0.2, "posterior_init": "prior"}
PRESETS: dict[str, dict[str, Any]] = {
    "balanced": _FRONTIER | {"prior": "prompts", "even_rest": True, "cooldown": 0.5},
    "frontier": _FRONTIER,
    "paper": _PAPER,
    "paper_symmetric": _PAPER | {"information_gain": "symmetric"},
    "paper_greedy": _PAPER | {"sampler": "greedy"},
    "paper_last_update": _PAPER | {"decay_sampled": 0.0, "decay_unsampled": 1.0},
}
"""By preset, the value of each setting `vade_<name>` that is None, and six rules that are no settings.

* `information_gain`: what a row with pass rate p is expected to teach, see `samplers.information`.
* `decay_sampled`, `decay_unsampled`: shares of its counts that a chosen row and any other one keep in one generation
  batch (lambda_1 and lambda_2 of the paper's eqs. 5 and 6).
* `signal_aware_decay`: whether a chosen row forgets by `decay_sampled` only if its group had a gradient. Any other
  group trains nothing, so its row forgets by `decay_unsampled` and the evidence adds up.
* `even_rest`: whether a chosen row rests for the share of an epoch that even draws would give of groups with a
  gradient, at least for `cooldown`.
* `prior`: the belief about a row that was not chosen yet. "flat" is any pass rate, "prompts" what the words of the
  prompts tell.
"""


def setting(args: Any, name: str) -> Any:
    """Return the setting `vade_<name>` of `args`, or the value of the preset where it is None or no setting."""
    value = getattr(args, f"vade_{name}", None)
    if value is None and name != "preset":
        value = PRESETS[args.vade_preset].get(name)
        if name == "posterior_init" and setting(args, "sampler") not in ("thompson", "greedy"):
            return "prior"  # no other sampler is one of the paper's
    return value


def warm_start_source(args: Any) -> str | None:
    """Return the Hub id, folder or column in `vade_posterior_init`, or None if it is one of `POSTERIOR_INITS`."""
    value = setting(args, "posterior_init")
    return None if value in POSTERIOR_INITS else value


def column_of(args: Any) -> str | None:
    """Return the column in `vade_posterior_init="column:NAME"` as `data.columns.pass_rates` takes it, or None."""
    value = str(setting(args, "posterior_init"))
    return value.removeprefix(COLUMN) if value.startswith(COLUMN) else None


def is_own(args: Any) -> bool:
    """Return whether the sampler is a user's own."""
    return setting(args, "sampler") not in SAMPLERS


def is_adaptive(args: Any) -> bool:
    """Return whether the sampler chooses rows by their posterior. Only `"uniform"` does not."""
    return bool(setting(args, "sampler") != "uniform")
