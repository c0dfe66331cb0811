"""`VADEGRPOConfig`: defaults and presets, what is refused with which way out, how a command line is read."""

import itertools
import re
import warnings
from dataclasses import dataclass, fields
from typing import Literal, get_args, get_origin, get_type_hints

import numpy as np
import pytest
from trl import GRPOConfig, TrlParser

from tests.support.own_samplers import OWN
from tests.support.refusals import refused
from trl_vade import VADEGRPOConfig
from trl_vade.errors import ConfigurationError
from trl_vade.hub.posteriors.facts import POSTERIOR_INITS
from trl_vade.samplers.information import INFORMATION_GAINS
from trl_vade.samplers.snapshot import state_digest
from trl_vade.samplers.thompson import ThompsonSampler
from trl_vade.trainer.grpo_config import VADE_DEFAULTS, with_vade_defaults
from trl_vade.trainer.presets import ON_MISMATCH, PRESETS, is_adaptive, setting, warm_start_source
from trl_vade.trainer.selection_choice import make_sampler

CHOOSING = ("thompson", "greedy", OWN)
NOT_OF_A_PRESET = {
    "vade_success_bounds",
    *("vade_strata_shares", "vade_variants"),
    *("vade_stratify_by", "vade_success_reward", "vade_max_prompt_length"),
    *("vade_posterior_hub_id", "vade_down_sampling", "vade_keep_rollouts", "vade_keep_tokens"),
    *("vade_tower_once", "vade_group_images"),
}


def parse(*flags, config_class=VADEGRPOConfig):
    """The configuration that `script.py --output_dir out --bf16 False --use_cpu <flags>` would get."""
    (config,) = TrlParser((config_class,)).parse_args_and_config(
        ["--output_dir", "out", "--bf16", "False", "--use_cpu", *flags]
    )
    return config


# ------------------------------------------------------------------------------------------------------- defaults


def test_the_defaults_are_the_balanced_preset(make_args):
    args = make_args()
    assert (args.vade_preset, args.vade_sampler) == ("balanced", "thompson")
    assert setting(args, "information_gain") == "asymmetric"
    assert setting(args, "signal_aware_decay") is True
    assert (setting(args, "cooldown"), setting(args, "even_rest"), setting(args, "prior")) == (0.5, True, "prompts")
    assert setting(args, "decay_sampled") == 0.2  # lambda_1
    assert setting(args, "decay_unsampled") == 0.999  # lambda_2
    assert args.vade_stratify_by is None
    assert setting(args, "posterior_init") == "prior"
    assert (args.vade_warm_start_discount, args.vade_warm_start_min_match) == (0.2, 0.5)
    assert args.vade_posterior_hub_id is None
    assert (args.vade_dynamic_sampling, args.vade_max_refills) == (False, 10)
    assert args.vade_success_reward is None
    assert args.vade_success_threshold == "auto"
    assert args.vade_on_mismatch == "error"
    assert args.vade_outage_guard is True


def test_the_presets_are_what_their_names_promise(make_args):
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


@pytest.mark.parametrize("sampler", ["uniform", OWN])
def test_the_papers_initial_pass_is_for_the_papers_samplers(make_args, sampler):
    args = make_args(vade_preset="paper", vade_sampler=sampler)
    assert setting(args, "posterior_init") == "prior"


def test_one_word_gives_the_papers_rule(make_args):
    args = make_args(vade_preset="paper")
    made, paper = make_sampler(args, 50, num_groups=5), ThompsonSampler(50, seed=args.seed)
    assert state_digest(made) == state_digest(paper)


def test_a_setting_of_ones_own_goes_before_the_presets(make_args):
    args = make_args(vade_preset="paper", vade_cooldown=0.3)
    assert (setting(args, "cooldown"), setting(args, "information_gain")) == (0.3, "asymmetric")
    args = make_args(vade_signal_aware_decay=False, vade_information_gain="symmetric")
    assert (setting(args, "signal_aware_decay"), setting(args, "information_gain")) == (False, "symmetric")
    assert setting(args, "cooldown") == 0.5


