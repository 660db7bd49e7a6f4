"""Owns an embedded instance until its input ends, and prints its pids and addresses as JSON.

    python owner.py HOME

Tests run it as a separate process, to kill it or to run it as another user.
"""

import json
import sys
from pathlib import Path

from snapbid.embedded import EmbeddedError, Home, Postgres, Redis


def main() -> None:
    try:
        with Home(Path(sys.argv[1])) as home:
            redis, postgres = Redis(home), Postgres(home)
            redis.start()
            postgres.start()
            home.announce({"SNAPBID_PORT": "1"})
            pids = [server.process.pid for server in (redis, postgres) if server.process]
            told = {"pids": pids, "redis_url": redis.url, "dsn": postgres.dsn}
            print(json.dumps(told), flush=True)
            sys.stdin.read()
            redis.stop()
            postgres.stop()
    except EmbeddedError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
