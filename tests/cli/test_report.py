from __future__ import annotations

import json
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from torchapl.cli import main
from torchapl.paper.runs import run_folder
from torchapl.runs import RunResult
from torchapl.runs.folder import write_result


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    root = tmp_path / "runs"
    for seed, error in enumerate((84.0, 83.0)):
        for name, shift in (("cifar10-cnn-relu", 0.0), ("cifar10-cnn-apl", -1.5 - seed)):
            result = RunResult(name, "smoke", seed, "finished", {"test_error": error + shift})
            folder = run_folder(root, name, "smoke", seed)
            folder.mkdir(parents=True)
            write_result(folder, result)
    return root


def test_writes_one_page_that_loads_nothing(
    runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "sub" / "page.html"
    assert main(["report", str(runs), "-o", str(page)]) == 0
    assert f"{page}: " in capsys.readouterr().out
    text = page.read_text(encoding="utf-8")
    head = text.partition("<script")[0]
    assert "default-src 'none'" in head
    assert 'src="' not in head
    assert '"81.50 (1.41)"' in text
    assert '"-2.00 +- ' in text
    assert page.stat().st_size < 5_000_000


def test_json_prints_the_tables(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(runs), "--json"]) == 0
    content = json.loads(capsys.readouterr().out)
    cells = {
        cell["experiment"]: cell
        for table in content["tables"]
        if table["name"] == "table1"
        for cell in table["cells"]
    }
    assert cells["cifar10-cnn-relu"]["mean"] == 83.5
    assert cells["cifar10-cnn-apl"]["values"] == {"0": 82.5, "1": 80.5}
    assert cells["cifar10-cnn-apl"]["difference"]["mean"] == -2.0
    assert len(content["runs"]) == 4


def test_figures_are_written(runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (runs / "cifar10-cnn-apl" / "smoke" / "0" / "metrics.jsonl").write_text(
        '{"epoch": 1, "test_error": 82.5}\n'
    )
    assert main(["report", str(runs), "--figures", "figures"]) == 0
    assert (tmp_path / "report.html").exists()
    names = {path.name for path in (tmp_path / "figures").iterdir()}
    assert names == {"learning-cifar10-test_error.png", "learning-cifar10-test_error.pdf"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere"], "no folder of runs at nowhere"),
        (["empty"], "no runs in empty"),
        (["empty/../broken.jsonl"], "is not a file of stored results"),
        (["runs", "-o", "empty"], "--output must be a file"),
        (["runs", "--serve", "--json"], "leave out --json"),
        (["runs", "--serve", "--port", "70000"], "--port must be between"),
    ],
)
def test_wrong_input_is_told_in_one_line(
    runs: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    (tmp_path / "broken.jsonl").write_text("nonsense\n")
    assert main(["report", *arguments]) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ")
    assert message in error
    assert error.count("\n") == 1


def test_serves_until_interrupted(runs: Path) -> None:
    command = [sys.executable, "-m", "torchapl.cli", "report", str(runs), "--serve", "--port", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        address = process.stderr.readline().split()[0]
        assert address.startswith("http://127.0.0.1:")
        with urllib.request.urlopen(address) as answer:
            assert b"<!doctype html>" in answer.read()
        with urllib.request.urlopen(f"{address}payload.json") as answer:
            mark = answer.headers["ETag"]
            assert len(json.load(answer)["runs"]) == 4
        assert _status(f"{address}payload.json", {"If-None-Match": mark}) == 304
        (runs / "cifar10-cnn-apl" / "smoke" / "0" / "result.json").unlink()
        assert _status(f"{address}payload.json", {"If-None-Match": mark}) == 200
        assert _status(f"{address}../pyproject.toml", {}) == 404
        # A foreign name that points here: another site's page must not read the runs.
        assert _status(address, {"Host": "example.org"}) == 403
        process.send_signal(signal.SIGINT)
        assert process.wait() == 0
        assert "Traceback" not in process.stderr.read()


def _status(address: str, headers: dict[str, str]) -> int:
    try:
        with urllib.request.urlopen(urllib.request.Request(address, headers=headers)) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        with error:
            return error.code
