"""A setting that a run does not read is said, once and by name; the others are not."""

import pytest

from tests.support.own_samplers import OWN
from trl_vade.cli.parsing import Parser, known_config
from trl_vade.cli.recipes import RECIPES
from trl_vade.trainer.grpo_config import VADE_DEFAULTS
from trl_vade.trainer.own_sampler import SAMPLERS
from trl_vade.trainer.selection_choice import make_sampler
from trl_vade.trainer.settings_in_use import READ_BY, is_read, warn_of_unread

CHANGED = {
    "preset": "paper",
    "information_gain": "symmetric",
    "signal_aware_decay": False,
    "cooldown": 0.2,
    "even_rest": False,
    "prior": "flat",
    "decay_sampled": 0.5,
    "decay_unsampled": 0.5,
}


def test_the_table_has_each_sampler_and_knows_no_setting_that_is_none():
    assert {*READ_BY} == {*SAMPLERS}
    assert {f"vade_{name}" for names in READ_BY.values() for name in names} <= {*VADE_DEFAULTS}


@pytest.mark.parametrize("sampler", [*SAMPLERS, OWN])
@pytest.mark.parametrize("name", CHANGED)
def test_a_setting_is_read_if_and_only_if_it_makes_another_sampler(make_args, sampler, name):
    def made(**settings):
        args = make_args(vade_sampler=sampler, **settings)
        state = make_sampler(args, 40, num_groups=4).state_dict()
        return args, repr({key: value for key, value in state.items() if key not in ("generator", "order")})

    _, before = made()
    args, after = made(**{f"vade_{name}": CHANGED[name]})
    assert is_read(args, name) == (before != after)


def warned(args, caplog):
    caplog.clear()
    warn_of_unread(args)
    return [record.message for record in caplog.records]


def test_one_warning_names_the_settings_and_why(make_args, caplog):
    args = make_args(vade_sampler="uniform", vade_cooldown=0.5, vade_information_gain="symmetric", vade_max_refills=3)
    [text] = warned(args, caplog)
    for part in (
        "vade_cooldown=0.5",
        "vade_information_gain='symmetric'",
        "'uniform'",
        "vade_max_refills=3",
        "vade_dynamic_sampling",
    ):
        assert part in text
    assert "vade_decay" not in text


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"vade_sampler": OWN, "vade_cooldown": 0.5}, "vade_cooldown"),
        ({"vade_warm_start_discount": 0.9}, "vade_warm_start_discount"),
    ],
)
def test_what_another_setting_would_need_is_named(make_args, caplog, settings, named):
    [text] = warned(make_args(**settings), caplog)
    assert named in text


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"vade_sampler": "uniform", "vade_decay_sampled": 0.5},
        {"vade_dynamic_sampling": True, "vade_max_refills": 3},
        {"vade_sampler": OWN, "vade_decay_sampled": 0.5},
    ],
)
def test_settings_with_an_effect_are_not_named(make_args, caplog, settings):
    assert warned(make_args(**settings), caplog) == []


@pytest.mark.parametrize("recipe", sorted(path.stem for path in RECIPES.glob("*.yaml")))
@pytest.mark.parametrize("flags", [[], ["--vade_sampler", "uniform"]])
def test_the_recipes_of_the_package_say_nothing_with_either_sampler(recipe, flags, caplog):
    _, args, _ = Parser(known_config()).read(["--config", str(RECIPES / f"{recipe}.yaml"), *flags])
    if recipe == "quickstart" or recipe.endswith("vanilla") or not flags:
        assert warned(args, caplog) == []


def test_the_trainer_says_it_at_its_start(text_model_path, text_rows, make_args, caplog):
    from tests.support.runs import says_a_digit
    from trl_vade import VADEGRPOTrainer

    args = make_args(vade_sampler="uniform", vade_cooldown=0.5)
    VADEGRPOTrainer(text_model_path, says_a_digit, args=args, train_dataset=text_rows)
    assert sum("vade_cooldown=0.5" in record.message for record in caplog.records) == 1
