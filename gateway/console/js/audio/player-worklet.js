// On the audio thread: plays pieces of items one after the other, and says how much of which was played.

const PREFILL = 0.06; // seconds that are gathered before a silent player begins, against the network's jitter
const PATIENCE = 0.15; // seconds after which less than that is played all the same (a very short answer)
const FADE = 0.005; // seconds of fade-out when it is cut: no click
const REPORT = 4; // blocks of 128 samples between reports

class Player extends AudioWorkletProcessor {
  constructor() {
    super();
    this.queue = []; // { item, samples, position }
    this.queued = 0;
    this.waited = 0;
    this.running = false;
    this.fading = 0;
    this.energy = 0;
    this.blocks = 0;
    this.played = new Map(); // samples played by item, of those in the queue or just ended
    this.port.onmessage = ({ data }) => (data.stop ? this.stop() : this.add(data));
  }

  add({ item, samples }) {
    this.queue.push({ item, samples, position: 0 });
    this.queued += samples.length;
  }

  stop() {
    this.fading = this.running ? Math.round(FADE * sampleRate) : 0;
    this.tail = this.fading ? this.read(this.fading) : null;
    this.tailAt = 0;
    this.queue = [];
    this.queued = 0;
    this.played.clear();
    this.running = false;
  }

  /** The next `count` samples without counting them as played. */
  read(count) {
    const samples = new Float32Array(count);
    let at = 0;
    for (const piece of this.queue) {
      const part = piece.samples.subarray(piece.position, piece.position + count - at);
      samples.set(part, at);
      at += part.length;
      if (at >= count) break;
    }
    return samples;
  }

  process(_, [output]) {
    const channel = output[0];
    if (this.tail) this.fade(channel);
    else if (this.ready(channel.length)) this.play(channel);
    for (const sample of channel) this.energy += sample * sample;
    for (let other = 1; other < output.length; other++) output[other].set(channel);
    if (++this.blocks === REPORT) this.report(channel.length);
    return true;
  }

  ready(length) {
    if (this.running) return true;
    if (!this.queued) return false;
    this.waited += length / sampleRate;
    this.running = this.queued >= PREFILL * sampleRate || this.waited >= PATIENCE;
    return this.running;
  }

  play(channel) {
    let at = 0;
    while (at < channel.length && this.queue.length) {
      const piece = this.queue[0];
      const part = piece.samples.subarray(piece.position, piece.position + channel.length - at);
      channel.set(part, at);
      at += part.length;
      piece.position += part.length;
      this.queued -= part.length;
      this.played.set(piece.item, (this.played.get(piece.item) ?? 0) + part.length);
      if (piece.position === piece.samples.length) this.queue.shift();
    }
    if (!this.queue.length) {
      this.running = false;
      this.waited = 0;
    }
  }

  fade(channel) {
    for (let at = 0; at < channel.length && this.tailAt < this.tail.length; at++, this.tailAt++) {
      channel[at] = this.tail[this.tailAt] * (1 - this.tailAt / this.tail.length);
    }
    if (this.tailAt >= this.tail.length) this.tail = null;
  }

  report(length) {
    this.port.postMessage({
      played: [...this.played],
      queued: this.queued,
      level: Math.sqrt(this.energy / (length * REPORT)),
    });
    const waiting = new Set(this.queue.map((piece) => piece.item));
    // The item that plays last stays: a late delta may go on with it. (A map keeps the order in which items began.)
    for (const item of [...this.played.keys()].slice(0, -1)) if (!waiting.has(item)) this.played.delete(item);
    this.energy = 0;
    this.blocks = 0;
  }
}

registerProcessor("antiphon-player", Player);
