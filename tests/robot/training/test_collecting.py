"""Episodes: disturbed as said, labelled by the expert, the same again from the same seeds."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from antiphon.robot.sim.simulation import Action
from antiphon.robot.training.collecting import Collecting, Disturbance, Run, collect

from .conftest import Line

WANTED = [(Line.tasks[seed % 2], seed) for seed in range(20)]


def test_what_is_not_disturbed_is_the_experts() -> None:
    episodes, failed = collect([Line() for _ in range(4)], WANTED, Collecting(steps=120), Line.tasks)
    assert len(episodes) + failed == len(WANTED)
    assert failed < 4
    share = np.mean([hit for episode in episodes for hit in episode.disturbed])
    assert 0.1 < share < 0.8
    for episode in episodes:
        label = np.stack(episode.labels)
        executed = np.stack(episode.executed)
        hit = np.array(episode.disturbed)
        assert np.array_equal(label[~hit], executed[~hit])
        goal = 1.0 if episode.task == 0 else -1.0
        assert np.allclose(label[:, 0], np.clip(4 * (goal - np.stack(episode.states)[:, 0]), -1, 1), atol=1e-5)


def test_the_same_seeds_give_the_same_episodes() -> None:
    once, again = (collect([Line() for _ in range(count)], WANTED, Collecting(prelude=0.5), Line.tasks)[0] for count in (3, 3))
    assert [np.stack(a.executed).tolist() for a in once] == [np.stack(b.executed).tolist() for b in again]


def test_failures_are_thrown_away_and_counted() -> None:
    episodes, failed = collect([Line()], WANTED, Collecting(steps=3), Line.tasks)
    assert (len(episodes), failed) == (0, len(WANTED))


def test_a_tremor_is_no_disturbance_but_leaves_the_label_alone() -> None:
    calm = Disturbance(bursts=0, tremor=(0.3,), gripper=1)
    episodes, _ = collect([Line()], WANTED[:4], Collecting(disturbance=calm), Line.tasks)
    for episode in episodes:
        assert not any(episode.disturbed)
        assert np.abs(np.stack(episode.executed)[:, 0] - np.stack(episode.labels)[:, 0]).max() > 0.05
        assert np.array_equal(np.stack(episode.executed)[:, 1], np.stack(episode.labels)[:, 1])


def test_a_driving_policy_is_recorded_as_a_disturbance() -> None:
    """It drives away from the goal; the expert says where it should have gone, and gets there in the end."""

    def away(runs: Sequence[Run]) -> list[Action]:
        assert all(run.driven() and run.prompt.startswith("go") for run in runs)
        return [-run.simulation.expert() for run in runs]

    episodes, _ = collect([Line() for _ in range(5)], WANTED, Collecting(), Line.tasks, driver=away, prompts=lambda task, _: f"go {task}")
    assert len(episodes) > 10
    driven = [
        (executed, label)
        for episode in episodes
        for executed, label, hit in zip(episode.executed, episode.labels, episode.disturbed, strict=True)
        if hit
    ]
    assert len(driven) > 50
    assert all(np.allclose(executed, -label) for executed, label in driven)


def test_pictures_are_taken_at_each_step() -> None:
    episodes, _ = collect([Line()], WANTED[:2], Collecting(), Line.tasks, pictures=lambda line: line.render("", 8).transpose(2, 0, 1)[None])
    assert all(np.stack(episode.pictures).shape == (len(episode), 1, 3, 8, 8) for episode in episodes)
