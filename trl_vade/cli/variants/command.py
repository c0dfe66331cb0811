"""The command `trl-vade variants`."""

import json
import shlex
from pathlib import Path
from typing import Annotated, Any

import typer

from ..evaluate import list_of


def variants(
    dataset: Annotated[
        str, typer.Argument(metavar="DATASET", help="`testbed`, a folder, a .parquet file, or user/name on the Hub.")
    ],
    output_dir: Annotated[
        Path, typer.Option("--output_dir", help="A new folder, or that of an earlier build, which is continued.")
    ],
    kinds: Annotated[
        str,
        typer.Option(
            help="Kinds, with commas between them: text, drawn, hint-1 to hint-9, and rotation, gaussian, "
            "salt-pepper, speckle, blur, low-resolution with -1 to -3 for the strength."
        ),
    ],
    dataset_config: Annotated[str | None, typer.Option("--dataset_config", help="Configuration of DATASET.")] = None,
    split: Annotated[str, typer.Option("--split", help="Split of DATASET.")] = "train",
    revision: Annotated[str | None, typer.Option("--revision", help="Branch, tag or commit of DATASET.")] = None,
    limit: Annotated[int | None, typer.Option("--limit", min=1, help="Take only the first N rows.")] = None,
    prompt_column: Annotated[
        str | None, typer.Option("--prompt_column", help="Default: prompt, question or problem.")
    ] = None,
    image_column: Annotated[str | None, typer.Option("--image_column", help="Default: images or image.")] = None,
    answer_column: Annotated[str | None, typer.Option("--answer_column", help="Default: answer or solution.")] = None,
    solution_column: Annotated[
        str | None, typer.Option("--solution_column", help="Solutions whose steps are the hints. Default: solution.")
    ] = None,
    task_column: Annotated[str | None, typer.Option("--task_column", help="Default: task.")] = None,
    instruction: Annotated[
        str | None,
        typer.Option("--instruction", help="How the instruction at the end of your prompts begins; it stays."),
    ] = None,
    safe_for: Annotated[
        list[str] | None,
        typer.Option("--safe_for", metavar="KIND=TASKS", help="Tasks that get a kind, such as rotation=count,chart."),
    ] = None,
    font: Annotated[
        Path | None, typer.Option("--font", help="TrueType font of drawn questions. Default: Pillow's, for ASCII.")
    ] = None,
    seed: Annotated[int, typer.Option("--seed", help="Of the noise, and of the LLM where it takes one.")] = 0,
    endpoint: Annotated[
        str | None, typer.Option("--endpoint", help="Address of an OpenAI-compatible server: http://HOST:8000/v1.")
    ] = None,
    model: Annotated[str | None, typer.Option("--model", help="Name of the LLM on that server.")] = None,
    text_only: Annotated[bool, typer.Option("--text_only", help="Send no pictures to the LLM.")] = False,
    concurrency: Annotated[int, typer.Option("--concurrency", min=1, help="Requests at a time.")] = 16,
    retries: Annotated[int, typer.Option("--retries", min=0, help="Retries of a request.")] = 6,
    timeout: Annotated[float, typer.Option("--timeout", min=0.1, help="Seconds for a reply.")] = 120.0,
    allow_missing: Annotated[
        bool, typer.Option("--allow_missing", help="Also write if some requests have no reply.")
    ] = False,
    push_to_hub: Annotated[
        str | None, typer.Option("--push_to_hub", metavar="REPO", help="Data-set repository that gets the result.")
    ] = None,
    private: Annotated[
        bool | None, typer.Option("--private/--public", help="Visibility of that repository, if it is created.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the counts as JSON in place of the table.")] = False,
) -> None:
    """Build a data set of originals and their variants, easier and harder ones with the same answer.

    Noise, rotation and drawn questions are made from the pictures, the same each time. Hints are the first steps of
    the data set's own solution, or of one by the LLM at --endpoint. `text` is a paraphrase by the LLM. The LLM's key
    is read from the environment variable VARIANTS_API_KEY.

    Every variant is verified. Those that are refused are counted by reason, here and in the README.md of the output.
    Replies of the LLM are kept in the output folder. After an error the same command asks only for what is missing.

    \b
    Examples:
      trl-vade variants testbed --output_dir variants \\
        --kinds rotation-1,gaussian-2,drawn
      trl-vade variants you/questions --output_dir variants \\
        --kinds gaussian-1,text,hint-1,hint-2 \\
        --endpoint http://127.0.0.1:8000/v1 \\
        --model Qwen/Qwen2.5-VL-72B-Instruct --push_to_hub you/variants
    """
    from PIL import Image

    from trl_vade.data.image_variants import question_drawn
    from trl_vade.errors import ConfigurationError
    from trl_vade.hub.uploading import HubTarget, ensure_repo

    from ..data_sets import load_rows
    from ..tables import print_columns
    from .build import build, columns_of, counts_table, push
    from .endpoint import Endpoint
    from .kinds import read_kinds, read_safe_for
    from .making import Maker

    if (endpoint is None) != (model is None):
        raise typer.BadParameter("--endpoint and --model go together.")
    names, safe = read_kinds(list_of(kinds)), read_safe_for(safe_for or [])
    if dataset == "testbed":
        from trl_vade.testbed import load_testbed_dataset

        rows = load_testbed_dataset()
        if split not in rows:
            raise ConfigurationError(f"--split {split}: the testbed has the splits {', '.join(rows)}.")
        rows = rows[split]
    else:
        rows = load_rows(dataset, dataset, dataset_config, split, revision)
    rows = rows.select(range(min(limit or len(rows), len(rows))))
    told = {"prompt": prompt_column, "image": image_column, "answer": answer_column}
    columns = columns_of(rows, told | {"solution": solution_column, "task": task_column})
    llm = None
    if endpoint and model:
        llm = Endpoint.of(endpoint, model, seed=seed, concurrency=concurrency, retries=retries, timeout=timeout)
    needy = [name for name in names if name == "text" or (name.startswith("hint") and columns.solution is None)]
    if needy and llm is None:
        raise ConfigurationError(
            f"--kinds {','.join(needy)} needs an LLM: set --endpoint and --model. Hints need none where "
            "--solution_column names a column of solutions."
        )
    if font is not None:
        try:
            question_drawn(Image.new("RGB", (9, 9)), "?", str(font))
        except OSError as error:
            raise ConfigurationError(f"--font {font}: {error}. Give a TrueType or OpenType file.") from error
    target = HubTarget(push_to_hub, "dataset", private=private) if push_to_hub else None
    target = target and ensure_repo(target)
    maker = Maker(names, columns, seed, llm, safe, instruction, text_only, str(font) if font else None)
    about = {"name": Path(dataset).name, "split": split, "seed": seed, "model": model, "command": _command(locals())}
    counts = build(rows, maker, output_dir, about=about, split=split, allow_missing=allow_missing)
    if as_json:
        typer.echo(json.dumps(counts, indent=2))
    else:
        print_columns("Variants", *counts_table(counts), text=2)
    typer.echo(f'Written: {output_dir}. load_dataset("{output_dir}") reads it.', err=as_json)
    if target:
        typer.echo("Uploading. After an error the same command uploads it again and asks the LLM nothing.", err=True)
        typer.echo(f"Published: {push(output_dir, target)}", err=as_json)


def _command(given: dict[str, Any]) -> str:
    """Return the command for the card, with the options that decide the rows and no folder of this machine."""
    place = given["dataset"]
    words = ["trl-vade", "variants", Path(place).name if Path(place).exists() else place]
    words += ["--kinds", ",".join(given["names"]), "--seed", str(given["seed"])]
    for name in ("dataset_config", "split", "revision", "limit", "instruction", "model"):
        words += [] if given[name] in (None, "train") else [f"--{name}", str(given[name])]
    for name in ("prompt", "image", "answer", "solution", "task"):
        words += [f"--{name}_column", given[f"{name}_column"]] if given[f"{name}_column"] else []
    words += [word for text in given["safe_for"] or () for word in ("--safe_for", text)]
    return shlex.join([*words, *(["--text_only"] if given["text_only"] else [])])
