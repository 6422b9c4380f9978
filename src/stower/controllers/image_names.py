"""Names of images in full: names of one image are written in several ways.

Source: github.com/distribution/reference (normalize.go), pkg/util/parsers.
"""

from functools import lru_cache
from typing import Final

DOMAIN: Final = "docker.io"
LEGACY_DOMAIN: Final = "index.docker.io"
OFFICIAL: Final = "library/"
TAG: Final = "latest"


@lru_cache(8192)
def full_name(image: str) -> str:
    """Returns domain/path:tag, or domain/path@digest where there is a digest."""
    name, _, digest = image.partition("@")
    domain, slash, path = name.partition("/")
    is_domain = "." in domain or ":" in domain or domain == "localhost" or domain != domain.lower()
    if not slash or not is_domain:
        domain, path = DOMAIN, name
    elif domain == LEGACY_DOMAIN:
        domain = DOMAIN
    if domain == DOMAIN and "/" not in path:
        path = OFFICIAL + path
    path, tag = _split_tag(path)
    return f"{domain}/{path}@{digest}" if digest else f"{domain}/{path}:{tag or TAG}"


def _split_tag(path: str) -> tuple[str, str]:
    before, colon, tag = path.rpartition(":")
    return (before, tag) if colon and "/" not in tag else (path, "")
