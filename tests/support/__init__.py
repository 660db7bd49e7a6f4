"""What the tests share: servers, strategies, the oracle."""
