"""The stored results make the tables of the pages, to the letter."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from torchapl.cli import main

ROOT = Path(__file__).parents[2]
STORED = ROOT / "results" / "lab.jsonl"
TABLES = ROOT / "results" / "lab.md"
STUDY = ROOT / "results" / "study.jsonl"
STUDY_TABLES = ROOT / "results" / "study.md"
# How rows of results start, as opposed to those of other tables on the pages.
_METHODS = (
    "| CNN +",
    "| NIN +",
    "| DNN +",
    "| Fast ResNet +",
    "| ReLU |",
    "| APL, S =",
    "| CIFAR-10 CNN |",
    "| CIFAR-100 CNN |",
    "| Higgs DNN |",
)


@pytest.mark.parametrize(
    ("scale", "stored", "tables", "options"),
    [
        ("lab", STORED, TABLES, []),
        # A scale that has no recipe for most networks of these tables.
        ("study", STUDY, STUDY_TABLES, ["--selection-seeds", "0"]),
    ],
)
def test_one_command_makes_the_tables_from_the_stored_results(
    scale: str, stored: Path, tables: Path, options: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["reproduce", "all", "--scale", scale, "--runs", str(stored), "--markdown"]
    assert main([*command, *options]) == 0
    assert capsys.readouterr().out == tables.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("first", "stored", "commands"),
    [("for row in relu leaky", STUDY, 3), ("for data in cifar10", STORED, 5)],
)
def test_what_the_commands_of_the_page_ask_for_is_stored(
    first: str, stored: Path, commands: int
) -> None:
    page = (ROOT / "docs" / "reproduction.md").read_text(encoding="utf-8")
    block = next(part for part in page.split("```bash\n") if part.startswith(first))
    torchapl = f'{sys.executable} -m torchapl.cli "$@" --dry-run --runs {stored} | tail -n 1'
    script = f"set -e\ntorchapl() {{ {torchapl}; }}\n{block.partition('```')[0]}"
    command = ["bash", "-c", script]
    told = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    assert [line.split(",")[0] for line in told.splitlines()] == ["in all 0 runs"] * commands


def test_learned_hinges_are_compared_with_frozen_ones(capsys: pytest.CaptureFixture[str]) -> None:
    command = ["reproduce", "table3", "--scale", "study", "--runs", str(STUDY), "--markdown"]
    assert main([*command, "--selection-seeds", "0", "--baseline", "apl-s1-frozen"]) == 0
    learned = next(
        line for line in capsys.readouterr().out.splitlines() if line.startswith("| APL, S = 1 |")
    )
    assert "| -2.64 +- 2.53 |" in learned


def test_runs_of_a_scale_that_has_some_networks_only_have_a_report(tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    assert main(["report", str(STUDY), "-o", str(page)]) == 0
    assert "Hinges per unit" in page.read_text(encoding="utf-8")


def test_pages_show_what_the_command_prints() -> None:
    printed = set((TABLES.read_text("utf-8") + STUDY_TABLES.read_text("utf-8")).splitlines())
    lines = (ROOT / "docs" / "reproduction.md").read_text(encoding="utf-8").splitlines()
    shown = [line for line in lines if line.startswith(_METHODS)]
    assert shown, "no results on this page"
    assert [line for line in shown if line not in printed] == []


def test_the_front_page_shows_means_of_what_the_command_prints() -> None:
    rows = [line.split(" | ") for line in TABLES.read_text(encoding="utf-8").splitlines()]
    printed: dict[tuple[str, str], str] = {}
    for row in rows:
        if len(row) > 3:
            # The AUC; significances follow it.
            printed.setdefault((row[0].removeprefix("| "), row[1]), row[3].split(" ")[0])
    lines = (ROOT / "README.md").read_text(encoding="utf-8").splitlines()
    first = next(number for number, line in enumerate(lines) if line.startswith("| test error"))
    titles = ["PReLU", "SiLU", "APL per channel, the library's default"]
    shown = 0
    for line in lines[first + 2 :]:
        if not line.startswith("| "):
            break
        data, *means = line.replace("*", "").strip("| ").split(" | ")
        assert means == [printed[title, data] for title in titles], data
        shown += 1
    assert shown >= 4


def test_every_result_says_how_it_came_about() -> None:
    for line in STORED.read_text(encoding="utf-8").splitlines():
        result = json.loads(line)
        assert len(result["commit"]) == 12, "made with uncommitted changes"
        assert result["seconds"] > 0
        assert result["settings"]
        assert {"torch", "torchapl"} <= result["versions"].keys()
