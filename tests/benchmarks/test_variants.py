import re

import pytest

from eval.benchmarks import variants as benchmark


@pytest.mark.slow
def test_both_builds_are_equal_and_the_llm_is_asked_until_all_replies_are_there(capsys):
    benchmark.main(["--rows", "24", "--concurrency", "4", "--timeout", "2"])
    printed = capsys.readouterr().out
    first, second = re.findall(r"build: .* ([0-9a-f]{64})", printed)
    assert first == second
    assert re.search(r"run 1: exit code 1", printed)
    assert re.findall(r"exit code (\d)", printed)[-1] == "0"
    assert re.search(r"\| hint-1 \| .* \| \d+ \| \d+ \|", printed)