def test_the_preset_can_be_set_after_the_configuration_was_made(make_args):
    args = make_args()
    args.vade_preset = "paper"
    assert setting(with_vade_defaults(args), "information_gain") == "asymmetric"


def test_a_preset_leaves_no_setting_open_and_names_no_other():
    left_open = {name for name, default in VADE_DEFAULTS.items() if default is None}
    for preset in PRESETS.values():
        assert {f"vade_{name}" for name in preset} == left_open - NOT_OF_A_PRESET


def test_only_fields_that_begin_with_vade_are_new_and_none_of_the_parents_changed(make_args):
    parents = {field.name for field in fields(GRPOConfig)}
    new = {field.name for field in fields(VADEGRPOConfig)} - parents
    assert len(new) == 40
    assert [name for name in new if not name.startswith("vade_")] == []
    ours, stock = make_args(), make_args(GRPOConfig)
    assert {name: getattr(ours, name) for name in parents - {"logging_dir"}} == {
        name: getattr(stock, name) for name in parents - {"logging_dir"}
    }


def test_the_docstrings_arguments_are_the_fields_and_their_texts_the_help_of_the_command_line():
    section = VADEGRPOConfig.__doc__.partition("    Args:\n")[2].partition("\n\n")[0]
    documented = re.findall(r"^ {8}(\w+): (.+)", section, flags=re.MULTILINE)
    assert [name for name, _ in documented] == list(VADE_DEFAULTS)
    helps = {field.name: field.metadata["help"] for field in fields(VADEGRPOConfig) if field.name in VADE_DEFAULTS}
    for name, first_line in documented:
        assert helps[name].startswith(first_line)
        assert helps[name].endswith(".")
        assert "\n" not in helps[name]


def test_every_setting_that_may_be_none_says_what_none_means():
    for field in fields(VADEGRPOConfig):
        if field.name in VADE_DEFAULTS and field.default is None:
            assert "`None`" in field.metadata["help"], field.name


def test_the_types_of_the_choices_name_all_that_the_checks_accept():
    accepted = {
        "preset": PRESETS,
        "information_gain": INFORMATION_GAINS,
        "on_mismatch": ON_MISMATCH,
    }
    hints = get_type_hints(VADEGRPOConfig)
    for name, values in accepted.items():
        hint = hints[f"vade_{name}"]
        choices = hint if get_origin(hint) is Literal else get_args(hint)[0]
        assert set(get_args(choices)) == set(values)


def test_the_help_of_the_command_line_can_be_printed(capsys):
    with pytest.raises(SystemExit) as leaving:
        TrlParser((VADEGRPOConfig,)).parse_args(["--help"])
    assert leaving.value.code == 0
    assert "vade_cooldown" in capsys.readouterr().out


# ------------------------------------------------------------------------------------------------------- refusals


