"""lmms-eval 0.7.3: a task of `--include_path` with a known name is ignored.

The built-in task is evaluated. Its rows come from the Hub, and nothing says so.

Expected:
    the task of --include_path is used: True

Printed:
    the task of --include_path is used: False
"""

import tempfile
from pathlib import Path

from lmms_eval.tasks import TaskManager

with tempfile.TemporaryDirectory() as folder:
    own = Path(folder, "chartqa.yaml")
    own.write_text("task: chartqa\ndataset_path: rows/of/mine\n", encoding="utf-8")
    used = TaskManager(include_path=folder).task_index["chartqa"]["yaml_path"]
print("the task of --include_path is used:", Path(used) == own)
