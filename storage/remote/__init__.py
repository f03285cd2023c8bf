"""Bytes from elsewhere: HTTP servers and object stores, with retries."""
