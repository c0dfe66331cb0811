"""Thompson draws from 100,000 rows or more, at a cost that grows with the visited rows."""

from .free_rows import BoolArray as BoolArray
from .free_rows import FreeRows as FreeRows
from .pool import Choice as Choice
from .pool import LargePool as LargePool
