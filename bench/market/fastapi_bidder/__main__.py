"""python -m bench.market.fastapi_bidder: one worker on SNAPBID_PORT, on the product's stores."""

import os

from bench.peers.uvicorn_server import run

if __name__ == "__main__":
    run("bench.market.fastapi_bidder.app:app", int(os.environ["SNAPBID_PORT"]))
