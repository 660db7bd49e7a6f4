"""An example request as a program that sends it: curl, Python, JavaScript and Go.

`$NAME` in a header stands for a credential, which all of them take from the environment.
"""

import json
import re
import shlex
from collections.abc import Callable
from pprint import pformat
from typing import Any, Final

_CREDENTIAL: Final = re.compile(r"^(.*?)\$([A-Z_]+)$")


def curl(base: str, example: dict[str, Any]) -> str:
    """A command of a shell."""
    lines = [f"curl -i {shlex.quote(base + example['target'])}"]
    for name, value in example.get("headers", {}).items():
        lines.append(f'-H "{name}: {value}"')
    if "body" in example:
        lines.append(f"-d {shlex.quote(_body(example))}")
    return " \\\n  ".join(lines)


def python(base: str, example: dict[str, Any]) -> str:
    """A script with `requests`."""
    headers = {
        name: _credential(value, 'os.environ["{}"]', " + ")
        for name, value in example.get("headers", {}).items()
    }
    lines = ["import os", ""] if "os.environ" in "".join(headers.values()) else []
    lines += ["import requests", "", "answer = requests.request("]
    lines += [f"    {_quoted(example['method'])},", f"    {_quoted(base + example['target'])},"]
    if headers:
        lines.append(f"    headers={_mapping(headers, '    ')},")
    if "body" in example:
        literal = pformat(example["body"], width=72, sort_dicts=False).replace("\n", "\n" + " " * 9)
        lines.append(f"    json={literal},")
    return "\n".join([*lines, "    timeout=10,", ")", "print(answer.status_code, answer.text)"])


def javascript(base: str, example: dict[str, Any]) -> str:
    """A module for Node 18 or newer."""
    headers = {
        name: _credential(value, "process.env.{}", " + ")
        for name, value in example.get("headers", {}).items()
    }
    lines = [f"const answer = await fetch({_quoted(base + example['target'])}, {{"]
    lines.append(f"  method: {_quoted(example['method'])},")
    if headers:
        lines.append(f"  headers: {_mapping(headers, '  ')},")
    if "body" in example:
        lines.append(f"  body: JSON.stringify({_body(example, '  ')}),")
    return "\n".join([*lines, "});", "console.log(answer.status, await answer.text());"])


def go(base: str, example: dict[str, Any]) -> str:
    """A program of the standard library alone."""
    headers = {
        name: _credential(value, 'os.Getenv("{}")', "+")
        for name, value in example.get("headers", {}).items()
    }
    body = f"strings.NewReader({_raw(_body(example))})" if "body" in example else "nil"
    packages = ["fmt", "io", "log", "net/http"]
    packages += ["os"] if "os.Getenv" in "".join(headers.values()) else []
    packages += ["strings"] if "body" in example else []
    return "\n".join(
        [
            "package main",
            "",
            "import (",
            *(f'\t"{package}"' for package in packages),
            ")",
            "",
            "func main() {",
            f"\trequest, err := http.NewRequest({_quoted(example['method'])}, "
            f"{_quoted(base + example['target'])}, {body})",
            *_fatal(),
            *(f"\trequest.Header.Set({_quoted(name)}, {value})" for name, value in headers.items()),
            "\tanswer, err := http.DefaultClient.Do(request)",
            *_fatal(),
            "\tdefer answer.Body.Close()",
            "\ttext, err := io.ReadAll(answer.Body)",
            *_fatal(),
            "\tfmt.Println(answer.StatusCode, string(text))",
            "}",
        ]
    )


SAMPLES: Final[dict[str, Callable[[str, dict[str, Any]], str]]] = {
    "curl": curl,
    "Python": python,
    "JavaScript": javascript,
    "Go": go,
}
"""By language, in the order of the tabs."""


def _body(example: dict[str, Any], indent: str = "") -> str:
    text = json.dumps(example["body"], indent=2, ensure_ascii=False)
    return text.replace("\n", f"\n{indent}")


def _quoted(text: str) -> str:
    """A literal of Python, JavaScript and Go alike."""
    return json.dumps(text)


def _raw(text: str) -> str:
    return f"`{text}`" if "`" not in text else _quoted(text)


def _credential(value: str, read: str, plus: str) -> str:
    """A header's value as an expression; a credential is read from the environment."""
    match = _CREDENTIAL.match(value)
    if match is None:
        return _quoted(value)
    before, name = match.groups()
    taken = read.format(name)
    return f"{_quoted(before)}{plus}{taken}" if before else taken


def _mapping(entries: dict[str, str], indent: str) -> str:
    inner = "".join(f"{indent * 2}{_quoted(name)}: {value},\n" for name, value in entries.items())
    return f"{{\n{inner}{indent}}}"


def _fatal() -> list[str]:
    return ["\tif err != nil {", "\t\tlog.Fatal(err)", "\t}"]
