"""One worker of the bidder on SNAPBID_PORT, on the product's stores."""

import argparse
import os

if __name__ == "__main__":
    parser = argparse.ArgumentParser("python -m bench.market.fastapi_bidder", description=__doc__)
    parser.parse_args()
    from bench.peers.uvicorn_server import run

    run("bench.market.fastapi_bidder.app:app", int(os.environ["SNAPBID_PORT"]))
