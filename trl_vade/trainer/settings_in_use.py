"""Which settings a run reads. Recipes share settings between samplers, so the others are named and not refused."""

from typing import Any

from accelerate.logging import get_logger

from trl_vade.errors import abbreviated

from .grpo_config import VADE_DEFAULTS
from .presets import setting, warm_start_source

logger = get_logger(__name__)

_OF_POSTERIORS = ("preset", "signal_aware_decay", "decay_sampled", "decay_unsampled")
_OF_THOMPSON = (
    *(*_OF_POSTERIORS, "information_gain", "cooldown", "even_rest", "prior"),
    *("stratify_by", "strata_shares"),
    *("posterior_init", "warm_start_discount", "warm_start_min_match"),
)
READ_BY: dict[str, tuple[str, ...]] = {
    "thompson": _OF_THOMPSON,
    "greedy": _OF_THOMPSON,
    "uniform": _OF_POSTERIORS,  # it keeps a posterior, and does not choose by it
}
"""By sampler, the settings that it reads. A sampler of a user's own reads those of `"uniform"`, for its posterior.
Settings in no line are read with every sampler."""

_OF_SAMPLERS = {name for names in READ_BY.values() for name in names}
_OF_VARIANTS = ("variant_groups", "variant_match", "advantage")


def is_read(args: Any, name: str) -> bool:
    """Return whether the run reads the setting `vade_<name>`."""
    return reason_unread(args, name) is None


def reason_unread(args: Any, name: str) -> str | None:
    """Return what keeps the run from reading the setting `vade_<name>`, or None if it reads it."""
    sampler = setting(args, "sampler")
    if name in _OF_SAMPLERS and name not in READ_BY.get(sampler, _OF_POSTERIORS):
        return f"with vade_sampler={sampler!r}"
    if name.startswith("warm_start_") and warm_start_source(args) is None:
        return "without the posterior of another run in vade_posterior_init"
    if name == "max_refills" and not args.vade_dynamic_sampling:
        return "without vade_dynamic_sampling"
    if name in _OF_VARIANTS and args.vade_variants is None:
        return "without vade_variants"
    return None


def warn_of_unread(args: Any) -> None:
    """Log which settings were changed and have no effect in this run."""
    unread: dict[str, list[str]] = {}
    for name, default in VADE_DEFAULTS.items():
        value, reason = getattr(args, name), reason_unread(args, name.removeprefix("vade_"))
        if reason is not None and value != default:
            unread.setdefault(reason, []).append(f"{name}={abbreviated(value)}")
    if unread:
        parts = [f"{', '.join(names)} ({reason})" for reason, names in unread.items()]
        logger.warning(f"No effect: {'; '.join(parts)}. The run goes on without them.")
