"""The templates of the cards are found, wherever the package runs from."""

from pathlib import Path

from tests.support.refusals import refused
from trl_vade.hub import cards as card_templates
from trl_vade.hub.cards import template_path

REPOSITORY = Path(__file__).parents[2]


def test_in_the_repository_they_lie_beside_the_package():
    assert template_path("posterior.md").samefile(REPOSITORY / "model_cards" / "posterior.md")
    assert template_path("mixture.md").read_text().startswith("---")


def test_a_wheel_has_them_inside_the_package(tmp_path, monkeypatch):
    package = tmp_path / "site-packages" / "trl_vade"
    (package / "model_cards").mkdir(parents=True)
    (package / "model_cards" / "posterior.md").write_text("of the wheel")
    (tmp_path / "site-packages" / "model_cards").mkdir()  # of another package, which is none of our business
    (tmp_path / "site-packages" / "model_cards" / "posterior.md").write_text("of somebody else")
    monkeypatch.setattr(card_templates, "_PACKAGE", package)
    assert template_path("posterior.md").read_text() == "of the wheel"


def test_one_that_is_nowhere_is_named_with_both_places():
    with refused(FileNotFoundError, ["none.md", "trl_vade/model_cards", "model_cards"]):
        template_path("none.md")
