"""What users install: the wheel by itself, in an empty environment, away from the repository."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from headrace.cli import main
from headrace.cli.examples import packaged
from tests.conftest import REPOSITORY


def test_examples_are_written_where_they_are_asked_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main(["examples", str(tmp_path)])
    assert "quickstart.py" in capsys.readouterr().out
    for file in (REPOSITORY / "examples").rglob("*.*"):
        copied = tmp_path / file.relative_to(REPOSITORY)
        assert copied.read_bytes() == file.read_bytes()
    (tmp_path / "examples" / "quickstart.py").write_text("mine")
    with pytest.raises(SystemExit) as refused:
        main(["examples", str(tmp_path)])
    assert refused.value.code == 1
    error = capsys.readouterr().err
    assert error.startswith("error: EXAMPLES_EXIST: ")
    assert error.count("\n") == 1
    assert (tmp_path / "examples" / "quickstart.py").read_text() == "mine"


def test_a_wheel_has_them_beside_its_modules(tmp_path: Path) -> None:
    package = tmp_path / "site-packages" / "headrace"
    (package / "examples").mkdir(parents=True)
    assert packaged(package) == package / "examples"
    assert packaged(REPOSITORY / "src" / "headrace") == REPOSITORY / "examples"


@pytest.mark.slow
@pytest.mark.usefixtures("spark_processes")
def test_the_wheel_alone(tmp_path: Path) -> None:
    """Installed with what it depends on and nothing else; Java is the machine's."""
    run = subprocess.run
    wheels = tmp_path / "wheels"
    build = ["pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "-w", str(wheels)]
    run([sys.executable, "-m", *build, str(REPOSITORY)], check=True)
    run([sys.executable, "-m", "venv", str(tmp_path / "env")], check=True)
    bin_ = tmp_path / "env" / "bin"
    (wheel,) = wheels.iterdir()
    run([str(bin_ / "python"), "-m", "pip", "install", "--quiet", str(wheel)], check=True)
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "PYSPARK"))}
    home = tmp_path / "home"
    home.mkdir()

    def said(*command: str) -> str:
        done = run(
            [str(bin_ / command[0]), *command[1:]],
            cwd=home,
            env=clean,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr[-2_000:]
        return done.stdout

    said("headrace", "examples")
    printed = said("python", "examples/quickstart.py")
    assert "|2      |{2024-05-01 12:10:00, 2024-05-01 12:20:00}|1  |45 |" in printed
    assert "finished" in said("headrace", "run", "examples/pipeline.yaml")
    assert "plain Spark" in said("headrace", "demo", "--seconds", "10")
