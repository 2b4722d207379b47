"""The two commands of a fresh clone on machines that will not do, and what the packaging promises."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tomllib
from importlib import metadata
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
TOOLS = ("sh", "dirname", "awk", "cat", "cksum", "id", "ls", "mktemp", "rm", "uname")


@pytest.fixture
def machine(tmp_path):
    """A clone on a machine with nothing but the basic tools: ``bin`` is all of PATH."""
    clone, tools = tmp_path / "clone", tmp_path / "bin"
    (clone / ".ci").mkdir(parents=True)
    tools.mkdir()
    for name in (
        "start",
        "check",
        ".ci/prepare.sh",
        "pyproject.toml",
        "requirements.lock",
        "requirements-dev.lock",
    ):
        shutil.copy(ROOT / name, clone / name)
    for name in TOOLS:
        (tools / name).symlink_to(shutil.which(name))
    return clone


def script(machine: Path, name: str, text: str) -> None:
    tool = machine.parent / "bin" / name
    tool.unlink(missing_ok=True)
    tool.write_text(f"#!{shutil.which('sh')}\n{text}\n")
    tool.chmod(0o755)


def run(machine: Path, command: str = "./start", **more):
    return subprocess.run(
        [command],
        cwd=machine,
        env={"PATH": str(machine.parent / "bin"), "HOME": str(machine)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        **more,
    )


@pytest.mark.parametrize("command", ["./start", "./check"])
def test_elsewhere_than_linux_it_is_one_clear_line(machine, command):
    script(machine, "uname", "echo Darwin")
    done = run(machine, command)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "Shiftwork runs on Linux only (a container or WSL2 will do); this is Darwin.\n"


@pytest.mark.parametrize(
    ("release", "fits"),
    [("5.12.9", False), ("4.19.0-26-amd64", False), ("5.13.0", True), ("6.1.0", True), ("10.2", True)],
)
def test_an_old_kernel_is_told(machine, release, fits):
    script(machine, "uname", f'[ "$1" = -r ] && echo {release} || echo Linux')
    done = run(machine)
    assert done.returncode == 1  # there is no Python either
    assert ("needs Linux 5.13 or later" in done.stderr) is not fits


@pytest.mark.parametrize("command", ["./start", "./check"])
def test_without_python_it_says_what_to_install(machine, command):
    done = run(machine, command)
    assert (done.returncode, done.stdout) == (1, "")
    first, *install, last = done.stderr.splitlines()
    assert first == "Shiftwork needs Python 3.11 or later; none was found. Install it:"
    assert any("apt install python3 python3-pip python3-venv" in line or "dnf" in line for line in install)
    assert last == f"Then run {command} again."
    assert not (machine / ".venv").exists()


def test_an_old_python_is_named_with_its_version(machine):
    script(machine, "python3", 'case "$2" in *print*) echo 3.9 ;; *) exit 1 ;; esac')
    assert "Python 3.11 or later; python3 here is 3.9. Install it:" in run(machine).stderr


def test_a_name_that_only_pretends_to_be_python_is_passed_over(machine):
    script(machine, "python3.13", 'echo "version manager: no such version" >&2; exit 127')
    assert "none was found" in run(machine).stderr


def test_a_python_without_venv_is_told_with_the_package_that_has_it(machine):
    script(machine, "python3", 'case "$2" in *ensurepip*) exit 1 ;; *print*) echo 3.11 ;; esac')
    done = run(machine)
    assert done.returncode == 1
    assert done.stderr.startswith(
        "Python 3.11 is here, but not its modules venv and ensurepip. Install them:\n"
    )
    assert "python3.11-venv" in done.stderr or "apt" not in done.stderr


@pytest.mark.parametrize(
    ("system", "words"),
    [
        ("ID=ubuntu\nID_LIKE=debian", ["sudo apt install python3 python3-pip python3-venv"]),
        ("ID=fedora", ["sudo dnf install python3 python3-pip"]),
        ("ID=arch", ["sudo pacman -S python"]),
        ("ID=other", ["apt install", "dnf install", "pacman -S"]),
        (None, ["apt install", "dnf install", "pacman -S"]),
    ],
)
def test_it_speaks_the_words_of_the_distribution(machine, system, words):
    release = machine / "os-release"
    if system is not None:
        release.write_text(system + "\n")
    prepare = machine / ".ci" / "prepare.sh"
    prepare.write_text(prepare.read_text().replace("/etc/os-release", str(release)))
    told = run(machine).stderr
    assert all(word in told for word in words)
    assert len([word for word in ("apt", "dnf", "pacman") if f"sudo {word} " in told]) == len(words)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
def test_a_folder_that_cannot_be_written_is_told_with_its_owner(machine):
    for folder in (machine, *machine.parents):
        if folder.owner() == "root" and folder != Path("/tmp"):
            folder.chmod(0o755)
    done = run(machine, user=65534, group=65534, extra_groups=[])
    assert done.returncode == 1
    assert done.stderr.startswith(f"Cannot write to {machine} (owner root, you are ")


def test_an_unknown_step_of_check_is_refused_before_anything_is_installed(machine):
    done = subprocess.run(["./check", "lnit"], cwd=machine, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == 'There is no step "lnit". Steps: lint format types imports tests wheel\n'
    assert not (machine / ".venv").exists()


def test_a_failing_step_fails_the_check_and_the_others_still_run(machine):
    prepare = machine / ".ci" / "prepare.sh"
    prepare.write_text(prepare.read_text() + "\ninstall() { :; }\n")  # no tool is there: every step fails
    done = run(machine, "./check")
    assert done.returncode == 1
    assert done.stdout.endswith("== failed: lint format types imports tests wheel\n")


def test_all_scripts_are_plain_posix_sh():
    for name in ("start", "check", ".ci/run", ".ci/relock", ".ci/test-wheel", ".ci/prepare.sh"):
        text = (ROOT / name).read_text()
        assert name.endswith(".sh") or text.startswith("#!/bin/sh\n"), name
        assert subprocess.run(["sh", "-n", ROOT / name], check=False).returncode == 0
        assert not re.search(r"\[\[|\bfunction \w|\blocal \w|<<<", text), f"{name}: not POSIX"


# --- packaging ------------------------------------------------------------------------------------------------------


def pins(name: str) -> dict[str, str]:
    lines = (ROOT / name).read_text().splitlines()
    return dict(line.split("==") for line in lines if line and not line.startswith(("#", "-r ")))


def wanted(requirements) -> list[str]:
    return [re.split(r"[<>=!~; \[]", requirement, maxsplit=1)[0].lower() for requirement in requirements]


def test_every_requirement_is_pinned_and_no_pin_names_a_place():
    assert set(wanted(PROJECT["project"]["dependencies"])) <= set(pins("requirements.lock"))
    assert set(wanted(PROJECT["project"]["optional-dependencies"]["dev"])) <= set(
        pins("requirements-dev.lock")
    )
    for name in ("requirements.lock", "requirements-dev.lock"):
        assert "://" not in (ROOT / name).read_text()
        assert "--" not in (ROOT / name).read_text()


def test_the_pins_are_closed_every_requirement_of_a_pin_is_pinned_too():
    locked = pins("requirements.lock")
    for name in locked:
        for line in metadata.requires(name) or ():
            requirement, _, condition = line.partition(";")
            if condition.strip():
                continue  # extras and other platforms
            inner = wanted([requirement])[0].replace("_", "-").replace(".", "-")
            assert inner in locked or inner == "pip", f"{name} needs {inner}"


def test_what_is_pinned_is_what_is_tested():
    """A test that ran with other versions proves nothing of the pinned ones."""
    for name, version in pins("requirements.lock").items():
        assert metadata.version(name) == version, f"{name}: bring .venv up to date with ./check"


def test_the_scheduler_stays_below_its_next_major_version():
    """FIELD 30."""
    assert "apscheduler>=3.11.2,<4" in PROJECT["project"]["dependencies"]


def test_the_package_whose_name_others_use_holds_a_docstring_only():
    """STYLE: python-daemon overwrites ``daemon/__init__.py``; nothing may depend on what stands in it."""
    import ast

    (statement,) = ast.parse((ROOT / "daemon" / "__init__.py").read_text()).body
    assert isinstance(statement, ast.Expr)


def test_the_changelog_knows_this_version():
    assert f"## [{PROJECT['project']['version']}]" in (ROOT / "CHANGELOG.md").read_text()


def test_each_ignored_lint_rule_has_its_reason():
    text = (ROOT / "pyproject.toml").read_text()
    ignores = text[text.index("ignore = [") : text.index("[tool.ruff.lint.pycodestyle]")]
    for line in ignores.splitlines():
        if re.match(r'\s+"[A-Z]+[0-9]*",', line):
            assert "  # " in line or ", # " in line or re.search(r"#\s\S", line), line
