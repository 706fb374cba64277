"""Who steps together: the rules, for arbitrary crowds."""

from __future__ import annotations

from antiphon.engines.diffusion.scheduling import Entry, Schedule, Turns
from antiphon.engines.interface import WorkClass
from hypothesis import given, settings
from hypothesis import strategies as st

crowds = st.lists(
    st.tuples(
        st.sampled_from("abc"),
        st.integers(1, 40),
        st.sampled_from([WorkClass.INTERACTIVE, WorkClass.BATCH]),
        st.floats(0, 100, allow_nan=False),
    ),
    min_size=1,
    max_size=30,
)


def crowd(rows: list[tuple[str, int, WorkClass, float]], ageing: float = 30.0) -> Schedule:
    schedule = Schedule(ageing=ageing)
    for key, count, work_class, arrived in sorted(rows, key=lambda row: row[3]):
        schedule.add(Entry(key=key, rows=count, work_class=work_class, arrived=arrived))
    return schedule


@given(crowds, st.integers(1, 32), st.floats(100, 200))
def test_a_step_has_one_shape_and_at_most_the_cap_unless_one_request_alone_has_more(rows, cap, now) -> None:  # type: ignore[no-untyped-def]
    chosen = crowd(rows).choose(cap, now)
    assert chosen
    assert len({entry.key for entry in chosen}) == 1
    assert len(set(map(id, chosen))) == len(chosen)
    assert len(chosen) == 1 or sum(entry.rows for entry in chosen) <= cap


@given(crowds, st.integers(1, 32), st.floats(100, 200))
def test_nobody_is_left_out_for_somebody_less_urgent_who_takes_his_place(rows, cap, now) -> None:  # type: ignore[no-untyped-def]
    schedule = crowd(rows)
    chosen = schedule.choose(cap, now)
    rank = lambda entry: (entry.level(now, schedule.ageing), entry.arrived)  # noqa: E731
    for left_out in schedule.entries:
        if left_out in chosen or left_out.key != chosen[0].key:
            continue
        before = sum(entry.rows for entry in chosen if rank(entry) <= rank(left_out))
        assert before + left_out.rows > cap
    assert chosen[0].level(now, schedule.ageing) == min(entry.level(now, schedule.ageing) for entry in schedule.entries)


@given(crowds, st.integers(1, 32))
@settings(max_examples=60)
def test_everyone_ends_once_while_urgent_work_never_stops_coming(rows, cap) -> None:  # type: ignore[no-untyped-def]
    """At each step an urgent newcomer that fills the cap arrives; steps take a second, a request three of them."""
    schedule = crowd(rows, ageing=5.0)
    wanted = list(schedule.entries)
    left = dict.fromkeys(wanted, 3)
    ended: list[Entry] = []
    now = 100.0
    for _ in range(40 + 12 * len(wanted) + 200):
        urgent = Entry(key="a", rows=cap, work_class=WorkClass.INTERACTIVE, arrived=now)
        if len(schedule.entries) < 64:
            schedule.add(urgent)
            left[urgent] = 3
        chosen = schedule.choose(cap, now)
        now += 1.0
        schedule.charge(chosen[0].key, 1.0)
        for entry in chosen:
            left[entry] -= 1
            if left[entry] == 0:
                schedule.remove(entry)
                ended.append(entry)
        if not set(wanted) & set(schedule.entries):
            break
    assert sorted(map(id, (entry for entry in ended if entry in wanted))) == sorted(map(id, wanted))


def test_the_urgent_go_first_until_the_others_have_waited_long_enough() -> None:
    schedule = Schedule(ageing=30.0)
    batch = Entry(key="a", rows=2, work_class=WorkClass.BATCH, arrived=0.0)
    urgent = Entry(key="a", rows=2, work_class=WorkClass.INTERACTIVE, arrived=20.0)
    schedule.add(batch)
    schedule.add(urgent)
    assert schedule.choose(2, 21.0) == [urgent]
    assert schedule.choose(2, 31.0) == [batch]  # as urgent by now, and here for longer
    assert schedule.choose(4, 21.0) == [urgent, batch]


def test_a_small_request_fills_the_gap_that_a_large_one_leaves_without_delaying_it() -> None:
    schedule = Schedule()
    first, large, small = (
        Entry(key="a", rows=rows, work_class=WorkClass.BATCH, arrived=float(number)) for number, rows in enumerate((4, 14, 2))
    )
    for entry in (first, large, small):
        schedule.add(entry)
    assert schedule.choose(16, 5.0) == [first, small]
    schedule.remove(first)
    assert schedule.choose(16, 5.0) == [large, small]


@given(st.lists(st.floats(0.01, 2.0), min_size=2, max_size=4))
def test_shapes_get_equal_shares_of_the_time_however_long_their_steps_are(costs) -> None:  # type: ignore[no-untyped-def]
    turns = Turns()
    spent = dict.fromkeys(range(len(costs)), 0.0)
    for _ in range(2000):
        key = turns.next(range(len(costs)))
        turns.charge(key, costs[key])
        spent[key] += costs[key]
    assert max(spent.values()) - min(spent.values()) <= 2 * (max(costs) + turns.quantum)


def test_who_was_alone_owes_nothing() -> None:
    turns = Turns()
    for _ in range(1000):
        assert turns.next(["a"]) == "a"
        turns.charge("a", 1.0)
    served = []
    for _ in range(6):
        key = turns.next(["a", "b"])
        turns.charge(key, 1.0)
        served.append(key)
    assert served.count("a") == 3
