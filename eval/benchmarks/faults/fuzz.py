"""Random damage to every file that trl_vade reads back, and random values for every setting.

    python -m eval.benchmarks.faults.fuzz --tries 10000 --seed 0

Whatever is read either loads exactly or is refused with an exception of trl_vade's own. A try is lost when it raises
anything else, warns, takes more than `LIMIT` seconds, or gives a state that differs. Files are damaged in two ways:

    as they are      the digests tell; what loads must be what was saved
    signed again     a file with right digests and wrong content, as another program could leave; what loads must be
                     what the file says, read here by other code, and the sampler must then work

Every try has a random generator of its own, so `dice(seed, case, number)` repeats a single one.
"""

import argparse
import contextlib
import copy
import os
import random
import re
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from trl_vade.errors import ConfigurationError

from .fuzz_files import fuzz_generation_batches, fuzz_selection_logs, fuzz_snapshots
from .fuzzing import check, fuzz
from .mutations import canonical
from .result import Result

# -------------------------------------------------------------------------------------------------------- settings


class Awkward:
    """An object that cannot even be compared or printed."""

    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        raise RuntimeError("not comparable")

    def __repr__(self) -> str:
        raise RuntimeError("not printable")


def fuzz_config(tries: int, seed: int) -> Result:
    """Give random values to some of the settings, by the three ways in which a trainer can get them."""
    from trl import GRPOConfig

    from trl_vade.trainer.grpo_config import VADE_DEFAULTS, VADEGRPOConfig, with_vade_defaults

    base = {"output_dir": "out", "use_cpu": True, "bf16": False, "report_to": "none"}
    plain, ours = GRPOConfig(**base), VADEGRPOConfig(**base)

    def attempt(dice: random.Random, story: list[str]) -> str:
        names = dice.sample(list(VADE_DEFAULTS), dice.choice([1, 1, 1, 2, 3, 9]))
        values = {name: _setting(dice, name) for name in names}
        way = dice.choice(["constructor", "plain GRPOConfig", "changed later"])
        story.extend([way, *(f"{name}: {type(value).__name__}" for name, value in values.items())])
        read, threshold = dict(values), values.get("vade_success_threshold")
        if way == "constructor" and isinstance(threshold, str):  # as on the command line
            with contextlib.suppress(ValueError):
                words = {"none": None, "null": None, "auto": "auto", "spread": "spread"}
                word = threshold.lower()
                read["vade_success_threshold"] = words[word] if word in words else float(threshold)
        everything = {**VADE_DEFAULTS, **read}
        fine = all(_allowed(name, value) for name, value in everything.items()) and _go_together(everything)
        try:
            if way == "constructor":
                config = VADEGRPOConfig(**base, **values)
            else:
                config = copy.copy(ours if way == "changed later" else plain)
                for name, value in values.items():
                    setattr(config, name, value)
                config = with_vade_defaults(config)
        except ConfigurationError as error:
            check(not fine, f"refused, although the documentation allows it: {error}")
            check(any(name in str(error) for name in names), "no setting is named")
            return "ConfigurationError"
        check(fine, "accepted, although the documentation does not allow it")
        for name, value in everything.items():
            kept = getattr(config, name)
            parsed = name in read and read[name] is not values[name]
            same = kept is value or getattr(kept, "given", None) is value
            check(same or (parsed and canonical(kept) == canonical(value)), f"{name} is not kept as given")
        return "accepted and kept"

    return fuzz("settings", tries, seed, attempt)


NAMED = ("thompson", "greedy", "uniform")
CHOICES = {
    "vade_preset": ["balanced", "frontier", "paper", "paper_symmetric", "paper_greedy", "paper_last_update"],
    "vade_sampler": [*NAMED, "eval.benchmarks.learning.peers:MoPPSSampler"],
    "vade_information_gain": ["asymmetric", "symmetric", None],
    "vade_prior": ["flat", "prompts", None],
    "vade_variant_match": ["posterior", "difficulty"],
    "vade_advantage": ["local", "global", "local+global", "diva"],
    "vade_posterior_init": ["prior", "rollout", None],  # or a source
    "vade_on_mismatch": ["error", "join", "reset"],
    "vade_console": ["auto", "panel", "lines", "stock"],
    "vade_group_images": ["none", "step", "batch", None],
    "vade_down_sampling": ["none", "lossless", "live", "rows", "d3s", None],
}
OF_VARIANTS = {
    "vade_variant_groups": 1,
    "vade_variant_match": "posterior",
    "vade_advantage": "local",
    "vade_difficulty_weight": 0.1,
    "vade_max_reward": 1.0,
}
PROBLEM = (1,)  # groups of a problem that divide the one group of the default generation batch
SWITCHES = (
    *("vade_outage_guard", "vade_dynamic_sampling", "vade_overwrite_output_dir", "vade_report"),
    *("vade_images_once", "vade_pixels_on_device"),
)
KEPT = {"vade_keep_rollouts": ("rows", "d3s"), "vade_keep_tokens": ("d3s",)}
BOUNDS = [None, [0, 1], (0.5, 1.0), [1, 0], [0, 1, 2], [0.0, float("nan")], [-1e39, 1]]