NAN, INFINITY = float("nan"), float("inf")
NO_SWITCH = ["false", 0, 1, np.bool_(True)], ["True", "False"]
NO_NAME = ["", 3, ["task"]], ["None"]
REFUSED = {
    "vade_sampler": (
        ["thomson", None, 3, "a b:C", "a:", []],
        ["thompson", "greedy", "uniform", "package.module:Class"],
    ),
    "vade_information_gain": (["entropy"], ["asymmetric", "symmetric"]),
    "vade_preset": (["paranoid", None], [*PRESETS]),
    "vade_posterior_init": (["warm", "rolout", "", "Prior", "\0"], ["prior", "rollout", "'user/repo'"]),
    "vade_on_mismatch": (["ignore", ["join"]], ["error", "join", "reset"]),
    "vade_decay_sampled": (
        [-0.1, 1.001, 20, NAN, INFINITY, "0.2", True, np.float32(0.5)],
        ["[0, 1]", "0.2", "0.999"],
    ),
    "vade_decay_unsampled": ([-0.1, 1.001], ["[0, 1]", "0.2", "0.999"]),
    "vade_outage_guard": NO_SWITCH,
    "vade_dynamic_sampling": NO_SWITCH,
    "vade_overwrite_output_dir": NO_SWITCH,
    "vade_report": NO_SWITCH,
    "vade_signal_aware_decay": NO_SWITCH,
    "vade_even_rest": NO_SWITCH,
    "vade_prior": (["learned", "variants", 3], ["flat", "prompts"]),
    "vade_cooldown": ([-0.1, 1, 1.0, 3, "0.2", NAN, True], ["[0, 1)", "0.2", "vade_sampler='uniform'"]),
    "vade_warm_start_discount": (
        [0, 0.0, -0.1, 1.1, "0.2", None, True, NAN],
        ["(0, 1]", "0.2", "vade_posterior_init='prior'"],
    ),
    "vade_warm_start_min_match": ([-0.1, 1.1, "0.2", None, True, NAN], ["[0, 1]", "0.5"]),
    "vade_posterior_hub_id": (
        ["", "a/b/c", "user/name@main", "user/..", 3, ["user/name"]],
        ["'user/name'", "'name'", "None"],
    ),
    "vade_max_refills": ([0, -1, 1.5, True, None, 1001], ["1000", "10", "vade_dynamic_sampling=False"]),
    "vade_stratify_by": NO_NAME,
    "vade_strata_shares": (
        [{"a": 0.5}, {"a": 0}, {"a": 1.5}, {"a": True}, {"a": "0.5"}, {1: 0.5}, [0.5], 0.5, "half"],
        ["None"],
    ),
    "vade_success_reward": (["", 3, ["accuracy"], len], ["None"]),
    "vade_success_threshold": (
        [INFINITY, NAN, 1e39, -1e39, True, [0.5], np.float32(0.5), "half"],
        ["0.5", "fractions", "spread", "auto"],
    ),
    "vade_success_bounds": (
        [[], [0], [1, 0], [1, 1], [0, 1, 2], [0, INFINITY], [0, NAN], "01", 3, [0, True]],
        ["None"],
    ),
}


@pytest.mark.parametrize(
    ("name", "value", "offers"),
    [(name, value, offers) for name, (values, offers) in REFUSED.items() for value in values],
)
def test_a_value_that_cannot_be_used_is_refused_with_those_that_can(make_args, name, value, offers):
    with refused(ConfigurationError, [f"{name}={value!r}"], offers) as refusal:
        make_args(**{name: value})
    assert len(str(refusal.value)) < 600


@pytest.mark.parametrize(
    ("name", "ends"),
    [
        ("vade_decay_sampled", [0, 1, 0.0, 1.0]),
        ("vade_decay_unsampled", [0, 1]),
        ("vade_cooldown", [0, 0.99]),
        ("vade_warm_start_discount", [0.01, 1]),
        ("vade_warm_start_min_match", [0, 1]),
        ("vade_max_refills", [1, 1000]),
    ],
)
def test_the_ends_of_a_range_are_accepted(make_args, name, ends):
    assert [getattr(make_args(**{name: value}), name) for value in ends] == ends


def test_a_source_is_a_repository_or_something_that_is_here(make_args, tmp_path, monkeypatch):
    (tmp_path / "first-run").mkdir()
    monkeypatch.chdir(tmp_path)
    for source in ("user/repo", "user/repo@step-000100", "/not/there", "first-run", str(tmp_path), "."):
        args = make_args(vade_posterior_init=source, vade_sampler="greedy")
        assert (args.vade_posterior_init, warm_start_source(args)) == (source, source)
    assert [warm_start_source(make_args(vade_posterior_init=word)) for word in POSTERIOR_INITS] == [None, None]


