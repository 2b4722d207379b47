"""Who sent a delivery: HMAC-SHA256 over the raw bytes, before anything is parsed (FIELD 13).

    standard   Standard Webhooks: webhook-id, webhook-timestamp and webhook-signature over ``id.timestamp.body``; at
               most 300 s off; several signatures in the header; secrets are ``whsec_`` and base64
    github     X-Hub-Signature-256 over the body; the secret is used as it is

One or two secrets, so that they can be rotated. Comparisons take the same time wherever they differ. The rules that a
refusal names: no-signature, bad-timestamp, expired, bad-signature. Only light imports: ``shiftwork sign`` starts here.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from collections.abc import Mapping, Sequence

from store.errors import InputRefused

SCHEMES = ("standard", "github")
TOLERANCE_S = 300
PREFIX = "whsec_"
MAX_SIGNATURES = 16
MAX_SECRET_BYTES = 4096

ID, TIMESTAMP, SIGNATURE = "webhook-id", "webhook-timestamp", "webhook-signature"
GITHUB_SIGNATURE, GITHUB_ID, GITHUB_EVENT = "x-hub-signature-256", "x-github-delivery", "x-github-event"
HEADERS = frozenset({ID, TIMESTAMP, SIGNATURE, GITHUB_SIGNATURE, GITHUB_ID, GITHUB_EVENT})
"""All that is ever looked at, in lower case."""


class NotSigned(InputRefused):
    """The sender did not show that it knows the secret, or showed it too long ago."""


def secret_of(content: bytes, scheme: str) -> bytes:
    """The key in a secret file's bytes. Raises ValueError whose words say what is wrong, never what stands there."""
    if len(content) > MAX_SECRET_BYTES:
        raise ValueError("is too large to be a secret")
    secret = content.removesuffix(b"\n").removesuffix(b"\r")
    if not secret.strip():
        raise ValueError("is empty")
    if scheme != "standard":
        return secret
    text = secret.decode("ascii", "replace").strip()
    if not text.startswith(PREFIX):
        raise ValueError(f'must hold "{PREFIX}" and base64, as Standard Webhooks has it')
    try:
        key = base64.b64decode(text.removeprefix(PREFIX), validate=True)
    except (binascii.Error, ValueError):
        raise ValueError(f'what follows "{PREFIX}" is not base64') from None
    if not key:
        raise ValueError(f'nothing follows "{PREFIX}"')
    return key


def verify(
    scheme: str, secrets: Sequence[bytes], headers: Mapping[str, str], body: bytes, *, now: float
) -> None:
    """Return when one of ``secrets`` made the signature, else raise NotSigned. ``headers``: lower-case names."""
    if scheme == "standard":
        _verify_standard(secrets, headers, body, now)
    else:
        _verify_github(secrets, headers, body)


def delivery_id(scheme: str, headers: Mapping[str, str]) -> str:
    """The sender's name for this delivery; empty where it gave none."""
    return headers.get(ID if scheme == "standard" else GITHUB_ID, "").strip()


def event_of(scheme: str, headers: Mapping[str, str]) -> str:
    """What kind of event the sender says it is; only GitHub says it in a header."""
    return headers.get(GITHUB_EVENT, "").strip() if scheme == "github" else ""


def signed_headers(
    scheme: str, secret: bytes, body: bytes, *, delivery: str, now: float, event: str = ""
) -> dict[str, str]:
    """The headers that make ``body`` a delivery to be accepted: what a sender would send, and ``sign`` prints."""
    if scheme == "standard":
        stamp = str(int(now))
        signature = base64.b64encode(_standard(secret, delivery, stamp, body)).decode()
        return {ID: delivery, TIMESTAMP: stamp, SIGNATURE: f"v1,{signature}"}
    signature = hmac.new(secret, body, hashlib.sha256).hexdigest()
    made = {"X-Hub-Signature-256": f"sha256={signature}", "X-GitHub-Delivery": delivery}
    return made | ({"X-GitHub-Event": event} if event else {})


def _standard(secret: bytes, delivery: str, stamp: str, body: bytes) -> bytes:
    signed = b".".join((delivery.encode("latin-1", "replace"), stamp.encode("ascii", "replace"), body))
    return hmac.new(secret, signed, hashlib.sha256).digest()


def _verify_standard(secrets: Sequence[bytes], headers: Mapping[str, str], body: bytes, now: float) -> None:
    missing = [name for name in (ID, TIMESTAMP, SIGNATURE) if not headers.get(name)]
    if missing:
        raise NotSigned(f"no {missing[0]} header", rule="no-signature")
    stamp = headers[TIMESTAMP]
    if not (stamp.isascii() and stamp.isdigit() and len(stamp) <= 12):
        raise NotSigned(f"{TIMESTAMP} is not a number of seconds since 1970", rule="bad-timestamp")
    off_s = now - int(stamp)
    if abs(off_s) > TOLERANCE_S:
        way = "ago" if off_s > 0 else "ahead"
        raise NotSigned(
            f"signed {abs(off_s):.0f} s {way}; at most {TOLERANCE_S} s are accepted (are both clocks right?)",
            rule="expired",
        )
    given = [word[3:] for word in headers[SIGNATURE].split(" ") if word.startswith("v1,")]
    sums = [base64.b64encode(_standard(secret, headers[ID], stamp, body)) for secret in secrets]
    _one_matches(sums, [one.encode("latin-1", "replace") for one in given[:MAX_SIGNATURES]])


def _verify_github(secrets: Sequence[bytes], headers: Mapping[str, str], body: bytes) -> None:
    given = headers.get(GITHUB_SIGNATURE)
    if not given:
        words = "no X-Hub-Signature-256 header: the sender must know the secret, too"
        raise NotSigned(words, rule="no-signature")
    sums = [b"sha256=" + hmac.new(secret, body, hashlib.sha256).hexdigest().encode() for secret in secrets]
    _one_matches(sums, [given.encode("latin-1", "replace")])


def _one_matches(sums: Sequence[bytes], given: Sequence[bytes]) -> None:
    """Every pair is compared, so that the time says nothing about which one matched."""
    matches = [hmac.compare_digest(one, other) for one in sums for other in given]
    if not any(matches):
        raise NotSigned("the signature was not made with this webhook's secret", rule="bad-signature")
