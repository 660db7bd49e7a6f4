"""How much memory a private Redis may use."""

from pathlib import Path

import pytest

from snapbid.embedded import memory


@pytest.mark.parametrize(
    ("membership", "files", "limits"),
    [
        ("0::/\n", {"memory.max": "1000\n"}, [1000]),
        ("0::/\n", {"memory.max": "max\n"}, []),
        ("0::/a/b\n", {"a/b/memory.max": "7", "a/memory.max": "5", "memory.max": "max"}, [7, 5]),
        (
            "9:memory:/a\n3:cpu,cpuacct:/b\n",
            {"memory/a/memory.limit_in_bytes": "9", "b/memory.max": "1"},
            [9],
        ),
        ("0::/gone\n", {}, []),
    ],
)
def test_limits_of_cgroups(
    tmp_path: Path, membership: str, files: dict[str, str], limits: list[int]
) -> None:
    (tmp_path / "membership").write_text(membership)
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert list(memory._limits(tmp_path, tmp_path / "membership")) == limits


def test_no_cgroups(tmp_path: Path) -> None:
    assert not list(memory._limits(tmp_path, tmp_path / "none"))
    assert memory.usable() > 0
