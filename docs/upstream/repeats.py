"""lmms-eval 0.7.3: repeated generations are scored by the first one alone.

`-n 4` generates four answers to each question. The score is that of the first answer, also where the help
speaks of a measure of stability.

Expected:
    three of four answers are right, score: 0.75

Printed:
    three of four answers are right, score: 0.0
"""

import json
import tempfile
from pathlib import Path

from lmms_eval import evaluator
from lmms_eval.api.model import lmms
from lmms_eval.tasks import TaskManager
from loguru import logger

logger.remove()


class Improving(lmms):
    is_simple = False

    def generate_until(self, requests):
        return ["wrong", "right", "right", "right"]

    loglikelihood = generate_until_multi_round = generate_until


TASK = """
task: mine
dataset_path: json
dataset_kwargs: {data_files: {test: rows.jsonl}}
test_split: test
output_type: generate_until
doc_to_visual: !function mine.no_images
doc_to_messages: !function mine.messages
doc_to_text: question
doc_to_target: answer
process_results: !function mine.score
metric_list: [{metric: exact, aggregation: mean, higher_is_better: true}]
"""
CODE = """
def no_images(row):
    return []


def messages(row):
    return [{"role": "user", "content": [{"type": "text", "text": row["question"]}]}]


def score(row, results):
    return {"exact": float(results[0] == row["answer"])}
"""
with tempfile.TemporaryDirectory() as folder:
    Path(folder, "rows.jsonl").write_text(json.dumps({"question": "?", "answer": "right"}), encoding="utf-8")
    Path(folder, "mine.yaml").write_text(TASK.replace("rows.jsonl", f"{folder}/rows.jsonl"), encoding="utf-8")
    Path(folder, "mine.py").write_text(CODE, encoding="utf-8")
    manager = TaskManager(include_path=folder, include_defaults=False)
    found = evaluator.simple_evaluate(Improving(), tasks=["mine"], task_manager=manager, repeats=4, log_samples=False)
print("three of four answers are right, score:", found["results"]["mine"]["exact,none"])
