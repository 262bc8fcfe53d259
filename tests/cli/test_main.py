from __future__ import annotations

import subprocess
import sys

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
