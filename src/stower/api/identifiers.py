"""Draws uids and random letters from a seed, so that the same requests give the same names."""

import hashlib


class Identifiers:
    """A seeded source of identifiers. The order of the draws decides their values."""

    def __init__(self, seed: int | str) -> None:
        self._seed = str(seed).encode()
        self._drawn = 0

    def _draw(self) -> bytes:
        self._drawn += 1
        text = b"%b/%d" % (self._seed, self._drawn)
        return hashlib.blake2b(text, digest_size=16).digest()

    def new_uid(self) -> str:
        """Returns a UUID of version 4."""
        raw = bytearray(self._draw())
        raw[6] = raw[6] & 0x0F | 0x40
        raw[8] = raw[8] & 0x3F | 0x80
        text = raw.hex()
        return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"

    def letters(self, alphabet: str, count: int) -> str:
        """Returns `count` random letters of the alphabet."""
        raw = int.from_bytes(self._draw(), "big")
        letters = []
        for _ in range(count):
            raw, index = divmod(raw, len(alphabet))
            letters.append(alphabet[index])
        return "".join(letters)
