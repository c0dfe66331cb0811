"""`VADEGRPOConfig`: defaults and presets, what is refused with which way out, how a command line is read."""

import re
import warnings
from dataclasses import dataclass, fields
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from trl import GRPOConfig, TrlParser

from tests.support.own_samplers import OWN
from tests.support.refusals import refused
from trl_vade import VADEGRPOConfig
from trl_vade.errors import ConfigurationError
from trl_vade.samplers.snapshot import state_digest
from trl_vade.samplers.thompson import ThompsonSampler
from trl_vade.trainer.config_checks import check_own_settings, schedule
from trl_vade.trainer.grpo_config import VADE_DEFAULTS, with_vade_defaults
from trl_vade.trainer.presets import POSTERIOR_INITS, PRESETS, setting, warm_start_source
from trl_vade.trainer.selection_choice import make_sampler


def parse(*flags):
    """The configuration that `script.py --output_dir out --bf16 False --use_cpu <flags>` would get."""
    base = ["--output_dir", "out", "--bf16", "False", "--use_cpu"]
    (config,) = TrlParser((VADEGRPOConfig,)).parse_args_and_config([*base, *flags])
    return config


# ------------------------------------------------------------------------------------------------------- defaults


def test_the_defaults_and_the_presets_are_what_their_names_promise(make_args):
    parts = ("sampler", "information_gain", "signal_aware_decay", "cooldown", "even_rest", "prior", "posterior_init")
    found = {name: tuple(setting(make_args(vade_preset=name), part) for part in parts) for name in PRESETS}
    assert found == {
        "balanced": ("thompson", "asymmetric", True, 0.5, True, "prompts", "prior"),
        "frontier": ("thompson", "asymmetric", True, 0.2, False, "flat", "prior"),
        "paper": ("thompson", "asymmetric", False, 0.0, False, "flat", "rollout"),
        "paper_symmetric": ("thompson", "symmetric", False, 0.0, False, "flat", "rollout"),
        "paper_greedy": ("greedy", "asymmetric", False, 0.0, False, "flat", "rollout"),
        "paper_last_update": ("thompson", "asymmetric", False, 0.0, False, "flat", "rollout"),
    }
    decays = {name: (preset["decay_sampled"], preset["decay_unsampled"]) for name, preset in PRESETS.items()}
    assert decays == dict.fromkeys(PRESETS, (0.2, 0.999)) | {"paper_last_update": (0.0, 1.0)}
    assert (make_args().vade_preset, make_args().vade_success_threshold) == ("balanced", "auto")


def test_one_word_gives_the_papers_rule_and_its_initial_pass_is_for_its_samplers(make_args):
    args = make_args(vade_preset="paper")
    paper = ThompsonSampler(50, seed=args.seed, signal_aware_decay=False)
    assert state_digest(make_sampler(args, 50, num_groups=5)) == state_digest(paper)
    for sampler in ("uniform", OWN):
        assert setting(make_args(vade_preset="paper", vade_sampler=sampler), "posterior_init") == "prior"


def test_a_setting_of_ones_own_goes_before_the_presets_which_can_be_set_and_is_looked_at_later(make_args):
    args = make_args(vade_cooldown=0.3)
    args.vade_preset = "paper"
    with_vade_defaults(args)
    assert [setting(args, name) for name in ("cooldown", "signal_aware_decay")] == [0.3, False]
    args.vade_cooldown = 2
    with refused(ConfigurationError, ["vade_cooldown=2"]):
        with_vade_defaults(args)


def test_only_fields_that_begin_with_vade_are_new_and_one_of_the_parents_changed(make_args):
    parents = {field.name for field in fields(GRPOConfig)}
    new = {field.name for field in fields(VADEGRPOConfig)} - parents
    assert [name for name in new if not name.startswith("vade_")] == []
    ours, stock = make_args(), make_args(GRPOConfig)
    changed = [name for name in parents - {"logging_dir"} if getattr(ours, name) != getattr(stock, name)]
    assert changed == ["num_completions_to_print"]  # TRL prints all


def test_each_setting_has_its_docstring_as_help_says_what_none_means_and_is_in_a_recipe_an_example_or_a_page():
    section = VADEGRPOConfig.__doc__.partition("    Args:\n")[2].partition("\n\n")[0]
    documented = dict(re.findall(r"^ {8}(\w+): (.+)", section, flags=re.MULTILINE))
    assert [*documented] == list(VADE_DEFAULTS)
    root = Path(__file__).parents[2]
    places = [*root.glob("trl_vade/recipes/*.yaml"), *root.glob("examples/**/*.py")]
    places += [*root.glob("docs/guides/*.md"), *root.glob("docs/concepts/*.md")]
    text = " ".join(path.read_text(encoding="utf-8") for path in places)
    wrong = []
    for field in fields(VADEGRPOConfig):
        if field.name in VADE_DEFAULTS:
            words = field.metadata["help"]
            told = words.startswith(documented[field.name]) and (field.default is not None or "`None`" in words)
            wrong += [] if told and re.search(rf"\b{field.name}\b", text) else [field.name]
    assert wrong == []


