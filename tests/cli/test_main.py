from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from torchapl.cli import COMMANDS, build_parser, main


@pytest.mark.parametrize("command", COMMANDS)
def test_help_has_examples(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        build_parser().parse_args([command, "--help"])
    assert stopped.value.code == 0
    assert f"torchapl {command}" in capsys.readouterr().out


def test_a_mistake_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "no-such-experiment"]) == 2
    assert capsys.readouterr().err.startswith("error: unknown experiment 'no-such-experiment'")


def test_version_and_help_without_a_command(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(["--version"])
    assert stopped.value.code == 0
    assert re.fullmatch(r"torchapl \d+\.\d+\.\d+.*\n", capsys.readouterr().out)
    assert main([]) == 0
    assert "find the best activation for a network" in capsys.readouterr().out


def test_help_does_not_wait_for_torch() -> None:
    code = (
        "import sys; from torchapl.cli import build_parser; build_parser().format_help(); "
        "print(*sorted({'torch', 'numpy', 'rich'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


def test_errors_of_the_file_system_say_what_was_tried(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    stored = ["--runs", str(tmp_path / "file"), "--store", str(tmp_path / "file" / "new.jsonl")]
    assert main(["reproduce", "table3", "--scale", "smoke", *stored]) == 2
    assert f"error: reproduce needs {tmp_path / 'file'}, but the system says: File exists" in (
        capsys.readouterr().err
    )


def test_ctrl_c_is_one_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(args: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr("torchapl.cli.list.run", interrupted)
    assert main(["list"]) == 130
    assert capsys.readouterr().err == "stopped by Ctrl-C\n"


def test_a_reader_may_stop_reading() -> None:
    program = [sys.executable, "-m", "torchapl.cli", "list"]
    with subprocess.Popen(program, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait() == 0
