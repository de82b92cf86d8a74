"""Shell completion in real shells, the manual page in a real formatter, and their installation for a user."""

import resource
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from gpumon.cli import commands
from gpumon.present.palette import BUILT_IN
from tests.cli.running import GPUMON, is_one_line, run

MAX_SHARE_OF_SCREEN = 0.75
"""CPU time of one completion by that of importing Textual alone. A user waits for it at each press of tab."""

Environment = dict[str, str]


@pytest.fixture
def environment(tmp_path: Path) -> Environment:
    """A home folder that contains nothing, and gpumon on PATH."""
    path = f"{Path(GPUMON).parent}:/usr/local/bin:/usr/bin:/bin"
    return {"HOME": str(tmp_path), "PATH": path, "LC_ALL": "C.UTF-8", "TERM": "xterm"}


def in_shell(shell: str, script: str, environment: Environment) -> str:
    """What a shell prints for a script."""
    if shutil.which(shell) is None:
        pytest.skip(f"needs {shell}")
    options = {"bash": ["--norc", "--noprofile"], "zsh": ["-f"], "fish": ["--no-config"]}[shell]
    done = subprocess.run(
        [shell, *options, "-c", script], env=environment, capture_output=True, text=True, check=True, timeout=60
    )
    return done.stdout


def completed_in_bash(environment: Environment, *lines: str) -> list[set[str]]:
    """What one bash offers after each line, the last word of which is incomplete."""
    script = """
        source <(gpumon completion bash)
        compopt() { :; }  # outside of a completion, bash has none to change
        function=$(complete -p gpumon | sed 's/.*-F \\([^ ]*\\).*/\\1/')
    """
    for line in lines:
        words = [f"'{word}'" for word in line.split(" ")]
        script += f"""
        COMP_WORDS=({" ".join(words)}); COMP_CWORD={len(words) - 1}; COMPREPLY=()
        "$function" gpumon
        echo "${{COMPREPLY[@]}}"
        """
    return [set(line.split()) for line in in_shell("bash", script, environment).splitlines()]


def test_bash_completes_commands_workloads_themes_and_metrics(environment: Environment, tmp_path: Path) -> None:
    file = tmp_path / ".config" / "gpumon" / "config.toml"
    file.parent.mkdir(parents=True)
    file.write_text('[themes.sea]\nprimary = "#048"\n')
    expected = {
        "gpumon re": {"record", "recorder", "replay", "report", "results"},
        "gpumon run mat": {"matmul"},
        "gpumon --theme ": {*BUILT_IN, "sea"},
        "gpumon demo --theme hi": {"high-contrast"},
        "gpumon export --metrics power_watts,power_l": {"power_watts,power_limit_watts"},
        "gpumon completion ": {"bash", "zsh", "fish"},
    }
    *offered, errors = completed_in_bash(environment, *expected, "gpumon explain --id xid-7")
    assert dict(zip(expected, offered, strict=True)) == expected
    assert errors >= {"xid-74", "xid-79"}


def test_zsh_and_fish_load_the_script(environment: Environment) -> None:
    script = "autoload -Uz compinit; compinit -u -D; source <(gpumon completion zsh); print ${_comps[gpumon]}"
    assert in_shell("zsh", script, environment).strip() == "_gpumon_completion"


def test_fish_completes_commands(environment: Environment) -> None:
    script = "gpumon completion fish | source; complete --do-complete 'gpumon re'"
    assert set(in_shell("fish", script, environment).split()) >= {"record", "replay", "results"}


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("shell", "file"),
    [
        ("bash", ".local/share/bash-completion/completions/gpumon"),
        ("zsh", ".local/share/zsh/site-functions/_gpumon"),
        ("fish", ".config/fish/completions/gpumon.fish"),
    ],
)
def test_installing_completion_twice_changes_nothing(
    shell: str, file: str, environment: Environment, tmp_path: Path
) -> None:
    script = run("completion", shell, env=environment).stdout
    first = run("completion", shell, "--install", env=environment)
    assert (first.returncode, first.stderr) == (0, "")
    assert first.stdout.startswith(f"Installed: {tmp_path / file}\n")
    assert (tmp_path / file).read_text() == script
    changed = (tmp_path / file).stat().st_mtime_ns
    second = run("completion", shell, "--install", env=environment)
    assert second.stdout == first.stdout.replace("Installed", "Already installed")
    assert (tmp_path / file).stat().st_mtime_ns == changed


def test_a_file_that_gpumon_did_not_write_stays(environment: Environment, tmp_path: Path) -> None:
    for command, name in (
        (["completion", "fish"], ".config/fish/completions/gpumon.fish"),
        (["man"], ".local/share/man/man1/gpumon.1"),
    ):
        file = tmp_path / name
        file.parent.mkdir(parents=True)
        file.write_text("mine")
        done = run(*command, "--install", env=environment)
        assert done.returncode == 2
        assert is_one_line(done.stderr)
        assert "is not gpumon's" in done.stderr
        assert file.read_text() == "mine"


@pytest.mark.long
def test_a_completion_is_fast_and_imports_neither_the_screen_nor_torch(environment: Environment) -> None:
    variables = {**environment, "_GPUMON_COMPLETE": "bash_complete", "COMP_WORDS": "gpumon run ", "COMP_CWORD": "2"}

    def run_program(program: str) -> tuple[float, subprocess.CompletedProcess[str]]:
        """CPU seconds of a program, and what it printed."""
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        done = subprocess.run(
            [sys.executable, "-c", program], env=variables, capture_output=True, text=True, check=False, timeout=60
        )
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, done

    complete = "from gpumon.cli import main; sys.argv[0] = 'gpumon'; main()"
    _, done = run_program(
        f"import sys, atexit; atexit.register(lambda: print(*sys.modules, file=sys.stderr)); {complete}"
    )
    assert "plain,matmul" in done.stdout.split()
    assert not {"textual", "torch", "pynvml"} & set(done.stderr.split())
    pairs = [(run_program(f"import sys; {complete}")[0], run_program("import textual.app")[0]) for _ in range(4)]
    assert min(own for own, _ in pairs) < MAX_SHARE_OF_SCREEN * min(screen for _, screen in pairs), pairs


# The manual page


def test_the_manual_page_describes_every_command_and_option(environment: Environment) -> None:
    page = run("man", env=environment).stdout
    for name, command in commands.gpumon.commands.items():
        assert f".SS gpumon {name}\n" in page
        for parameter in command.params:
            if parameter.param_type_name == "option":
                assert max(parameter.opts, key=len).replace("-", "\\-") in page
    assert "NO_COLOR" in page
    assert "config.toml" in page
