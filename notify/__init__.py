"""Alerts, their outbox and the child process that sends them."""
