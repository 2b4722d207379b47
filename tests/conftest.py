"""Lets tests in the folders below import the helpers that lie here."""

from __future__ import annotations
