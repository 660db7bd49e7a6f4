"""Real exchanges against the product: Prebid Server in Go, run beside `snapbid up`.

    make exchange PREBID_SERVER=CHECKOUT     # a checkout of github.com/prebid/prebid-server
    make exchange … RECORD=1                 # and write what it has sent to tests/exchange/cases

`scenarios.py` makes its auctions from `tests/exchange/scenarios.json`; `prebid.py` runs it;
`demands.py` judges answers as it does, also where it is not there; `run.py` puts it together and
compares its books with the report.
"""
