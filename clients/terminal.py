"""Text from elsewhere, made safe for a terminal."""


def clean(text: str) -> str:
    """
    Text from a note, safe for a terminal: control characters and bidirectional overrides are shown, not obeyed.

    A note can come from anywhere; an escape sequence in it must not move the cursor or retitle the window.
    """
    return "".join(character if _printable(character) else f"\\x{ord(character):02x}" for character in text)


def one_line(text: str) -> str:
    """``clean``, with line breaks as blanks: a row of a list stays one row."""
    return clean(text.replace("\n", " "))


def _printable(character: str) -> bool:
    code = ord(character)
    if character in "\n\t":
        return True
    return not (code < 32 or 127 <= code < 160 or 0x202A <= code <= 0x202E or 0x2066 <= code <= 0x2069)