# ------------------------------------------------------------------------------------------------------- refusals


NAN, INFINITY = float("nan"), float("inf")
FOREIGN = (10**5000, object(), b"1", {"a": 1}, np.zeros(2), "x" * 100_000)
NO_SWITCH, NO_NAME, NO_SHARE = ["false", 0, 1, None, np.bool_(True)], ["", 3, ["task"], len], ["0.2", True, NAN, -0.1]
REFUSED = {
    "vade_preset": ["paranoid", None],
    "vade_sampler": ["thomson", 3, "a b:C", "a:", []],
    "vade_cooldown": [*NO_SHARE, 1, 1.0, 3, INFINITY, np.float32(0.5)],
    "vade_stratify_by": NO_NAME,
    "vade_variants": NO_NAME,
    "vade_variant_groups": [-1, 101, 1.0, True, None],
    "vade_variant_match": ["best", None],
    "vade_advantage": ["none", None],
    "vade_posterior_init": ["warm", "rolout", "", "Prior", "\0"],
    "vade_warm_start_discount": [*NO_SHARE, 0, 0.0, 1.1, None],
    "vade_dynamic_sampling": NO_SWITCH,
    "vade_down_sampling": ["some"],
    "vade_replay": [-1, 1001, 1.5, True, None],
    "vade_keep_rollouts": [0, 1.5, [], [0.1, 0.2, 0.3], [0.5, 0], "0.5"],
    "vade_keep_tokens": [0, [0.5, True]],
    "vade_images_once": NO_SWITCH,
    "vade_success_reward": NO_NAME,
    "vade_success_threshold": [INFINITY, NAN, 1e39, -1e39, 10**400, True, [0.5], np.float32(0.5), "half", "1e39"],
    "vade_max_prompt_length": [0, 2.0, 10**10],
    "vade_posterior_hub_id": ["", 3, ["user/name"]],
}
TEXTS = {name for name, values in REFUSED.items() if values is NO_NAME} | {"vade_posterior_hub_id"}
ACCEPTED = {
    "vade_cooldown": [None, 0, 0.99],
    "vade_warm_start_discount": [0.01, 1],
    "vade_success_threshold": [None, "auto", "spread", -1, 0.5],
    "vade_max_prompt_length": [None, 1, 10**9],
    "vade_posterior_hub_id": [None, "user/name", "name", "Some-User/some_name.v2"],
    "vade_down_sampling": [None, "none", "live"],
}


def test_a_value_that_breaks_the_rule_of_its_field_is_refused_by_name_and_in_a_short_message():
    assert REFUSED.keys() == VADE_DEFAULTS.keys()
    wrong = []
    for name, values in REFUSED.items():
        for value in (*values, *FOREIGN[: -1 if name in TEXTS else None]):
            try:
                check_own_settings(SimpleNamespace(**VADE_DEFAULTS | {name: value}), VADEGRPOConfig)
            except ConfigurationError as error:
                if name in str(error) and len(str(error)) < 600:
                    continue
            wrong.append((name, value))
    assert wrong == []


def test_the_values_of_a_range_with_its_ends_are_accepted(make_args):
    for name, values in ACCEPTED.items():
        assert [getattr(make_args(**{name: value}), name) for value in values] == values
    args = make_args(vade_down_sampling="d3s", vade_keep_tokens=0.5, vade_keep_rollouts=[0.25, 1])
    assert (schedule(args, "vade_keep_tokens"), schedule(args, "vade_keep_rollouts")) == ((0.5, 0.5), (0.25, 1))


REFUSED_TOGETHER = [
    ({"vade_keep_rollouts": 0.5}, "vade_down_sampling to 'rows' or 'd3s'"),
    ({"vade_keep_tokens": 0.5, "vade_down_sampling": "rows"}, "vade_down_sampling to 'd3s'"),
    ({"vade_advantage": "diva"}, "vade_variants"),
    ({"vade_variant_groups": 2}, "vade_variants"),
    ({"vade_variant_match": "difficulty"}, "vade_variants"),
    ({"vade_posterior_init": "rollout", "vade_sampler": "uniform"}, "vade_posterior_init='prior'"),
    *(({"vade_posterior_init": "user/repo", "vade_sampler": kind}, "'prior'") for kind in ("uniform", OWN)),
    *(({"vade_stratify_by": "task", "vade_sampler": kind}, "None") for kind in ("uniform", OWN)),
    # Measured with vLLM 0.31: every group was one completion, repeated.
    ({"generation_kwargs": {"seed": 7}, "use_vllm": True, "vllm_mode": "colocate"}, "`seed`"),
]
ACCEPTED_TOGETHER = [
    *(
        {"vade_sampler": kind, "vade_posterior_init": "user/repo", "vade_stratify_by": "task"}
        for kind in ("thompson", "greedy")
    ),
    {"generation_kwargs": {"seed": 7}, "use_vllm": True, "vllm_mode": "server"},
    {"generation_kwargs": {"top_k": 7}, "use_vllm": True, "vllm_mode": "colocate"},
]


