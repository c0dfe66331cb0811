"""Render the data set card of a mixture from its manifest."""

import hashlib
from pathlib import Path
from typing import Any

from huggingface_hub import DatasetCard, DatasetCardData

from trl_vade.hub.cards import markdown_table


def render_card(manifest: dict[str, Any], template: Path) -> str:
    """Render README.md from the `manifest` that `build.build_mixture` returns, by a Jinja `template`."""
    total = sum(manifest["splits"].values())
    data = DatasetCardData(
        language=["en"],
        license="other",
        license_name="one-for-each-source",
        license_link="README.md",
        task_categories=["visual-question-answering"],
        size_categories=["1K<n<10K" if total >= 1000 else "n<1K"],
        source_datasets=sorted({source["repo"] for source in manifest["sources"]}),
        pretty_name="VADE training mixture",
        tags=["grpo", "trl", "trl-vade"],
        configs=[
            {
                "config_name": "default",
                # datasets 5.2 caches a local folder by its last name and these entries, and not by its files. Without
                # a digest of the files here, `load_dataset` would return the rows of an earlier build.
                "description": hashlib.sha256("".join(sorted(manifest["files"].values())).encode()).hexdigest(),
                "data_files": [{"split": split, "path": f"data/{split}-*"} for split in sorted(manifest["splits"])],
            }
        ],
    )
    card = DatasetCard.from_template(
        data,
        template_path=str(template),
        manifest=manifest,
        total=total,
        asked=sum(source["asked"] for source in manifest["sources"]),
        counts_table=counts_table(manifest["sources"]),
        sources_table=sources_table(manifest["sources"]),
        overlap_section=overlap_section(manifest["overlap"]),
    )
    return str(card)


def counts_table(sources: list[dict[str, Any]]) -> str:
    """Tabulate the rows of each source and their sums: asked for, read, usable, taken, in each split, dropped."""
    columns = ["asked", "read", "usable", "taken", "train", "validation"]
    rows = [
        [source["name"], source["domain"], *(f"{source[column]:,}" for column in columns), _dropped(source["dropped"])]
        for source in sources
    ]
    sums = [f"{sum(source[column] for source in sources):,}" for column in columns]
    return markdown_table(["source", "domain", *columns, "dropped"], [*rows, ["all", "", *sums, ""]])


def sources_table(sources: list[dict[str, Any]]) -> str:
    """Tabulate the repository and the licence of each source."""
    rows = [
        [
            source["name"],
            f"[{source['repo']}](https://huggingface.co/datasets/{source['repo']})",
            source["config"] or "",
            f"`{source['revision']}`",
            source["licence"],
        ]
        for source in sources
    ]
    return markdown_table(["source", "data set", "configuration", "revision", "licence of the data set"], rows)


def overlap_section(overlap: dict[str, Any] | None) -> str:
    """Describe the comparison with evaluation sets and the rows that it removed."""
    if overlap is None:
        return (
            "**No check was made.** This mixture was built without `--evaluation_data`, so it may contain rows of "
            "benchmarks."
        )
    sets = [
        [name, f"{counts['images']:,}", f"{counts['questions']:,}", f"{counts['unreadable']:,}"]
        for name, counts in overlap["sets"].items()
    ]
    columns = ["source", "evaluation_set", "by_image", "by_question"]
    removed = [[row[column] for column in columns] for row in overlap["removed"]]
    parts = [
        "The rows were compared with these evaluation sets. Images match if their size and RGB pixels are equal. "
        f"Questions of {overlap['min_words']} words or more match if their letters and digits are equal. An image "
        "that was compressed or scaled again is not found, nor is a question in other words.",
        markdown_table(["evaluation set", "images", "questions", "images that cannot be read"], sets),
        "Rows removed; a row in several sets counts for each:" if removed else "No row was removed.",
    ]
    if removed:
        parts.append(markdown_table([column.replace("_", " ") for column in columns], removed))
    return "\n\n".join(parts)


def _dropped(counts: dict[str, int]) -> str:
    return ", ".join(f"{reason} {number:,}" for reason, number in counts.items()) or "none"
