"""lmms-eval 0.7.3: a run that is repeated appends to the rows of the first one.

The file's name holds the time in seconds. Two runs that start in the same second write to one file.

Expected:
    rows of a run of one question: 1

Printed:
    rows of a run of one question: 2
"""

import tempfile
from pathlib import Path

from lmms_eval.loggers import EvaluationTracker

with tempfile.TemporaryDirectory() as folder:
    for _ in range(2):  # the second run takes the place of the first one
        tracker = EvaluationTracker(output_path=folder)
        tracker.general_config_tracker.model_name_sanitized, tracker.date_id = "model", "20260101_000000"
        row = {"arguments": [""], "resps": [["42"]], "filtered_resps": ["42"], "target": "42", "doc": {}}
        tracker.save_results_samples("mine", [row])
    (file,) = Path(folder).rglob("*.jsonl")
    print("rows of a run of one question:", len(file.read_text(encoding="utf-8").splitlines()))