def test_settings_that_cannot_go_together_are_refused_with_what_to_set(make_args):
    wrong = []
    for settings, offer in REFUSED_TOGETHER:
        try:
            make_args(**settings)
        except ConfigurationError as error:
            if next(iter(settings)) in str(error) and offer in str(error):
                continue
        wrong.append(settings)
    assert wrong == []
    for settings in ACCEPTED_TOGETHER:
        make_args(**settings)


def test_a_source_is_a_repository_or_something_that_is_here(make_args, tmp_path, monkeypatch):
    (tmp_path / "first-run").mkdir()
    monkeypatch.chdir(tmp_path)
    for source in ("user/repo", "user/repo@step-000100", "/not/there", "first-run", str(tmp_path), "."):
        args = make_args(vade_posterior_init=source, vade_sampler="greedy")
        assert (args.vade_posterior_init, warm_start_source(args)) == (source, source)
    assert [warm_start_source(make_args(vade_posterior_init=word)) for word in POSTERIOR_INITS] == [None, None]


def test_a_token_among_the_arguments_is_refused_and_not_repeated(make_args):
    with refused(ConfigurationError, ["hub_token", "training_args.bin"], ["HF_TOKEN", "`hf auth login`"]) as raised:
        make_args(hub_token="hf_s3cret")
    assert "s3cret" not in str(raised.value)


# --------------------------------------------------------------------------------- command line, recipe, resuming


def test_settings_of_each_type_are_read_from_flags(make_args):
    parsed, made = parse(), make_args()
    assert [name for name in VADE_DEFAULTS if getattr(parsed, name) != getattr(made, name)] == []
    wanted = {"sampler": "greedy", "cooldown": 0, "success_reward": "accuracy", "max_prompt_length": 4}
    wanted |= {"images_once": False, "down_sampling": "rows"}
    words = [word for name, value in wanted.items() for word in (f"--vade_{name}", str(value).lower())]
    config = parse(*words, "--vade_dynamic_sampling", "--vade_keep_rollouts", "0.25", "1")
    wanted |= {"dynamic_sampling": True, "keep_rollouts": [0.25, 1.0]}
    assert {name: getattr(config, f"vade_{name}") for name in wanted} == wanted


def test_the_threshold_is_read_from_a_flag():
    wanted = {**dict.fromkeys(("none", "None", "null")), "0.7": 0.7, "1": 1.0, "-1e-3": -0.001, "Spread": "spread"}
    found = {text: parse(f"--vade_success_threshold={text}").vade_success_threshold for text in wanted}
    assert found == wanted
    assert type(found["1"]) is float


# --------------------------------------------------------------------------------------------- a plain GRPOConfig


@dataclass
class MyConfig(GRPOConfig):
    my_field: str = "mine"
    vade_replay: int = 0


@pytest.mark.parametrize("kind", [GRPOConfig, MyConfig])
def test_another_config_gets_the_defaults_and_is_otherwise_as_it_was(make_args, kind):
    args = make_args(kind)
    before = dict(vars(args))
    ours = with_vade_defaults(args)
    assert ours is args
    assert type(ours) is kind
    assert vars(ours) == VADE_DEFAULTS | before
    assert (setting(ours, "sampler"), setting(ours, "decay_sampled")) == ("thompson", 0.2)


@pytest.mark.skipif(
    not hasattr(GRPOConfig, "activation_checkpointing"), reason="transformers before 5.23 has one name"
)
def test_trls_default_of_checkpointing_activations_warns_of_no_name_that_a_user_wrote(tmp_path):
    plain = {"output_dir": str(tmp_path), "use_cpu": True, "bf16": False}
    with warnings.catch_warnings():
        warnings.simplefilter("error", FutureWarning)
        assert VADEGRPOConfig(**plain).gradient_checkpointing is True
        assert VADEGRPOConfig(**plain, activation_checkpointing=False).gradient_checkpointing is False
    with pytest.warns(FutureWarning, match="activation_checkpointing"):
        assert VADEGRPOConfig(**plain, gradient_checkpointing=False).activation_checkpointing is False
