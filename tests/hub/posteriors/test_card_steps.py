"""The card of a posterior's repository, as a stranger may have written it."""

import pytest

from tests.support.refusals import refused
from trl_vade.errors import SnapshotCorruptError
from trl_vade.hub.posteriors.card_steps import MOST_BYTES, steps_of_card
from trl_vade.hub.posteriors.repository import table_path


@pytest.fixture
def named(tmp_path):
    """What a card names whose metadata are this text."""

    def read(metadata):
        (tmp_path / "README.md").write_bytes(b"---\n" + metadata + b"\n---\n# Notes\n")
        return steps_of_card(tmp_path / "README.md")

    return read


def config(name, step, more=""):
    return f"- config_name: {name}\n  data_files: {table_path(step)}\n{more}".encode()


def test_the_steps_are_those_of_the_configurations_and_the_newest_is_the_default(named):
    cards = b"configs:\n" + config("latest", 7, "  default: true\n") + config("step-000009", 9) + config("x", 7)
    assert named(cards) == ([7, 9], 7)
    assert named(b"configs:\n" + config("mine", 9, "  default: yes\n") + config("latest", 7)) == ([7, 9], 9)
    assert named(b"configs:\n" + config("latest", 7, "  default: false\n") + config("mine", 9)) == ([7, 9], 7)
    assert steps_of_card(None) == ([], None)


@pytest.mark.parametrize(
    "metadata",
    [
        b"configs: 7",
        b"configs: [",
        b"- a",
        b"\xff\xfe",
        b"? [a]\n: b",
        b"a: 2020-13-45",
        b"configs: !!python/object/apply:os.system [ls]",
        b"configs: [{data_files: {1: 2}}, 3]",
        b"configs: " + b"9" * 10_000,
        b"configs: 1" + b":1" * 100_000,
    ],
)
def test_a_card_that_names_nothing_is_no_error(named, metadata):
    assert named(metadata) == ([], None)


@pytest.mark.parametrize(
    ("metadata", "what"),
    [
        (b"configs: &a [*a]", "aliases"),
        (b"configs:\n- &a\n  data_files: *a", "aliases"),
        (b"a: &a [x, x, x]\nb: &b [*a, *a, *a]\nconfigs: [*b, *b]", "aliases"),
        (b"configs: " + b"[" * 400 + b"]" * 400, "16"),
        (b"configs: " + b"[" * 100_000, "16"),
        (b"configs: " + b"{a: " * 17 + b"1" + b"}" * 17, "16"),
        (b"configs: [" + b"x" * MOST_BYTES, "1,048,576"),
    ],
)
def test_what_could_hang_a_reader_is_refused_with_the_reason(named, metadata, what):
    with refused(SnapshotCorruptError, ["README.md", what]):
        named(metadata)


def test_a_card_without_metadata_names_nothing(tmp_path):
    (tmp_path / "README.md").write_text("# Notes\n---\nconfigs: [1]\n---\n")
    assert steps_of_card(tmp_path / "README.md") == ([], None)
    (tmp_path / "README.md").write_text("---\nconfigs: [1]\n")
    assert steps_of_card(tmp_path / "README.md") == ([], None)
