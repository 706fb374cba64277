"""The MP4 that we write, in the browser that people have."""

from __future__ import annotations

import numpy as np
import pytest
from antiphon.codecs.video import encode_mp4
from antiphon.tests.gateway.console.conftest import FLAGS, chromium
from playwright.async_api import Route, async_playwright

PAGE = "<!doctype html><video muted playsinline width=256 height=256></video>"
PLAY = """async () => {
    const video = document.querySelector("video"), times = [];
    const ended = new Promise((resolve, reject) => {
        video.onended = resolve;
        video.onerror = () => reject(new Error(video.error.message));
    });
    video.ontimeupdate = () => times.push(video.currentTime);
    video.src = "/clip.mp4";
    await video.play();
    await ended;
    const canvas = document.createElement("canvas");
    canvas.width = video.videoWidth;
    canvas.height = video.videoHeight;
    const context = canvas.getContext("2d");
    context.drawImage(video, 0, 0);
    const colour = (x, y) => [...context.getImageData(x, y, 1, 1).data].slice(0, 3);
    return {times, duration: video.duration, size: [video.videoWidth, video.videoHeight],
        left: colour(video.videoWidth / 8, 9), right: colour(video.videoWidth * 7 / 8, 9)};
}"""


@pytest.mark.parametrize("side", [32, 720])
async def test_chromium_plays_it_in_the_right_colours(side: int) -> None:
    clip = np.empty((8, side, side, 3), np.uint8)
    clip[:, :, : side // 2] = (200, 30, 30)
    clip[:, :, side // 2 :] = (30, 60, 180)
    data = encode_mp4(clip, 8.0, least=256)

    async def answer(route: Route) -> None:
        if route.request.url.endswith("clip.mp4"):
            await route.fulfill(body=data, content_type="video/mp4")
        else:
            await route.fulfill(body=PAGE, content_type="text/html")

    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=chromium(), headless=True, args=list(FLAGS))
        page = await browser.new_page()
        await page.route("http://clips.test/**", answer)
        await page.goto("http://clips.test/")
        seen = await page.evaluate(PLAY)
        await browser.close()
    assert seen["size"] == [max(side, 256)] * 2
    assert seen["duration"] == pytest.approx(1.0, abs=0.01)
    assert seen["times"] == sorted(seen["times"])
    assert seen["times"][-1] == pytest.approx(1.0, abs=0.15)
    assert np.abs(np.array(seen["left"]) - (200, 30, 30)).max() <= 6
    assert np.abs(np.array(seen["right"]) - (30, 60, 180)).max() <= 6
