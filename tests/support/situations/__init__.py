"""What users do with TRL's trainer, a line each: `tests/trainer/test_battery.py` drives all beside stock TRL."""

from .code import CODE
from .data import DATA
from .rewards import REWARDS
from .settings import SETTINGS
from .vision import VISION

SITUATIONS = SETTINGS | REWARDS | DATA | CODE | VISION
