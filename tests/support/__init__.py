"""Code that tests share: servers, strategies, the oracle."""
