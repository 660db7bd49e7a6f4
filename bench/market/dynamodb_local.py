"""DynamoDB Local, AWS' stand-in for DynamoDB: from Maven Central, in memory, used over HTTP.

It listens on all interfaces, which no option can change; its telemetry is off.
"""

import base64
import http.client
import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Final

from bench.processes import READY_S, BenchError
from snapbid.embedded.process import spawn, stop
from workload.serving import LOOPBACK, free_ports

VERSION: Final = "2.5.2"
MAIN: Final = "com.amazonaws.services.dynamodbv2.local.main.ServerRunner"
REGION: Final = "us-east-1"
AT_ONCE: Final = 25  # the most items that one call may write
# It checks no signature, but keeps the tables of each access key and region apart.
CREDENTIALS: Final = {"AWS_ACCESS_KEY_ID": "bench", "AWS_SECRET_ACCESS_KEY": "bench"}
SIGNED: Final = (
    f"AWS4-HMAC-SHA256 Credential=bench/20260101/{REGION}/dynamodb/aws4_request,"
    " SignedHeaders=host, Signature=none"
)
POM: Final = f"""\
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>bench</groupId>
  <artifactId>dynamodb-local</artifactId>
  <version>1</version>
  <dependencies>
    <dependency>
      <groupId>com.amazonaws</groupId>
      <artifactId>DynamoDBLocal</artifactId>
      <version>{VERSION}</version>
    </dependency>
  </dependencies>
</project>
"""

Item = dict[str, Any]  # as the wire has it: {"name": {"B": ...}}


class Store:
    """A running DynamoDB Local."""

    def __init__(self, port: int, pid: int) -> None:
        self.port = port
        self.pid = pid

    def create(self, table: str, key: str, kind: str) -> None:
        self._call(
            "CreateTable",
            TableName=table,
            BillingMode="PAY_PER_REQUEST",
            AttributeDefinitions=[{"AttributeName": key, "AttributeType": kind}],
            KeySchema=[{"AttributeName": key, "KeyType": "HASH"}],
        )

    def put(self, table: str, items: Sequence[Item]) -> None:
        """Write the items. Raises BenchError if one is not stored."""
        for some in _batches(items):
            requests = [{"PutRequest": {"Item": item}} for item in some]
            if self._call("BatchWriteItem", RequestItems={table: requests})["UnprocessedItems"]:
                raise BenchError(f"DynamoDB Local did not store all items of {table}")

    def answers(self) -> bool:
        try:
            self._call("ListTables")
        except (OSError, http.client.HTTPException):
            return False
        return True

    def _call(self, operation: str, **parameters: Any) -> Any:
        headers = {
            "X-Amz-Target": f"DynamoDB_20120810.{operation}",
            "Content-Type": "application/x-amz-json-1.0",
            "Authorization": SIGNED,
        }
        with closing(http.client.HTTPConnection(LOOPBACK, self.port, timeout=READY_S)) as client:
            client.request("POST", "/", json.dumps(parameters), headers)
            answer = client.getresponse()
            body = answer.read()
        if answer.status != 200:
            raise BenchError(f"DynamoDB Local refuses {operation}: {body.decode()}")
        return json.loads(body)


def _batches(items: Sequence[Item]) -> Iterator[Sequence[Item]]:
    for start in range(0, len(items), AT_ONCE):
        yield items[start : start + AT_ONCE]


def binary(value: bytes) -> Item:
    return {"B": base64.b64encode(value).decode()}


@contextmanager
def dynamodb_local(scratch: Path) -> Iterator[Store]:
    """Run a new instance on the core of the calling thread. Raises BenchError if that fails."""
    jars = _fetch(scratch / "dynamodb-local")
    (port,) = free_ports(1)
    command = [
        "java",
        "-Xmx512m",
        f"-Dsqlite4java.library.path={jars}",
        "-cp",
        f"{jars}/*",
        MAIN,
        "-inMemory",
        "-disableTelemetry",
        "-port",
        str(port),
    ]
    log = scratch / "dynamodb-local.log"
    server = spawn(command, log=log, env=dict(os.environ))
    try:
        store = Store(port, server.pid)
        deadline = time.monotonic() + READY_S
        while not store.answers():
            if server.poll() is not None or time.monotonic() > deadline:
                raise BenchError(f"DynamoDB Local does not answer:\n{log.read_text()[-2000:]}")
            time.sleep(0.1)
        yield store
    finally:
        stop(server, signal.SIGTERM)


def _fetch(directory: Path) -> Path:
    """Fetch the jars and SQLite's library, from Maven's cache or from Maven Central."""
    for needed in ("java", "mvn"):
        if shutil.which(needed) is None:
            raise BenchError(f"DynamoDB Local needs {needed}, which is not installed (Java 17)")
    directory.mkdir()
    (directory / "pom.xml").write_text(POM)
    jars = directory / "jars"
    goal = ["dependency:copy-dependencies", f"-DoutputDirectory={jars}"]
    if subprocess.run(["mvn", "-B", "-q", *goal], cwd=directory).returncode:
        raise BenchError(f"Maven cannot fetch DynamoDB Local {VERSION}")
    return jars
