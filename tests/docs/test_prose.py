"""Sentences are short enough: the rules hold for each document by itself."""

import pytest

from tests.docs.prose import LONGEST_LIMIT, MEAN_LIMIT, ROOT, documents, main, read, words


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        ("One fact. Another fact!", ["One fact.", "Another fact!"]),
        ("It follows eq. 4, e.g. here. `code` starts this.", ["It follows eq. 4, e.g. here.", "`code` starts this."]),
        ("See [the page](https://a.b/c. D) at 0.5 s.", ["See [the page](https://a.b/c.", "D) at 0.5 s."]),
        ("See [the page](../a.md) at 0.5 s.", ["See the page at 0.5 s."]),
        ("# A heading. With a stop\n\n![A picture. Large.](a.png)\n\n```bash\nls. Ls\n```\n", []),
        ("- first\n- second. Third", ["first", "second.", "Third"]),
        ('!!! note "A title"\n\n    It is read.\n\nSo is this.', ["It is read.", "So is this."]),
        ("::: trl_vade.Name\n    options:\n      members: [a]\n\nText.", ["Text."]),
        ("Run `trl-vade plan --config a.yaml` now.", ["Run `trl-vade_plan_--config_a.yaml` now."]),
        ("---\ntitle: Settings\n---\n\nText.", ["Text."]),
    ],
)
def test_text_is_split_into_its_sentences(text, sentences):
    assert read(text).sentences == sentences


def test_table_cells_count_for_the_longest_sentence_only():
    prose = read("Short text.\n\n| head |\n| --- |\n| " + "word " * 50 + "|\n")
    assert prose.mean == 2
    assert words(prose.longest) == 50


@pytest.mark.parametrize("path", documents(), ids=lambda path: str(path.relative_to(ROOT)))
def test_a_document_has_short_sentences(path):
    prose = read(path.read_text(encoding="utf-8"))
    assert prose.mean < MEAN_LIMIT
    assert words(prose.longest) <= LONGEST_LIMIT, prose.longest


def test_the_script_prints_a_line_for_each_document(tmp_path, capsys):
    (tmp_path / "page.md").write_text("Two words. vLLM " + "word " * 40 + "\n")
    main([str(tmp_path / "page.md")])
    _, row, sentence, *_ = capsys.readouterr().out.splitlines()
    assert row.split()[1:] == ["1", "2", "21.5", "41"]
    assert "41 words: vLLM word" in sentence
