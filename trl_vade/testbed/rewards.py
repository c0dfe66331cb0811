"""The testbed's reward function."""

import re
from typing import Any

_ANSWER = re.compile(r"<answer>(.*?)</answer>", re.DOTALL)


def exact_answer_reward(completions: list[Any], answer: list[str], **kwargs: Any) -> list[float]:
    """Return 1.0 for each completion with exactly the answer in its first `<answer>...</answer>`, else 0.0.

    Completions are texts, or conversations with the text in the first message. Other columns are ignored.
    """
    found = [_ANSWER.search(_text(completion)) for completion in completions]
    pairs = zip(found, answer, strict=True)
    return [float(one is not None and one[1].strip() == expected.strip()) for one, expected in pairs]


def _text(completion: Any) -> str:
    content = completion if isinstance(completion, str) else completion[0]["content"]
    return content if isinstance(content, str) else "".join(block.get("text", "") for block in content)
