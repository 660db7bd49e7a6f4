"""Queues and limits in Redis, without accounting: event streams, rate limits, permits."""
