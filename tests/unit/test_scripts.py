import re

import pytest

from snapbid.ledger.scripts import of_worker, scripts

OF_LUA = frozenset((
    "and", "elseif", "for", "function", "if", "in", "not", "or", "return", "until", "while",
    "ipairs", "pairs", "tonumber", "tostring", "type", "unpack",
))  # fmt: skip
USES = re.compile(r"(?<![\w.:])([a-z_]+)\(")
FOR_LIMITS = {
    "remember": {"admit", "close_allowances", "undo_admission"}
}  # what it never comes to without limits
CODE_OF_SEVERAL = ("request_refill", "grants", "post")


def code(text: str) -> str:
    """A script without its comments and strings."""
    return re.sub(r"'[^'\n]*'", "''", re.sub(r"--.*", "", text))


@pytest.mark.parametrize("shards", [1, 3])
@pytest.mark.parametrize("simulated", [False, True])
def test_a_script_has_the_functions_that_it_uses_and_no_others(
    simulated: bool, shards: int
) -> None:
    for name, text in scripts(simulated, shards).items():
        own = code(text)
        whole = set(re.findall(r"^local function (\w+)\(", own, re.MULTILINE))
        for piece in re.split(r"^(local function .*?^end$)", own, flags=re.MULTILINE | re.DOTALL):
            inner = set(re.findall(r"function (\w+)\(", piece))
            given = set(re.findall(r"\w+", " ".join(re.findall(r"function\b.*?\((.*?)\)", piece))))
            unknown = set(USES.findall(piece)) - OF_LUA - whole - inner - given
            assert unknown <= FOR_LIMITS.get(name, set()), name
        for function in whole:
            assert len(re.findall(rf"\b{function}\b", own)) > 1, (name, function)


def test_what_is_rare_is_made_where_it_is_called() -> None:
    settle = scripts()["settle"]
    for function in ("each_record", "is_expired"):
        assert f"\n  local function {function}(" in settle
        assert f"\nlocal function {function}(" not in settle


def test_constants_stand_in_their_places() -> None:
    texts = scripts(shards=3)
    assert "shard = 0, 3 - 1 do" in texts["sweep"]
    assert "if step and step > 0 and step <= 1000 then" in texts["heartbeat"]
    assert "step <= 2^52" in scripts(simulated=True)["heartbeat"]
    for name, text in texts.items():
        assert not re.search(r"^local [A-Z_]+ = [-\d']", text, re.MULTILINE), name


def test_what_several_shards_need_one_does_not_have() -> None:
    one, several = "".join(of_worker(False, 1).values()), "".join(of_worker(False, 2).values())
    for function in CODE_OF_SEVERAL:
        assert f"local function {function}(" in several
        assert f"local function {function}(" not in one
