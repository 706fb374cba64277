// The microphone: opened once for a call, as a track (WebRTC) or as blocks of PCM16 (WebSocket).

import { microphoneProblem } from "../problems.js";
import { SAMPLE_RATE } from "./pcm.js";

/**
 * The microphone's stream. Throws a `Problem`.
 * Without `headphones` the assistant would hear itself through the loudspeaker, so the browser's echo canceller takes away what it plays.
 * That costs some of the voice of a user who talks over the assistant; headphones need no canceller.
 */
export async function openMicrophone({ headphones }) {
  const audio = { echoCancellation: !headphones, noiseSuppression: true, autoGainControl: true, channelCount: 1 };
  try {
    return await navigator.mediaDevices.getUserMedia({ audio, video: false });
  } catch (error) {
    throw microphoneProblem(error);
  }
}

/** Blocks of 20 ms from a microphone's stream: `onblock(Int16Array, level)`. */
export class Capture {
  #context;
  #node;

  static async start(stream, onblock) {
    const capture = new Capture();
    const { context, source } = captureContext(stream);
    capture.#context = context;
    try {
      await context.audioWorklet.addModule("/console/js/audio/capture-worklet.js");
      await context.resume();
      const node = new AudioWorkletNode(context, "antiphon-capture", {
        numberOfInputs: 1,
        numberOfOutputs: 0,
        channelCount: 1,
        channelCountMode: "explicit",
      });
      node.port.onmessage = ({ data }) => onblock(data.samples, data.level);
      source.connect(node);
      capture.#node = node;
    } catch (error) {
      await context.close();
      throw error;
    }
    return capture;
  }

  /** Give out what is less than a block, and wait until it has come. */
  async flush() {
    this.#node.port.postMessage("flush");
    await new Promise((resolve) => setTimeout(resolve, 40));
  }

  async stop() {
    if (this.#node) this.#node.port.onmessage = null;
    if (this.#context?.state !== "closed") await this.#context?.close();
  }
}

/** A context at 24 kHz; where the browser cannot bring the microphone to that rate, at the device's (the worklet resamples). */
function captureContext(stream) {
  const context = new AudioContext({ sampleRate: SAMPLE_RATE, latencyHint: "interactive" });
  try {
    return { context, source: context.createMediaStreamSource(stream) };
  } catch {
    context.close();
    const native = new AudioContext({ latencyHint: "interactive" });
    return { context: native, source: native.createMediaStreamSource(stream) };
  }
}