@pytest.mark.parametrize("sampler", ["uniform", OWN])
@pytest.mark.parametrize(("setting", "value"), [("vade_posterior_init", "user/repo"), ("vade_stratify_by", "task")])
def test_only_thompson_and_greedy_take_a_source_and_shares(make_args, sampler, setting, value):
    offers = ["vade_posterior_init='prior'" if value == "user/repo" else "vade_stratify_by=None", "'greedy'"]
    with refused(
        ConfigurationError, [f"{setting}={value!r}", f"vade_sampler={sampler!r}"], [*offers, "vade_sampler='thompson'"]
    ):
        make_args(vade_sampler=sampler, **{setting: value})
    for chooser in ("thompson", "greedy"):
        assert getattr(make_args(vade_sampler=chooser, **{setting: value}), setting) == value


@pytest.mark.parametrize("value", ["user/name", "name", "Some-User/some_name.v2"])
def test_a_name_that_a_repository_can_have_is_kept(make_args, value):
    assert make_args(vade_posterior_hub_id=value).vade_posterior_hub_id == value


@pytest.mark.parametrize("sampler", ["thompson", "uniform"])
@pytest.mark.parametrize("config_class", [VADEGRPOConfig, GRPOConfig])
def test_a_token_among_the_arguments_is_refused_and_not_repeated(make_args, config_class, sampler):
    args = make_args(config_class)
    args.vade_sampler, args.hub_token = sampler, "hf_" + "s3cret" * 6
    with refused(ConfigurationError, ["hub_token", "training_args.bin"], ["HF_TOKEN", "`hf auth login`"]) as raised:
        with_vade_defaults(args)
    assert "s3cret" not in str(raised.value)
    with refused(ConfigurationError, ["hub_token"]):
        make_args(hub_token=args.hub_token)
    for name in ("token", "use_auth_token"):
        with refused(ConfigurationError, [f"model_init_kwargs['{name}']"], ["HF_TOKEN"]) as raised:
            make_args(model_init_kwargs={name: args.hub_token})
        assert "s3cret" not in str(raised.value)
    assert make_args(model_init_kwargs={"token": True}).model_init_kwargs == {"token": True}  # that of the login


FOREIGN = {"huge": 10**5000, "o": object(), "b": b"1", "d": {"a": 1}, "n": np.zeros(2)}
SHOWN_OTHERWISE = [("vade_posterior_init", "x" * 100_000), *(("vade_success_threshold", v) for v in (10**400, "1e39"))]


@pytest.mark.parametrize(
    ("name", "value"),
    [*itertools.product(VADE_DEFAULTS, FOREIGN.values()), *SHOWN_OTHERWISE],
    ids=[*(f"{name}-{kind}" for name in VADE_DEFAULTS for kind in FOREIGN), "text", "number", "text of a number"],
)
def test_a_value_of_a_foreign_type_is_refused_by_name_and_in_a_short_message(make_args, name, value):
    with refused(ConfigurationError, [name]) as refusal:
        make_args(**{name: value})
    assert len(str(refusal.value)) < 600


@pytest.mark.parametrize("sampler", [*CHOOSING, "uniform"])
def test_one_generation_a_group_is_refused_by_every_sampler(make_args, sampler):
    # TRL's own check comes first today; either is a ValueError that names the number.
    with refused(ValueError, ["1"], ["2"]):
        make_args(vade_sampler=sampler, num_generations=1)


@pytest.mark.parametrize("value", [1, None, "8", 8.0])
def test_one_generation_a_group_is_refused_where_trl_lets_it_pass(make_args, value):
    args = make_args(GRPOConfig)
    args.num_generations = value  # set after TRL's own check
    with refused(ConfigurationError, [f"num_generations={value!r}"], ["2"]):
        with_vade_defaults(args)


@pytest.mark.parametrize("sampler", CHOOSING)
@pytest.mark.parametrize("name", ["split_batches", "dispatch_batches"])
def test_split_and_dispatched_batches_are_refused_by_samplers_that_choose(make_args, sampler, name):
    names, offers = [f"accelerator_config.{name}=True", sampler], [f"accelerator_config.{name}=False", "'uniform'"]
    with refused(ConfigurationError, names, offers):
        make_args(vade_sampler=sampler, accelerator_config={name: True})


