"""Snapbid: an OpenRTB bidder."""

__version__ = "0.1.0"
