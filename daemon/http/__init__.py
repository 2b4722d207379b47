"""The daemon's HTTP server: webhooks and health. Only ``door`` imports the libraries behind it, when it is to serve."""