def _allowed(name: str, value: Any) -> bool:
    """Say whether docs/reference/settings.md allows `value`."""
    if name == "vade_posterior_init":
        of_a_run = isinstance(value, str) and ("/" in value or os.path.exists(value))
        return of_a_run or ((value is None or isinstance(value, str)) and value in CHOICES[name])
    if name == "vade_sampler" and callable(value):  # it may make a sampler
        return True
    if name in CHOICES:
        return (value is None or isinstance(value, str)) and value in CHOICES[name]
    if name in SWITCHES:
        return value is True or value is False
    if name in ("vade_signal_aware_decay", "vade_even_rest", "vade_tower_once"):
        return value is True or value is False or value is None
    if name in ("vade_success_reward", "vade_stratify_by", "vade_variants"):
        return value is None or (isinstance(value, str) and value != "")
    if name == "vade_posterior_hub_id":
        return value is None or (isinstance(value, str) and _names_a_repository(value))
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if name == "vade_variant_groups":
        return number and isinstance(value, int) and 0 <= value <= 100
    if name in ("vade_difficulty_weight", "vade_max_reward"):
        return number and 0 <= value <= 1e6 and (value > 0 or name == "vade_difficulty_weight")
    if name == "vade_pixels_ahead":
        return number and 0 <= value <= 4096
    if name == "vade_max_refills":
        return number and isinstance(value, int) and 1 <= value <= 1000
    if name == "vade_max_prompt_length":
        return value is None or (number and isinstance(value, int) and 1 <= value <= 10**9)
    if name == "vade_success_threshold":
        return value is None or _is_reward(value) or (isinstance(value, str) and value in ("auto", "spread"))
    if name == "vade_success_bounds":
        pair = isinstance(value, list | tuple) and len(value) == 2 and all(map(_is_reward, value))
        return value is None or (pair and value[0] < value[1])
    if name in KEPT:
        shares = value if isinstance(value, list | tuple) else [value]
        return value is None or (
            len(shares) in (1, 2) and all(_is_reward(share) and 0 < share <= 1 for share in shares)
        )
    if name == "vade_strata_shares":
        texts = type(value) is dict and all(isinstance(key, str) for key in value)
        return value is None or (texts and all(_is_reward(share) and 0 < share <= 1 for share in value.values()))
    if name == "vade_warm_start_discount":
        return number and 0 < value <= 1
    if name == "vade_cooldown":
        return value is None or (number and 0 <= value < 1)
    if name in ("vade_decay_sampled", "vade_decay_unsampled"):
        return value is None or (number and 0 <= value <= 1)
    return number and 0 <= value <= 1


def _is_reward(value: Any) -> bool:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return number and abs(value) <= float(np.finfo(np.float32).max)


def _names_a_repository(value: str) -> bool:
    """What the Hub takes: letters, digits and -_. in at most two parts of which neither begins or ends with - or ."""
    parts = value.split("/")
    sound = all(len(part) <= 96 and re.fullmatch(r"\w|\w[\w.-]*\w", part, re.ASCII) for part in parts)
    return sound and len(parts) <= 2 and not re.search(r"--|\.\.|\.git$", value)


