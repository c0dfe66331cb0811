"""lmms-eval 0.7.3: a judge's text with a 1 anywhere counts as right.

The parser looks for "1" in the whole text. A judge that explains itself is misread.

Expected:
    '0' 0
    'Score: 0. The answer 12 is wrong.' 0

Printed:
    '0' 0
    'Score: 0. The answer 12 is wrong.' 1
"""

from lmms_eval.llm_judge.utils import ResponseParser

for text in ("0", "Score: 0. The answer 12 is wrong."):
    print(repr(text), ResponseParser.parse_binary_response(text))
