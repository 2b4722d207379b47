"""URL files: one URL each, read where it is used and told nowhere."""

from __future__ import annotations

from pathlib import Path

URL_FILE_BYTES = 16 * 1024


def read_url(path: Path) -> str:
    """The one URL in a file: blank lines and ``#`` lines do not count. ValueError says what is wrong, without it."""
    with path.open("rb") as file:
        data = file.read(URL_FILE_BYTES + 1)
    if len(data) > URL_FILE_BYTES:
        raise ValueError("it is larger than 16 KiB")
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        raise ValueError("it is not UTF-8") from None
    lines = [line.strip() for line in text.splitlines()]
    urls = [line for line in lines if line and not line.startswith("#")]
    if len(urls) != 1:
        raise ValueError("it is empty" if not urls else f"it holds {len(urls)} lines; one URL per file")
    return urls[0]