@pytest.mark.parametrize("sampler", CHOOSING)
def test_the_order_of_the_file_is_refused_by_samplers_that_choose(make_args, sampler):
    with refused(ConfigurationError, ["shuffle_dataset=False", sampler], ["shuffle_dataset=True", "'uniform'"]):
        make_args(vade_sampler=sampler, shuffle_dataset=False)


@pytest.mark.parametrize(
    "changes",
    [
        {"shuffle_dataset": False},
        {"accelerator_config": {"split_batches": True}},
        {"accelerator_config": {"dispatch_batches": True}},
    ],
    ids=str,
)
def test_uniform_accepts_whatever_the_stock_trainer_accepts(make_args, changes):
    args = make_args(vade_sampler="uniform", **changes)
    assert not is_adaptive(args)


@pytest.mark.parametrize("sampler", CHOOSING)
def test_batches_that_are_explicitly_not_split_or_dispatched_are_accepted(make_args, sampler):
    args = make_args(vade_sampler=sampler, accelerator_config={"split_batches": False, "dispatch_batches": False})
    assert is_adaptive(args)


# --------------------------------------------------------------------------------- command line, recipe, resuming


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("none", None),
        ("None", None),
        ("null", None),
        ("0.7", 0.7),
        ("1", 1.0),
        ("-1e-3", -0.001),
        ("Spread", "spread"),
    ],
)
def test_the_threshold_is_read_from_a_flag(text, value):
    config = parse(f"--vade_success_threshold={text}")
    assert config.vade_success_threshold == value
    assert type(config.vade_success_threshold) is type(value)


def test_without_flags_the_parsed_configuration_has_the_defaults(make_args):
    parsed, made = parse(), make_args(vade_report=True)
    for field in fields(VADEGRPOConfig):
        if field.name.startswith("vade_"):
            assert getattr(parsed, field.name) == getattr(made, field.name)


def test_every_setting_is_read_from_flags():
    config = parse(
        *("--vade_sampler", "greedy", "--vade_information_gain", "symmetric", "--vade_posterior_init", "rollout"),
        *("--vade_decay_sampled", "0.5", "--vade_decay_unsampled", "1", "--vade_success_reward", "accuracy"),
        *(
            "--vade_on_mismatch",
            "join",
            "--vade_outage_guard",
            "false",
            "--vade_overwrite_output_dir",
            "--vade_report",
            "false",
            "--vade_preset",
            "paper",
        ),
        *("--vade_signal_aware_decay", "true", "--vade_cooldown", "0.1"),
        *("--vade_dynamic_sampling", "--vade_max_refills", "4"),
        *("--vade_stratify_by", "source", "--vade_posterior_hub_id", "user/name"),
        *("--vade_warm_start_discount", "0.5", "--vade_warm_start_min_match", "0"),
    )
    assert config.vade_posterior_hub_id == "user/name"
    assert (config.vade_warm_start_discount, config.vade_warm_start_min_match) == (0.5, 0.0)
    assert config.vade_stratify_by == "source"
    assert (config.vade_sampler, config.vade_information_gain) == ("greedy", "symmetric")
    assert (config.vade_preset, config.vade_signal_aware_decay, config.vade_cooldown) == ("paper", True, 0.1)
    assert (config.vade_dynamic_sampling, config.vade_max_refills) == (True, 4)
    assert (config.vade_decay_sampled, config.vade_decay_unsampled) == (0.5, 1.0)
    assert (config.vade_posterior_init, config.vade_success_reward) == ("rollout", "accuracy")
    assert (config.vade_on_mismatch, config.vade_outage_guard) == ("join", False)
    assert config.vade_overwrite_output_dir is True
    assert config.vade_report is False


def test_shares_are_read_as_json_from_a_flag():
    config = parse("--vade_stratify_by", "kind", "--vade_strata_shares", '{"original": 0.5}')
    assert config.vade_strata_shares == {"original": 0.5}


