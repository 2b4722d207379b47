"""The process: configuration, service loop, worker processes and the command line."""
