"""Runs a selection of tests on other releases of the libraries that omnigraph needs.

    python tools/try_versions.py lowest [--python 3.13] [--with pylance==13.0.0] [TEST ...]

`lowest` installs the lowest release that `pyproject.toml` allows of each library, `newest` the
newest. `--python` is a version or a path. `--with` then installs one release more, also one that
`pyproject.toml` does not allow. The environment is made anew in `build/versions/`. Warnings are not
errors: a library may deprecate something long before it fails. Ends with the code of pytest.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Final

RESOLUTIONS: Final = {"lowest": "lowest-direct", "newest": "highest"}
TOOLS: Final = (
    "pytest>=9",
    "pytest-timeout",
    "hypothesis",
    "moto[s3,server]",
    "polars",
    "pandas<3",
    "pyspark[connect]>=4.2,<5",
)
"""What the tests need besides the libraries under test."""
TESTS: Final = (
    *("tests/store/test_lance_facts.py", "tests/store/test_datasets.py"),
    *("tests/store/test_objects.py", "tests/store/test_filters.py"),
    *("tests/schema/test_cases.py", "tests/schema/test_convert_arrow.py"),
    *("tests/query/test_check.py", "tests/query/test_parse.py"),
    *("tests/manifest/test_publish.py", "tests/manifest/test_branches.py"),
    *("tests/read/test_cases.py", "tests/read/test_result.py", "tests/read/test_result_file.py"),
    *("tests/read/test_text_lookup.py", "tests/read/test_vector_index.py"),
    *("tests/write/test_load.py", "tests/write/test_load_formats.py"),
    *("tests/write/test_mutate.py", "tests/write/test_schema_apply.py"),
    *("tests/write/test_optimize.py", "tests/merge/test_merge_cases.py"),
    *("tests/changes/test_feed.py", "tests/recovery/test_sweep.py", "tests/cli/test_query.py"),
    *("tests/cli/test_cli.py", "tests/cli/test_completion.py", "tests/test_strict_yaml.py"),
)
"""A test file or more of each room that works with one of the libraries."""
ENVIRONMENTS: Final = Path("build/versions")


def make_environment(python: str, resolution: str, extra: list[str]) -> Path:
    """Install the libraries, without omnigraph, and return the interpreter."""
    folder = ENVIRONMENTS / f"{resolution}-{python.strip('/').replace('/', '-')}"
    shutil.rmtree(folder, ignore_errors=True)
    uv("venv", "--quiet", "--python", python, str(folder))
    interpreter = folder / "bin" / "python"
    install = ("pip", "install", "--quiet", "--python", str(interpreter))
    uv(*install, "--resolution", RESOLUTIONS[resolution], "-r", "pyproject.toml")
    # The tools of the tests must not replace a library that is to be tried.
    chosen = folder / "libraries.txt"
    installed = uv("pip", "freeze", "--python", str(interpreter), is_read=True).splitlines()
    tried = library_names()
    chosen.write_text("\n".join(line for line in installed if line.partition("==")[0] in tried))
    uv(*install, "--constraints", str(chosen), *TOOLS)
    if extra:
        uv(*install, "--no-deps", *extra)
    uv(*install, "--no-deps", "-e", ".")
    uv("pip", "freeze", "--python", str(interpreter))
    return interpreter


def library_names() -> set[str]:
    """Return the names of the libraries that `pyproject.toml` asks for."""
    with Path("pyproject.toml").open("rb") as file:
        wanted = tomllib.load(file)["project"]["dependencies"]
    return {re.split(r"[^\w-]", each, maxsplit=1)[0] for each in wanted}


def uv(*arguments: str, is_read: bool = False) -> str:
    """Run uv, the one next to this Python if there is one; return what it prints, if asked for."""
    installed = Path(sys.executable).with_name("uv")
    command = [str(installed) if installed.exists() else "uv", *arguments]
    output = subprocess.PIPE if is_read else None
    done = subprocess.run(command, check=True, stdout=output, text=True)  # noqa: S603 - our own command
    return done.stdout or ""


def main() -> int:
    """Make the environment and run the tests."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("resolution", choices=RESOLUTIONS)
    parser.add_argument("--python", default="3.11")
    parser.add_argument("--with", dest="extra", action="append", default=[])
    parser.add_argument("tests", nargs="*", default=TESTS)
    asked = parser.parse_intermixed_args()
    interpreter = make_environment(asked.python, asked.resolution, asked.extra)
    command = [
        *(str(interpreter), "-m", "pytest", "-q", "-W", "default"),
        *("-m", "not slow and not spark", "-p", "no:cacheprovider", *asked.tests),
    ]
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    return subprocess.run(command, env=environment, check=False).returncode  # noqa: S603


if __name__ == "__main__":
    sys.exit(main())
