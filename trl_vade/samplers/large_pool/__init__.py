"""A Thompson draw from 100,000 rows and more, in time that follows the visited ones: `LargePool.draw`."""

from .free_rows import BoolArray as BoolArray
from .free_rows import FreeRows as FreeRows
from .pool import Choice as Choice
from .pool import LargePool as LargePool
