"""The drop folder: which files are taken, when, and how they move without ever being lost or overwritten."""
