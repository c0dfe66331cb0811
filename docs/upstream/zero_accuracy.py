"""lmms-eval 0.7.3: MathVista's accuracy of 0 is None.

A model without a right answer has no score. A script that compares scores fails at it.

Expected:
    accuracy of a wrong answer: 0.0

Printed:
    accuracy of a wrong answer: None
"""

import os

os.environ.setdefault("OPENAI_API_KEY", "none")  # the evaluator makes a client

from lmms_eval.tasks.mathvista.utils import mathvista_aggregate_results

facts = dict.fromkeys(("language", "source", "category", "task", "context", "grade", "skills"), "any")
row = {"question_id": "1", "question_type": "free_form", "answer_type": "text", "true_false": False}
print(
    "accuracy of a wrong answer:",
    mathvista_aggregate_results([row | {"metadata": facts | {"split": "testmini"}}], None),
)
