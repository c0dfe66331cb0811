"""The table of sources."""

import re
from collections import Counter
from pathlib import Path

from scripts.mixture.rows import DROPPED
from scripts.mixture.sources import SOURCES

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "recipes.md"


def test_the_mixture_has_the_sizes_of_table_3_from_pinned_sources():
    domains = Counter()
    for source in SOURCES.values():
        domains[source.domain] += source.count
        assert re.fullmatch(r"[0-9a-f]{40}", source.revision)
        assert source.kinds <= {"choice", "number", "integer", "text", "yes_no", "expression"}
    assert domains == {"math": 5670, "chart": 2476, "science": 1325}  # 9,471 rows
    assert len({source.name for source in SOURCES.values()}) == len(SOURCES) == 11


def test_the_guide_names_every_reason_and_the_rows_and_megabytes_of_every_source():
    rows = [[cell.strip() for cell in line.strip("| ").split("|")] for line in GUIDE.read_text().splitlines()]
    assert set(DROPPED) <= {cells[0].strip("`") for cells in rows}
    for source in SOURCES.values():
        size = f"{'~' if source.about else ''}{source.megabytes:,}"
        assert [source.name, f"{source.count:,}", size] in [cells[:3] for cells in rows]