@pytest.mark.parametrize(("text", "value"), [("null", None), ("none", None), ("0.7", 0.7), ("1", 1.0)])
def test_the_threshold_is_read_from_a_recipe(tmp_path, text, value):
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(f"vade_success_threshold: {text}\nvade_sampler: greedy\n", encoding="utf-8")
    config = parse("--config", str(recipe))
    assert config.vade_success_threshold == value
    assert config.vade_sampler == "greedy"


def test_a_source_is_read_from_a_flag():
    assert parse("--vade_posterior_init", "user/repo@step-000100").vade_posterior_init == "user/repo@step-000100"


def test_a_flag_goes_before_the_value_of_the_recipe(tmp_path):
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text("vade_success_threshold: null\nvade_sampler: greedy\n", encoding="utf-8")
    config = parse("--config", str(recipe), "--vade_success_threshold", "0.9", "--vade_sampler", "uniform")
    assert config.vade_success_threshold == 0.9
    assert config.vade_sampler == "uniform"


# --------------------------------------------------------------------------------------------- a plain GRPOConfig


def test_a_plain_config_gets_the_defaults_and_is_otherwise_as_it_was(make_args):
    plain = make_args(GRPOConfig)
    before = dict(vars(plain))
    ours = with_vade_defaults(plain)
    assert ours is plain
    assert type(ours) is GRPOConfig
    assert (ours.vade_sampler, ours.vade_max_refills, ours.vade_success_threshold) == ("thompson", 10, "auto")
    assert setting(ours, "decay_sampled") == 0.2
    assert {name: value for name, value in vars(ours).items() if not name.startswith("vade_")} == before


def test_a_users_own_config_class_keeps_its_class_and_its_fields(make_args):
    @dataclass
    class MyConfig(GRPOConfig):
        my_field: str = "mine"

    ours = with_vade_defaults(make_args(MyConfig, my_field="theirs"))
    assert type(ours) is MyConfig
    assert ours.my_field == "theirs"
    assert ours.vade_sampler == "thompson"


def test_a_users_own_config_class_may_bring_some_of_the_fields(make_args):
    @dataclass
    class MyConfig(GRPOConfig):
        vade_sampler: str = "uniform"

    ours = with_vade_defaults(make_args(MyConfig, shuffle_dataset=False))
    assert ours.vade_sampler == "uniform"
    assert setting(ours, "decay_unsampled") == 0.999


def test_a_config_that_has_the_fields_is_handed_back_itself(make_args):
    args = make_args(vade_sampler="greedy")
    assert with_vade_defaults(args) is args


def test_a_field_that_was_set_later_is_looked_at_too(make_args):
    args = make_args()
    args.vade_decay_sampled = 2
    with refused(ConfigurationError, ["vade_decay_sampled=2"]):
        with_vade_defaults(args)


def test_a_plain_config_that_cannot_work_is_refused(make_args):
    with refused(ConfigurationError, ["shuffle_dataset=False"]):
        with_vade_defaults(make_args(GRPOConfig, shuffle_dataset=False))


def test_initial_rollouts_for_a_posterior_that_nobody_asks_are_refused(tmp_path):
    names = ["vade_posterior_init='rollout'", "vade_sampler='uniform'"]
    with refused(ConfigurationError, names, ["vade_posterior_init='prior'"]):
        VADEGRPOConfig(str(tmp_path), use_cpu=True, bf16=False, vade_sampler="uniform", vade_posterior_init="rollout")


def test_a_seed_for_each_request_of_a_colocated_engine_is_refused(make_args):
    """Measured with vLLM 0.31: every group was one completion, repeated."""
    with refused(ConfigurationError, ["generation_kwargs", "seed=7", "vllm_mode='colocate'"], ["`seed`"]):
        make_args(use_vllm=True, vllm_mode="colocate", generation_kwargs={"seed": 7})
    make_args(use_vllm=True, vllm_mode="server", generation_kwargs={"seed": 7})
    make_args(use_vllm=True, vllm_mode="colocate", generation_kwargs={"top_k": 7})


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
