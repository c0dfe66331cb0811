"""The data set card of a mixture, from its manifest."""

import hashlib
from pathlib import Path
from typing import Any

from huggingface_hub import DatasetCard, DatasetCardData

from trl_vade.hub.cards import markdown_table


def render_card(manifest: dict[str, Any], template: Path) -> str:
    """The card, README.md, of a mixture with this `manifest` (`build.build_mixture`); `template` is in Jinja."""
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
                # datasets 5.2 caches a local folder under its last name and these entries, and not its files: without
                # something of their content here, `load_dataset` would give the rows of an earlier build.
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
    """Rows of each source: asked for, read, dropped by reason, usable, taken, in each split; and their sums."""
    columns = ["asked", "read", "usable", "taken", "train", "validation"]
    rows = [
        [source["name"], source["domain"], *(f"{source[column]:,}" for column in columns), _dropped(source["dropped"])]
        for source in sources
    ]
    sums = [f"{sum(source[column] for source in sources):,}" for column in columns]
    return markdown_table(["source", "domain", *columns, "dropped"], [*rows, ["all", "", *sums, ""]])


def sources_table(sources: list[dict[str, Any]]) -> str:
    """Where each source is, and its licence."""
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
    """What was compared with which evaluation sets, and what was taken out."""
    if overlap is None:
        return (
            "**No check was made.** This mixture was built without `--evaluation_data`, so rows of benchmarks may be "
            "in it: nobody looked."
        )
    sets = [
        [name, f"{counts['images']:,}", f"{counts['questions']:,}", f"{counts['unreadable']:,}"]
        for name, counts in overlap["sets"].items()
    ]
    columns = ["source", "evaluation_set", "by_image", "by_question"]
    removed = [[row[column] for column in columns] for row in overlap["removed"]]
    parts = [
        "Compared with these evaluation sets: by image (the same size and RGB pixels) and by question (the same "
        f"letters and digits, {overlap['min_words']} words or more). An image that was compressed or scaled anew, and "
        "a question in other words, are not found by this.",
        markdown_table(["evaluation set", "images", "questions", "images that cannot be read"], sets),
        "Rows taken out; a row that is in several sets counts for each:" if removed else "No row was taken out.",
    ]
    if removed:
        parts.append(markdown_table([column.replace("_", " ") for column in columns], removed))
    return "\n\n".join(parts)


def _dropped(counts: dict[str, int]) -> str:
    return ", ".join(f"{reason} {number:,}" for reason, number in counts.items()) or "none"
