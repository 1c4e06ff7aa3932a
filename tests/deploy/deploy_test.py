"""The Dockerfile and deploy/ name only things that exist.

No Docker engine is needed: COPY sources are looked up in the tree, apt
packages in apt's lists (where there are any), flags in the programs.
"""

import pathlib
import re
import shutil
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]


def dockerfile_instructions():
    text = (ROOT / "Dockerfile").read_text()
    text = re.sub(r"^#.*\n", "", text, flags=re.MULTILINE)
    joined = re.sub(r"\\\n\s*", " ", text)
    return [line.split(None, 1) for line in joined.splitlines() if line.strip()]


def copied_paths():
    """Sources of every COPY from the build context."""
    for instruction, rest in dockerfile_instructions():
        if instruction == "COPY" and "--from=" not in rest:
            yield from rest.split()[:-1]


def apt_packages():
    """Packages of each apt-get install, one list per stage."""
    for instruction, rest in dockerfile_instructions():
        for command in rest.split("&&") if instruction == "RUN" else []:
            words = command.split()
            if words[:2] == ["apt-get", "install"]:
                yield [w for w in words[2:] if not w.startswith("-")]


def test_copied_paths_exist():
    paths = list(copied_paths())
    assert paths
    assert [p for p in paths if not (ROOT / p).exists()] == []


def test_everything_cmake_includes_is_copied():
    text = (ROOT / "CMakeLists.txt").read_text()
    # Tests and benchmarks are off in the release preset.
    always = text.split("if(ROUTEPACK_BUILD_TESTS)")[0]
    used = re.findall(r"add_subdirectory\((\w+)", always) + ["cmake"]
    assert set(used) <= set(copied_paths())


def test_image_is_multi_stage_non_root_and_has_a_health_check():
    names = [name for name, _ in dockerfile_instructions()]
    assert names.count("FROM") == 2
    last_stage = names[len(names) - names[::-1].index("FROM") :]
    assert {"USER", "HEALTHCHECK", "ENTRYPOINT"} <= set(last_stage)


@pytest.mark.skipif(not shutil.which("apt-cache"), reason="no apt here")
def test_apt_packages_exist():
    os_release = pathlib.Path("/etc/os-release").read_text()
    if "VERSION_CODENAME=bookworm" not in os_release:
        pytest.skip("the image is Debian 12, this is not")
    stages = list(apt_packages())
    assert len(stages) == 2
    wanted = set(stages[0]) | set(stages[1])
    shown = subprocess.run(
        ["apt-cache", "show", "--no-all-versions", *wanted],
        capture_output=True,
        text=True,
    ).stdout
    known = set(re.findall(r"^Package: (\S+)$", shown, re.M))
    assert wanted - known == set()


def test_runtime_stage_has_every_shared_library(programs):
    """What ldd lists comes from the runtime stage's packages or from what they
    depend on."""
    if not shutil.which("dpkg-query"):
        pytest.skip("no dpkg here")
    wanted = list(apt_packages())[1]
    depends = subprocess.run(
        [
            "apt-cache",
            "depends",
            "--recurse",
            "--no-recommends",
            "--no-suggests",
            "--no-conflicts",
            "--no-breaks",
            "--no-replaces",
            "--no-enhances",
            *wanted,
        ],
        capture_output=True,
        text=True,
    ).stdout
    closure = set(re.findall(r"^(\S+)$", depends, flags=re.MULTILINE))
    needed = {}
    for program in programs:
        listed = subprocess.run(
            ["ldd", program], capture_output=True, text=True
        ).stdout
        if "san.so" in listed:
            pytest.skip("a sanitizer build is not what is shipped")
        needed.update(re.findall(r"(\S+) => (/\S+)", listed))
    assert needed
    owners = owners_of(needed.values())
    for name, path in needed.items():
        assert owners.get(path) in closure, f"{name} of {owners.get(path)}"


def owners_of(paths):
    """Debian package of each shared library."""
    # ldd may name /lib, dpkg the file under /usr/lib, or the other way round.
    candidates = {}
    for path in paths:
        real = str(pathlib.Path(path).resolve())
        for name in (path, real, "/usr" + path, real.removeprefix("/usr")):
            candidates[name] = path
    found = subprocess.run(
        ["dpkg-query", "-S", *candidates], capture_output=True, text=True
    ).stdout
    return {
        candidates[name]: package
        for package, name in re.findall(r"^([^:\s]+)\S*: (\S+)$", found, re.M)
    }


@pytest.mark.parametrize(
    "path", ["Dockerfile", "deploy/compose.yaml", "deploy/routepackd.service"]
)
def test_flags_named_in_deployment_exist(path, programs):
    text = (ROOT / path).read_text()
    known = "".join(
        subprocess.run([p, *args], capture_output=True, text=True).stdout
        for p, args in [
            (programs[0], ["--help"]),
            (programs[1], ["info", "--help"]),
        ]
    )
    lines = [
        line
        for line in text.splitlines()
        if "routepack" in line or "--listen" in line
    ]
    flags = set(re.findall(r"--([a-z_]+)", "\n".join(lines)))
    docker = {"rm", "from", "system", "uid", "no", "preset", "component", "now"}
    assert [f for f in sorted(flags - docker) if f"--{f}" not in known] == []
