"""The gallery, in Chromium, on a real server with a real job queue; a small painter is the engine."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

from antiphon.tests.gateway.conftest import RunningServer
from antiphon.tests.gateway.studio import studio
from playwright.async_api import Download, Locator, Page, expect

from .conftest import OpenConsole

GALLERY = "#/gallery"
# What the browser itself writes into its console about requests that were refused.
REFUSED = ("Failed to load resource", "ERR_CONNECTION_REFUSED")


async def ask(page: Page, prompt: str, kind: str = "Picture", *, number: int = 1, steps: int | None = None) -> Locator:
    """Ask for something; gives the newest card."""
    await page.get_by_text(kind, exact=True).first.click()
    await page.get_by_label("How many").select_option(str(number))
    if steps is not None:
        await page.locator(".advanced").evaluate("details => details.open = true")
        await page.get_by_label("Steps").fill(str(steps))
    await page.get_by_label("Prompt").fill(prompt)
    await page.get_by_label("Prompt").press("Enter")
    return page.locator(".card").filter(has_text=prompt).first


async def seen(card: Locator, state: str, timeout: float = 15_000) -> None:
    await expect(card.locator(".pill")).to_have_text(re.compile(state), timeout=timeout)


async def saved(download: Download) -> bytes:
    return await asyncio.to_thread(Path(await download.path()).read_bytes)


async def test_a_picture_is_asked_for_watched_and_seen(console: OpenConsole, tmp_path: Path) -> None:
    async with studio(tmp_path, step_s=0.7) as server, console(server.url, query=GALLERY, expect=("404",)) as it:
        await expect(it.page.locator(".welcome")).to_contain_text("Nothing has been drawn yet.")
        card = await ask(it.page, "a red disc on a cat")
        await seen(card, r"Drawing, \d+ %")
        await it.page.wait_for_function("bar => bar.value > 10 && bar.value < 95", arg=await card.locator("progress").element_handle())
        await expect(card.locator("img.preview")).to_be_visible()
        await seen(card, "Done")
        picture = card.locator(".frame img:not(.preview)")
        await expect(picture).to_have_js_property("naturalWidth", 64)
        await expect(card.locator(".warnings")).to_contain_text("'cat'")
        await expect(card.locator(".revised")).to_have_text("Drawn as: a red disc on a")
        await expect(card.locator(".print")).to_contain_text("64×64")
        said = await it.page.locator("#announcer").inner_text()
        assert "Drawing: a red disc on a cat" in said
        assert "Done: a red disc on a cat" in said


async def test_a_clip_is_played(console: OpenConsole, tmp_path: Path) -> None:
    async with studio(tmp_path) as server, console(server.url, query=GALLERY, expect=("404",)) as it:
        card = await ask(it.page, "a small blue disc moving right", "Clip")
        await seen(card, "Done")
        video = card.locator("video")
        await expect(card.get_by_role("button", name="Pause")).to_be_visible(timeout=10_000)  # it was waited for, so it begins by itself
        await it.page.wait_for_function("video => video.currentTime > 0.3", arg=await video.element_handle())
        await card.get_by_role("button", name="Pause").click()
        stopped = await video.evaluate("video => video.currentTime")
        await it.page.wait_for_timeout(300)
        assert await video.evaluate("video => [video.currentTime, video.paused, video.loop]") == [stopped, True, True]
        await it.page.reload()
        await expect(card.get_by_role("button", name="Play")).to_be_visible()
        assert await video.evaluate("video => [Boolean(video.poster), video.currentSrc]") == [True, ""], "nothing is fetched before"
        await card.get_by_role("button", name="Play").press("Enter")
        await it.page.wait_for_function("video => video.currentTime > 0.3", arg=await video.element_handle())
        await it.page.get_by_role("link", name="Talk").click()
        await expect(video).to_have_js_property("paused", True)


async def test_one_that_is_being_drawn_is_cancelled(console: OpenConsole, tmp_path: Path) -> None:
    async with studio(tmp_path, step_s=0.5, slots=1) as server, console(server.url, query=GALLERY, expect=("404",)) as it:
        first = await ask(it.page, "a large disc moving left", "Clip", steps=100)
        await seen(first, "Drawing")
        second = await ask(it.page, "a green disc moving left", "Clip", steps=100)
        await seen(second, r"Waiting for \d+ s$")
        third = await ask(it.page, "a black disc moving left", "Clip", steps=100)
        await seen(third, r"Waiting for \d+ s, 1 before it")
        await first.get_by_role("button", name="Cancel").click()
        await expect(first).to_have_count(0)
        await seen(second, "Drawing")
        await seen(third, r"Waiting for \d+ s$")
        engine: Any = server.gateway.pool.engine("painter")
        assert (engine.running, engine.aborted) == (1, 1)


async def test_it_says_what_went_wrong(console: OpenConsole, tmp_path: Path) -> None:
    async with studio(tmp_path) as server, console(server.url, query=GALLERY, expect=REFUSED) as it:
        failed = await ask(it.page, "refuse this disc")
        await seen(failed, "Failed")
        await expect(failed.locator(".error")).to_have_text("the painter refuses")
        await expect(it.page.locator("#announcer")).to_contain_text("Failed: refuse this disc. the painter refuses")
        refused = await ask(it.page, "too many steps", steps=900)
        await seen(refused, "Refused")
        await expect(refused.locator(".error")).to_contain_text("takes at most 400 steps.")
        await refused.get_by_role("button", name="Change it").click()
        await expect(it.page.get_by_label("Steps")).to_have_value("900")
        await expect(refused).to_have_count(0)
        await it.page.get_by_label("Steps").fill("3")
        await it.page.get_by_role("button", name="Make the picture").click()
        await seen(refused, "Done")
        await failed.get_by_role("button", name="Delete").click()
        await failed.get_by_role("button", name="Delete").click()
        await expect(failed).to_have_count(0)


async def test_a_reload_keeps_everything_and_another_tab_sees_it(console: OpenConsole, tmp_path: Path) -> None:
    async with studio(tmp_path, step_s=0.3) as server, console(server.url, query=GALLERY, expect=("404",)) as it:
        made = await ask(it.page, "a white disc")
        await seen(made, "Done")
        drawing = await ask(it.page, "a black disc", steps=20)
        await seen(drawing, "Drawing")
        await it.page.reload()
        await seen(made, "Done")
        await seen(drawing, "Drawing")
        other = await it.context.new_page()
        await other.goto(f"{server.url}/{GALLERY}")
        await seen(other.locator(".card").filter(has_text="a black disc"), "Done")
        await ask(other, "a green disc")
        await it.page.bring_to_front()
        await seen(it.page.locator(".card").filter(has_text="a green disc"), "Done")
        await expect(it.page.locator(".card")).to_have_count(3)
        for _ in range(2):
            await it.page.locator(".card").first.get_by_role("button", name="Delete").click()
        await other.bring_to_front()
        await expect(other.locator(".card")).to_have_count(2, timeout=10_000)


async def test_files_are_downloaded(console: OpenConsole, tmp_path: Path) -> None:
    async with studio(tmp_path / "jobs") as server, console(server.url, query=GALLERY, expect=("404",)) as it:
        picture = await ask(it.page, "a large red disc", number=2)
        await seen(picture, "Done")
        await expect(picture.locator(".frame img")).to_have_count(2)
        names = []
        async with (
            it.page.expect_download() as first,
            it.page.expect_download(lambda download: "-2." in download.suggested_filename) as second,
        ):
            await picture.get_by_role("button", name="Download").click()
        for download in (await first.value, await second.value):
            names.append(download.suggested_filename)
            assert (await saved(download)).startswith(b"\x89PNG")
        assert re.fullmatch(r"a-large-red-disc-\w{6}-1\.png", names[0])
        clip = await ask(it.page, "a small disc", "Clip")
        await seen(clip, "Done")
        async with it.page.expect_download() as third:
            await clip.get_by_role("button", name="Download").click()
        download = await third.value
        assert download.suggested_filename.endswith(".mp4")
        assert (await saved(download))[4:8] == b"ftyp"


async def test_the_same_seed_and_a_remix(console: OpenConsole, tmp_path: Path) -> None:
    async with studio(tmp_path) as server, console(server.url, query=GALLERY, expect=("404",)) as it:
        page = it.page
        clip = await ask(page, "a small disc moving left", "Clip")
        await seen(clip, "Done")
        seed = re.search(r"seed.(\d+)", await clip.locator(".print").inner_text())
        assert seed is not None
        await clip.get_by_role("button", name="Same seed").click()
        await expect(page.get_by_label("Seed", exact=True)).to_have_value(seed[1])
        await expect(page.get_by_label("Prompt")).to_be_focused()
        await expect(page.get_by_label("Prompt")).to_have_value("a small disc moving left")
        await clip.get_by_role("button", name="Remix").click()
        await expect(page.locator(".remix")).to_contain_text("A remix of “a small disc moving left”.")
        await page.get_by_label("Prompt").fill("a large disc moving left")
        await page.get_by_role("button", name="Make the remix").click()
        remix = page.locator(".card").filter(has_text="a large disc moving left").first
        await seen(remix, "Done")
        await expect(remix.locator(".print")).to_contain_text(f"seed\u00a0{seed[1]}")
        await expect(remix.locator(".print")).to_contain_text("remix")
        await expect(page.locator(".remix")).to_be_hidden()


ORDER = """([path, body]) => {
    const headers = {"content-type": "application/json", prefer: "respond-async"};
    return fetch(path, {method: "POST", body: JSON.stringify(body), headers});
}"""


async def test_older_ones_come_when_they_are_looked_for(console: OpenConsole, tmp_path: Path) -> None:
    async with studio(tmp_path, slots=8) as server, console(server.url, query=GALLERY, expect=("404",)) as it:
        for number in range(30):
            path, frames = ("/v1/videos", {"num_frames": 2}) if number % 3 == 0 else ("/v1/images/generations", {})
            await it.page.evaluate(ORDER, [path, {"prompt": f"disc number {number}.", **frames}])
        await it.page.wait_for_timeout(1000)
        await it.page.reload()
        cards = it.page.locator(".card")
        await expect(cards.first).to_contain_text("disc number 29.")
        assert await cards.count() < 30
        for _ in range(6):
            await it.page.locator(".shelf").evaluate("shelf => shelf.scrollTo(0, shelf.scrollHeight)")
            await it.page.wait_for_timeout(300)
        await expect(cards).to_have_count(30)
        await expect(it.page.get_by_role("button", name="Older ones")).to_be_hidden()
        numbers = [int(found) for found in re.findall(r"disc number (\d+)\.", " ".join(await it.page.locator(".prompt").all_inner_texts()))]
        assert sorted(numbers) == list(range(30))


async def test_a_key_is_asked_for(console: OpenConsole, tmp_path: Path) -> None:
    async with (
        studio(tmp_path, server={"api_keys": ("sesame",)}) as server,
        console(server.url, query=GALLERY, expect=("401", "404")) as it,
    ):
        await expect(it.page.locator(".gallery .notice")).to_contain_text("The server wants a good API key.")
        await expect(it.page.locator("#server")).to_have_text("Key needed")
        await it.page.get_by_label("API key").last.fill("sesame")
        await it.page.get_by_label("API key").last.press("Tab")
        await expect(it.page.locator(".welcome")).to_be_visible()
        await expect(it.page.locator(".gallery .notice")).to_be_hidden()
        card = await ask(it.page, "a red disc")
        await seen(card, "Done")
        await expect(card.locator(".frame img")).to_have_js_property("naturalWidth", 64)


async def test_operations_shows_the_queue(console: OpenConsole, tmp_path: Path) -> None:
    async with studio(tmp_path, step_s=0.5, slots=1) as server, console(server.url, query=GALLERY, expect=("404",)) as it:
        await expect(it.page.locator(".welcome")).to_be_visible()
        for number in range(3):
            await ask(it.page, f"disc number {number}", "Clip", steps=100)
        await seen(it.page.locator(".card").last, "Drawing")
        await it.page.get_by_role("link", name="Operations").click()
        row = it.page.locator(".jobs tbody tr").filter(has_text="Clips")
        await expect(row.locator("td").nth(0)).to_have_text("2")
        await expect(row.locator("td").nth(1)).to_have_text(re.compile(r"\d+ s"))
        await expect(row.locator("td").nth(2)).to_have_text("1")
        await expect(it.page.locator(".jobs .figure").filter(has_text="Steps preempted")).to_contain_text("0")


async def test_a_server_without_models_says_what_to_do(server: RunningServer, console: OpenConsole) -> None:
    async with console(server.url, query=GALLERY) as it:
        await expect(it.page.locator(".welcome")).to_contain_text("This server draws no pictures and clips.")
        await expect(it.page.get_by_role("button", name="Make the picture")).to_be_disabled()
        assert not [url for url in it.requests if "/v1/videos" in url or "/v1/images" in url]


async def test_the_server_is_away_for_a_while(console: OpenConsole, tmp_path: Path) -> None:
    async with studio(tmp_path, step_s=0.3) as first:
        port = int(first.url.rpartition(":")[2])
        async with console(first.url, query=GALLERY, expect=REFUSED) as it:
            drawing = await ask(it.page, "a red disc", steps=40)
            await seen(drawing, "Drawing")
            first.stop.set()
            await first.task
            await expect(it.page.locator(".gallery .notice")).to_contain_text(
                re.compile(r"does not answer.*Looking again in \d+ s"), timeout=10_000
            )
            await expect(it.page.locator("#server")).to_have_text("No answer")
            sending = await ask(it.page, "a blue disc", steps=3)
            await seen(sending, r"Not sent yet\. Again in \d+ s")
            async with studio(tmp_path, port=port) as second:
                assert second.url == first.url
                await expect(it.page.locator(".gallery .notice")).to_be_hidden(timeout=20_000)
                await seen(sending, "Done", timeout=20_000)
                await seen(drawing, "Done", timeout=20_000)
                await expect(it.page.locator(".card")).to_have_count(2)


async def test_nothing_is_asked_while_nobody_looks(console: OpenConsole, tmp_path: Path) -> None:
    async with studio(tmp_path) as server, console(server.url, query=GALLERY) as it:
        await expect(it.page.locator(".welcome")).to_be_visible()
        await it.page.get_by_role("link", name="Talk").click()
        await it.page.wait_for_timeout(300)
        assert await it.page.locator("#model option").all_inner_texts() == ["tone", "antiphon-tone (tone)"], "what draws does not talk"
        before = len(it.requests)
        await it.page.wait_for_timeout(6_000)
        assert not [url for url in it.requests[before:] if "/v1/videos" in url]
        await it.page.evaluate("Object.defineProperty(document, 'hidden', {get: () => true, configurable: true})")
        await it.page.get_by_role("link", name="Gallery").click()
        await it.page.wait_for_timeout(6_000)
        assert not [url for url in it.requests[before:] if "/v1/videos" in url]
        await it.page.evaluate("delete document.hidden; document.dispatchEvent(new Event('visibilitychange'))")
        await it.page.wait_for_function("performance.getEntriesByType('resource').some(({name}) => name.includes('/v1/videos'))")


async def test_the_list_is_what_the_server_says(server: RunningServer, console: OpenConsole) -> None:
    script = """async () => {
        const { JobList } = await import("/console/js/gallery/job-list.js");
        const all = []; // the newest first
        const add = (id, ended = true) => all.unshift({ id, kind: "clip", created: Number(id.slice(1)), ended });
        const drop = (id) => all.splice(all.findIndex((job) => job.id === id), 1);
        const limits = [];
        const source = { kind: "clip", async list({ after, limit }) {
            limits.push(limit);
            const from = after ? all.findIndex(({ id }) => id === after) + 1 : 0;
            return { jobs: all.slice(from, from + limit), more: all.length > from + limit, pollAfter: null };
        } };
        const list = new JobList([source]);
        const look = () => new Promise((resolve) => {
            const stop = list.on("looked", () => setTimeout(() => { stop(); resolve(); }));
            list.start();
            list.now();
        });
        const shown = () => list.shown.map(({ id }) => id).join(" ");
        const range = (from, to) => Array.from({ length: from - to + 1 }, (_, index) => `j${from - index}`).join(" ");
        const made = {};
        for (let n = 1; n <= 30; n++) add(`j${n}`);
        await look();
        made.first = shown() === range(30, 19) && list.hasMore;
        await list.more();
        made.more = shown() === range(30, 7) && list.hasMore;
        add("j31"); drop("j25");
        await look();
        made.changed = shown() === `${range(31, 26)} ${range(24, 7)}`;
        for (let n = 32; n <= 60; n++) add(`j${n}`);
        await look();
        made.many = shown() === `${range(60, 26)} ${range(24, 1)}` && limits.at(-1) === 100;
        for (let n = 61; n <= 400; n++) add(`j${n}`, n <= 390);
        await look();
        made.gap = shown() === range(400, 301) && list.hasMore;
        await look();
        made.back = limits.at(-1) === 22;
        list.put({ id: "j401", kind: "clip", created: 401, ended: false });
        made.put = shown().startsWith("j401 j400");
        await look();
        made.gone = shown().startsWith("j400");
        all.length = 0;
        await look();
        made.empty = shown() === "" && !list.hasMore;
        list.stop();
        return made;
    }"""
    async with console(server.url) as it:
        made = await it.page.evaluate(script)
    assert made == dict.fromkeys(made, True)


COUNT_URLS = """
window.urls = new Set();
const make = URL.createObjectURL, free = URL.revokeObjectURL;
URL.createObjectURL = (blob) => { const url = make.call(URL, blob); urls.add(url); return url; };
URL.revokeObjectURL = (url) => { urls.delete(url); free.call(URL, url); };
"""


async def test_no_file_is_held_for_what_is_gone(console: OpenConsole, tmp_path: Path) -> None:
    async with studio(tmp_path, step_s=0.1) as server, console(server.url, query="", expect=("404",)) as it:
        await it.context.add_init_script(COUNT_URLS)
        await it.page.goto(f"{server.url}/?again{GALLERY}")
        picture = await ask(it.page, "a red disc", number=3)
        clip = await ask(it.page, "a blue disc", "Clip")
        await expect(clip.get_by_role("button", name="Pause")).to_be_visible(timeout=15_000)
        await seen(picture, "Done")
        await expect(picture.locator(".frame img")).to_have_count(3)
        assert await it.page.evaluate("urls.size") == 5, "three pictures, a thumbnail and a clip; no preview any more"
        for card in (picture, clip):
            await card.get_by_role("button", name="Delete").click()
            await card.get_by_role("button", name="Delete").click()
            await expect(card).to_have_count(0)
        assert await it.page.evaluate("urls.size") == 0


async def test_it_is_used_with_the_keyboard_alone_and_on_a_phone(console: OpenConsole, tmp_path: Path) -> None:
    async with (
        studio(tmp_path) as server,
        console(server.url, query=GALLERY, expect=("404",), viewport={"width": 390, "height": 844}) as it,
    ):
        await it.page.locator(".example").first.focus()
        await it.page.keyboard.press("Enter")
        await expect(it.page.get_by_label("Prompt")).to_be_focused()
        await it.page.keyboard.press("Enter")
        card = it.page.locator(".card").first
        await seen(card, "Done")
        assert await it.page.evaluate("document.documentElement.scrollWidth") <= 390
        box = await card.bounding_box()
        assert box is not None
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= 390
        await card.get_by_role("button", name="Remix").focus()
        await it.page.keyboard.press("Enter")
        await expect(it.page.get_by_label("Prompt")).to_be_focused()
        await card.get_by_role("button", name="Delete").focus()
        await it.page.keyboard.press("Enter")
        await it.page.keyboard.press("Enter")
        await expect(it.page.locator(".welcome")).to_be_visible()
        await expect(it.page.get_by_label("Prompt")).to_be_focused()
