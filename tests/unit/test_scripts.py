"""The Lua scripts: each file says what it needs, and compaction leaves what a script does."""

import re
from functools import cache
from pathlib import Path

import pytest

import snapbid
from snapbid.ledger.scripts import SELDOM_CALLED, constants, of_worker, script
from snapbid.redisclient.scripts import assemble, compact, includes, load, parts

ROOT = Path(snapbid.__file__).parent
FILES = sorted(ROOT.rglob("*.lua"))
LEDGER = "snapbid.ledger.scripts"
GIVEN = set(constants())  # what a file of the ledger may use besides what it includes
OF_LUA = frozenset((
    "ARGV", "KEYS", "and", "bit", "break", "do", "else", "elseif", "end", "false", "for",
    "function", "if", "in", "ipairs", "local", "math", "nil", "not", "or", "pairs", "redis",
    "repeat", "return", "string", "struct", "table", "then", "tonumber", "tostring", "true",
    "type", "unpack", "until", "while",
))  # fmt: skip


def code(text: str) -> str:
    """A script without its comments and strings."""
    return re.sub(r"'[^'\n]*'", "''", re.sub(r"--.*", "", text))


def defined(text: str) -> set[str]:
    """The names that a file has for those that include it."""
    own = code(text)
    lists = re.findall(r"^local (?!function)([\w, ]+)", own, re.MULTILINE)
    return set(re.findall(r"^local function (\w+)", own, re.MULTILINE)).union(*map(names, lists))


def names(text: str) -> set[str]:
    return set(re.findall(r"\w+", text))


def used(text: str) -> set[str]:
    """The names that a file uses and does not define, by itself or in one of its functions."""
    own = code(text)
    local = set(re.findall(r"\blocal function (\w+)", own))
    for pattern in (
        r"\blocal (?!function)([\w, ]+(?:,\n[\w, ]+)*)",
        r"\bfunction\b\s*\w*\((.*?)\)",
        r"\bfor ([\w, ]+?)(?: in |\s*=)",
    ):
        local = local.union(*map(names, re.findall(pattern, own, re.MULTILINE)))
    own = re.sub(r"([{,]\s*)\w+\s*=(?!=)", r"\1", own)  # keys of tables
    return set(re.findall(r"(?<![\w.:])[A-Za-z_]\w*", own)) - local - OF_LUA


@cache
def package(path: Path) -> str:
    return ".".join(["snapbid", *path.parent.relative_to(ROOT).parts])


def named(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("path", FILES, ids=named)
def test_a_file_includes_what_it_uses_and_nothing_else(path: Path) -> None:
    text = path.read_text()
    unknown = used(text) - (GIVEN if package(path) == LEDGER else set())
    for included in includes(text):
        given = defined(path.with_name(f"{included}.lua").read_text())
        assert unknown & given, included
        unknown -= given
    assert unknown == set()


@pytest.mark.parametrize("path", FILES, ids=named)
def test_includes_stand_at_the_top(path: Path) -> None:
    text = path.read_text()
    assert text.count("-- include") == len(includes(text))


@pytest.mark.parametrize("path", FILES, ids=named)
def test_files_that_are_joined_share_no_names(path: Path) -> None:
    joined = parts(package(path), path.stem)
    owners: dict[str, str] = {}
    for name, text in joined.items():
        for own in defined(text):
            assert owners.setdefault(own, name) == name, own


def test_python_files_have_no_scripts() -> None:
    assert [path for path in ROOT.rglob("*.py") if "redis.call(" in path.read_text()] == []


def test_each_file_is_part_of_a_script() -> None:
    """What no other file includes is asked for by its name."""
    sources = "".join(path.read_text() for path in ROOT.rglob("*.py"))
    included = {name for path in FILES for name in includes(path.read_text())}
    assert [
        it.stem for it in FILES if it.stem not in included and f'"{it.stem}"' not in sources
    ] == []


# -- compaction ------------------------------------------------------------------------------------


def test_comments_change_nothing() -> None:
    for path in FILES:
        if package(path) == LEDGER:
            text = assemble(LEDGER, path.stem, constants())
            bare = re.sub(r" *--.*", "", text)
            assert compact(bare, SELDOM_CALLED).split() == compact(text, SELDOM_CALLED).split()


def test_constants_decide_branches() -> None:
    text = """\
local LEAST = 3
local function one()
  if SHARDS > 1 then
    return several()
  else
    return 'one'
  end
end
local function rest(x)
  if x > 1 then
    if LIMITED and x > LEAST then
      x = 1
    end
  elseif SHARDS > 1 then
    x = 2
  end
  return x
end
return one() .. rest(ARGV[1])
"""
    given = "local SHARDS = 1\nlocal LIMITED = false\n"
    assert (
        compact(given + text)
        == """\
local function one()
  do
    return 'one'
  end
end
local function rest(x)
  if x > 1 then
  elseif 1 > 1 then
    x = 2
  end
  return x
end
return one() .. rest(ARGV[1])
"""
    )


def test_unused_functions_are_dropped() -> None:
    text = """\
local function deeper()
end
local function deep()
  deeper()
end
local a, b = {}, nil
local c = redis.call('TIME')
local base = 'x'
return base
"""
    assert compact(text) == "local c = redis.call('TIME')\nlocal base = 'x'\nreturn base\n"


@pytest.mark.parametrize("shards", [1, 3])
@pytest.mark.parametrize("limited", [False, True])
@pytest.mark.parametrize("simulated", [False, True])
@pytest.mark.parametrize("path", FILES, ids=named)
def test_a_compacted_script_still_has_what_it_uses(
    path: Path, simulated: bool, limited: bool, shards: int
) -> None:
    text = assemble(package(path), path.stem, constants(simulated, shards, limited))
    assert used(compact(text, SELDOM_CALLED)) == set()


def test_functions_move_into_their_rare_callers() -> None:
    text = """\
local function inner(x)
  return x
end
local function outer(x)
  return inner(x)
end
return outer(1)
"""
    nested = """\
local function outer(x)
  local function inner(x)
    return x
  end
  return inner(x)
end
return outer(1)
"""
    assert compact(text) == text
    assert compact(text, {"outer"}) == nested


@pytest.mark.long
def test_rare_functions_have_private_copies() -> None:
    forms = [constants(False, shards, limited) for shards in (1, 3) for limited in (False, True)]
    texts = [
        assemble(LEDGER, path.stem, form)
        for path in FILES
        if package(path) == LEDGER
        for form in forms
    ]
    best = {text: compact(text, SELDOM_CALLED) for text in texts}
    for name in sorted(SELDOM_CALLED):
        others, naming = SELDOM_CALLED - {name}, [text for text in best if name in text]
        assert any(compact(text, others) != best[text] for text in naming), name


def test_single_shard_scripts_omit_multi_shard_code() -> None:
    one, several = "".join(of_worker(False, 1).values()), "".join(of_worker(False, 2).values())
    for function in ("request_refill", "grants", "post"):
        assert f"local function {function}(" in several
        assert f"local function {function}(" not in one


def test_batches_without_limits_omit_budget_code() -> None:
    texts = of_worker(False, 1)
    assert "admit" in texts["remember_limited"]
    for word in ("admit(", "allowance", "within_caps", "contested"):
        assert word not in texts["remember"]


def test_a_script_without_includes_needs_no_constants() -> None:
    assert "redis.call('TIME')" in load("snapbid.queues", "rate")
    assert "now_ms" in script("heartbeat", simulated=True)
