"""memory/recall/readable.py: markdown as it reads."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from recalld.memory.recall.readable import readable


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("by [[person-petra|Petra]].", "by Petra."),
        ("see [[folder/Note.md#Part]]", "see Note"),
        ("![[image.png]]", "image.png"),
        ("| [[a\\|b]] |", "| b |"),
        ('a [label](target.md "title") b', "a label b"),
        ("**Ada**: _yes_, ==no==", "Ada: yes, no"),
        ("## Heading\ntext", "Heading\ntext"),
        ("snake_case_name and __init__ and 2*3*4", "snake_case_name and __init__ and 2*3*4"),
        ("#tag stays", "#tag stays"),
        ("[[unclosed", "[[unclosed"),
    ],
)
def test_readable(text: str, shown: str) -> None:
    """Links become what they show, marks vanish, code words stay."""
    assert readable(text) == shown


@given(st.text(alphabet="[]|()*_#\\ab\n ", max_size=2000))
def test_lines_stay(text: str) -> None:
    """Any text, quickly; no line is added or lost."""
    assert readable(text).count("\n") == text.count("\n")