def _go_together(settings: dict[str, Any]) -> bool:
    """Say whether the settings that need or exclude others do so, as docs/reference/settings.md says."""
    sampler = settings["vade_sampler"]
    return (
        not (sampler == "uniform" and settings["vade_posterior_init"] == "rollout")
        and (settings["vade_posterior_init"] in CHOICES["vade_posterior_init"] or sampler in ("thompson", "greedy"))
        and (settings["vade_success_bounds"] is None or settings["vade_success_threshold"] in (None, "auto"))
        and (settings["vade_stratify_by"] is None or sampler in ("thompson", "greedy"))
        and (settings["vade_strata_shares"] is None or settings["vade_stratify_by"] is not None)
        and all(settings[name] is None or settings["vade_down_sampling"] in modes for name, modes in KEPT.items())
        and _images_go_together(settings)
        and _variants_go_together(settings)
    )


def _images_go_together(settings: dict[str, Any]) -> bool:
    """Say whether the settings of images do so."""
    grouped = settings["vade_group_images"] in ("step", "batch")
    of_once = (settings["vade_tower_once"], grouped, settings["vade_pixels_on_device"], settings["vade_pixels_ahead"])
    return (settings["vade_images_once"] or not any(of_once)) and not (
        grouped and settings["vade_down_sampling"] == "d3s"
    )


def _variants_go_together(settings: dict[str, Any]) -> bool:
    """Say whether the settings of variants do so, with a generation batch of one group."""
    changed = {name for name, default in OF_VARIANTS.items() if settings[name] != default}
    if settings["vade_variants"] is None:
        return not changed
    if settings["vade_advantage"] != "diva" and changed & {"vade_difficulty_weight", "vade_max_reward"}:
        return False
    groups = settings["vade_variant_groups"]
    if not groups:
        return not changed & {"vade_variant_match", "vade_advantage"}
    return groups + 1 in PROBLEM and not settings["vade_dynamic_sampling"] and settings["vade_sampler"] in NAMED


def _setting(dice: random.Random, name: str) -> Any:
    likely = (
        BOUNDS
        if name in ("vade_success_bounds", *KEPT)
        else CHOICES.get(name, [0, 1, 0.0, 0.2, 0.5, 1.0, "accuracy", None, True, False, "none", "0.5", "NULL", "1e3"])
    )
    if dice.random() < 0.4:
        return dice.choice(likely)
    return dice.choice([*STRANGE_SETTINGS, dice.uniform(-2, 2), dice.randrange(-3, 3), chr(dice.randrange(1, 9999))])


STRANGE_SETTINGS: list[Any] = [
    *(None, True, False, 0, 1, -1, 2, 10**30, 10**400, -(10**400), 10**5000, 0.0, -0.0, 1.0, 1.5, 5e-324, 1e39, 3e38),
    *(float("nan"), float("inf"), float("-inf"), 1j, "", " ", "1", "0.5", "nan", "inf", "none", "None", "1e400"),
    *("THOMPSON", "thompson ", "\0", "\ud800", "x" * 100_000, "9" * 5000, "prior", "error", "true", b"thompson", b""),
    *([], [0.5], (0.5,), ["thompson"], {}, {"vade_sampler": "uniform"}, {0.5}, range(3), object(), object, len),
    *("user/repo", "user/repo@main", "repo", "a/b/c", "/", ".", "a.git", "-a", "a--b", "user/a..b", "x" * 97, "~"),
    *(Awkward(), [Awkward()], np.float64(0.5), np.float64("nan"), np.float32(0.5), np.int64(1), np.bool_(True)),
    *(np.zeros(0), np.array(0.5), np.array(["thompson"]), np.array("thompson"), np.str_("thompson"), Path("thompson")),
]


# ---------------------------------------------------------------------------------------------------------- all


def fuzz_everything(tries: int, seed: int, directory: Path) -> list[Result]:
    """Divide `tries` among the four: most to the snapshots."""
    batches, logs, settings = tries // 5, tries // 5, tries // 5
    return [
        fuzz_snapshots(tries - batches - logs - settings, seed, directory / "snapshots"),
        fuzz_generation_batches(batches, seed, directory / "batches"),
        fuzz_selection_logs(logs, seed, directory / "logs"),
        fuzz_config(settings, seed),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tries", type=int, default=10_000, help="mutations in all")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as directory:
        results = fuzz_everything(arguments.tries, arguments.seed, Path(directory))
    for result in results:
        print(f"{result.case}: {result.survived} of {result.tries} survived, {result.lost} lost ({result.note})")
    print(f"{time.monotonic() - start:.1f} s")
    raise SystemExit(any(result.lost for result in results))


if __name__ == "__main__":
    main()
