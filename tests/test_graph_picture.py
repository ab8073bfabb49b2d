"""The picture of the link graph: pure, deterministic, and safe against what notes are called."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ET

import pytest
from recalld.clients.graph import around, layout, page, path_between, svg
from recalld.protocol.messages.recall import GraphNote

HOSTILE = '</script><img src=x onerror=alert(1)>\x1b[31m\u202eevil & "quoted"'


def note(name: str, *links: int) -> GraphNote:
    return GraphNote(f"{name}.md", name, "", "", links)


CHAIN = [note("a", 1), note("b", 2), note("c"), note("lonely")]


def test_around_keeps_what_is_near_in_both_directions() -> None:
    """Links in and out count; the rest is left out and links are renumbered."""
    near = around(CHAIN, 2, hops=1)
    assert [n.path for n in near] == ["b.md", "c.md"]
    assert near[0].links == (1,)


def test_path_between_follows_links_either_way() -> None:
    """The shortest chain; none between components."""
    assert path_between(CHAIN, 0, 2) == [0, 1, 2]
    assert path_between(CHAIN, 2, 0) == [2, 1, 0]
    assert path_between(CHAIN, 0, 3) == []


def test_every_note_has_a_place_inside_the_square_and_orphans_are_told() -> None:
    """Nothing is dropped, nothing lies outside, and the same graph gives the same picture."""
    notes = [note(str(i), (i * 7) % 2000, (i * 13) % 2000) for i in range(2000)] + [note("lonely")]
    spots = layout(notes)
    assert len(notes) == len(spots)
    assert all(0 <= spot.x <= 1 and 0 <= spot.y <= 1 for spot in spots)
    assert spots[-1].cluster == -1
    assert spots == layout(notes)


@pytest.mark.parametrize("render", [svg, page])
def test_titles_are_data(render: object) -> None:
    """A title cannot become markup, a script, or a terminal's or reader's control."""
    spots = layout([GraphNote("x.md", HOSTILE, "", "", ())])
    text = render(spots, HOSTILE)  # type: ignore[operator]  # both take the same
    assert "<img" not in text
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert text.count("</script>") == (1 if render is page else 0)


def test_the_svg_is_well_formed_and_the_page_needs_no_network() -> None:
    """Any viewer reads it; the page names no address and forbids every load."""
    spots = layout(CHAIN, [0, 1])
    ET.fromstring(svg(spots, "t"))
    text = page(spots, "t")
    assert not re.search(r"https?://", text)
    assert "default-src 'none'" in text
    data = re.search(r"const D = (.*?), N = D", text)
    assert data is not None
    assert len(json.loads(data.group(1))["notes"]) == 4
