"""Snapbid: an OpenRTB bidder."""
