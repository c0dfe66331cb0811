"""lmms-eval 0.7.3: libraries that tasks need are not declared.

MathVista cannot be scored without Levenshtein. Its import is at the top of the task.

Expected:
    decord is declared: True - videos
    levenshtein is declared: True - mathvista

Printed:
    decord is declared: False - videos
    levenshtein is declared: False - mathvista
"""

import re
from importlib.metadata import requires

declared = {
    re.split(r"[ ;<>=!~\[]", each)[0].lower() for each in requires("lmms_eval") or () if "extra ==" not in each
}
for library, task in (("decord", "videos"), ("levenshtein", "mathvista")):
    print(library, "is declared:", library in declared, "-", task)
