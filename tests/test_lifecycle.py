"""Decisions about children: a table, no processes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from recalld.actors.lifecycle import ASKS, BOOT_FAILURE, CHILDREN, MAX_DELAY_S, ChildSpec, Cool, Crash, Restart, decide

SPEC = ChildSpec(name="x", intensity=3, period_s=60.0)
NOW = 1000.0


def quick(*ages_s: float) -> list[Crash]:
    return [Crash(NOW - age, 0.1) for age in ages_s]


@pytest.mark.parametrize(
    ("crashes", "code", "expected"),
    [
        (quick(0), 1, Restart(0.0)),
        (quick(1, 0), 1, Restart(0.05)),
        (quick(2, 1, 0), -9, Restart(0.1)),
        (quick(3, 2, 1, 0), 1, Cool("4 crashes within 60 s")),
        (quick(300, 200, 100, 0), 1, Restart(0.0)),
        ([*quick(3, 2, 1), Crash(NOW, 30.0)], -9, Restart(0.0)),
        (quick(0), BOOT_FAILURE, Cool("it cannot start as things are")),
    ],
)
def test_decide(crashes: list[Crash], code: int, expected: object) -> None:
    """A child is restarted at once, then with growing delay, until its intensity is spent; a boot failure is not retried."""
    assert expected == decide(SPEC, crashes, code, NOW)


@given(ages=st.lists(st.floats(0, 200), min_size=1, max_size=60), jitter=st.floats(0, 1))
def test_intensity_is_never_exceeded(ages: list[float], jitter: float) -> None:
    """With more quick crashes in the period than the intensity, the answer is always to cool; delays are bounded."""
    crashes = quick(*sorted(ages, reverse=True))
    decision = decide(SPEC, crashes, 1, NOW, jitter)
    spent = sum(NOW - crash.at < SPEC.period_s for crash in crashes) > SPEC.intensity
    assert spent == isinstance(decision, Cool)
    if isinstance(decision, Restart):
        assert 0 <= decision.delay_s <= MAX_DELAY_S * 1.1


def test_stable_generations_do_not_spend_the_intensity() -> None:
    """A child that is killed again and again from outside, but runs well in between, is always brought back."""
    crashes = [Crash(NOW - n * 6, 6.0) for n in range(10)]
    assert Restart(0.0) == decide(SPEC, crashes, -9, NOW)


def test_the_ask_graph_has_no_ring() -> None:
    """No ring of actors can wait for each other: following asks from any actor ends."""

    def depth(name: str, seen: tuple[str, ...] = ()) -> int:
        assert name not in seen, f"{' -> '.join((*seen, name))} is a ring"
        return 1 + max((depth(other, (*seen, name)) for other in ASKS[name]), default=0)

    assert all(depth(spec.name) <= len(CHILDREN) for spec in CHILDREN)
    assert ASKS["writer"] == ()
