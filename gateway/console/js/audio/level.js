// The level of a media stream (WebRTC: both the microphone's and the assistant's).

import { rms } from "./pcm.js";

export class LevelMeter {
  #context;
  #taps = [];

  constructor() {
    this.#context = new AudioContext({ latencyHint: "interactive" });
  }

  /** Measure a stream; returns a function that gives its level now, 0..1. */
  tap(stream) {
    const source = this.#context.createMediaStreamSource(stream);
    const analyser = new AnalyserNode(this.#context, { fftSize: 1024 });
    source.connect(analyser);
    this.#taps.push(source);
    const samples = new Float32Array(analyser.fftSize);
    return () => {
      analyser.getFloatTimeDomainData(samples);
      return rms(samples);
    };
  }

  async start() {
    await this.#context.resume();
  }

  async close() {
    for (const source of this.#taps) source.disconnect();
    if (this.#context.state !== "closed") await this.#context.close();
  }
}
