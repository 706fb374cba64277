// Plays the assistant's audio (WebSocket) and knows what was heard of it.

import { SAMPLE_RATE } from "./pcm.js";

const MAX_QUEUED = 120 * SAMPLE_RATE; // the server sends half a second ahead; a stranger's server shall not fill the memory

export class Player {
  level = 0;
  #context;
  #node;
  #items = new Map(); // by id: { contentIndex, received, played (samples), complete, stopped }
  #reportedAt = 0;
  #queued = 0;

  static async start() {
    const player = new Player();
    const context = new AudioContext({ sampleRate: SAMPLE_RATE, latencyHint: "interactive" });
    player.#context = context;
    try {
      await context.audioWorklet.addModule("/console/js/audio/player-worklet.js");
      await context.resume();
      player.#node = new AudioWorkletNode(context, "antiphon-player", { numberOfInputs: 0, outputChannelCount: [1] });
      player.#node.port.onmessage = ({ data }) => player.#report(data);
      player.#node.connect(context.destination);
    } catch (error) {
      await context.close();
      throw error;
    }
    return player;
  }

  /** Queue samples of an item; false when the item was stopped, or the queue is full. */
  play(itemId, contentIndex, pcm) {
    if (!this.#items.has(itemId)) this.#items.set(itemId, { contentIndex, received: 0, played: 0, complete: false, stopped: false });
    const item = this.#items.get(itemId);
    if (item.stopped || this.#queued + pcm.length > MAX_QUEUED) return false;
    const samples = Float32Array.from(pcm, (sample) => sample / 32768);
    item.received += samples.length;
    this.#queued += samples.length;
    this.#node.port.postMessage({ item: itemId, samples }, [samples.buffer]);
    this.#forget();
    return true;
  }

  /** No more audio of this item will come. */
  finish(itemId) {
    const item = this.#items.get(itemId);
    if (item) item.complete = true;
  }

  /** Whether something is being heard or about to be. */
  get playing() {
    return this.#queued > 0 || [...this.#items.values()].some((item) => !item.stopped && item.played < item.received);
  }

  /** How much of an item came out of the loudspeaker, in ms; null for an item that was never played. */
  heardMs(itemId) {
    const item = this.#items.get(itemId);
    if (!item) return null;
    if (item.stopped) return toMs(item.played);
    // Between two reports the player goes on; what the device holds has not been heard yet.
    const since = item.played > 0 && item.played < item.received ? (performance.now() - this.#reportedAt) / 1000 : 0;
    const latency = this.#context.outputLatency || this.#context.baseLatency || 0;
    const samples = item.played >= item.received ? item.received : item.played + (since - latency) * SAMPLE_RATE;
    return toMs(Math.max(0, Math.min(samples, item.received)));
  }

  /** Be silent at once; gives what was cut: `{ itemId, contentIndex, heardMs }`, the one that was being heard first. */
  stop() {
    const cut = [];
    for (const [itemId, item] of this.#items) {
      if (item.stopped || (item.complete && item.played >= item.received)) continue;
      const heardMs = Math.floor(this.heardMs(itemId));
      item.played = Math.round((heardMs * SAMPLE_RATE) / 1000);
      item.stopped = true;
      cut.push({ itemId, contentIndex: item.contentIndex, heardMs });
    }
    this.#queued = 0;
    this.#node.port.postMessage({ stop: true });
    return cut;
  }

  async close() {
    if (this.#node) this.#node.port.onmessage = null;
    if (this.#context?.state !== "closed") await this.#context?.close();
  }

  #report({ played, queued, level }) {
    this.level = level;
    this.#queued = queued;
    this.#reportedAt = performance.now();
    for (const [itemId, samples] of played) {
      const item = this.#items.get(itemId);
      if (item && !item.stopped) item.played = samples;
    }
  }

  #forget() {
    for (const [itemId, item] of this.#items) {
      if (this.#items.size <= 50) return;
      if (item.stopped || item.played >= item.received) this.#items.delete(itemId);
    }
  }
}

const toMs = (samples) => (samples * 1000) / SAMPLE_RATE;
