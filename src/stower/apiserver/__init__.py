"""The API over HTTP, durable: a small server for one machine."""
