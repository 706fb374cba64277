// The realtime protocol over a WebSocket: audio travels in events, so the microphone and the player are ours.

import { whyRefused } from "../api.js";
import { Capture } from "../audio/microphone.js";
import { decode, encode } from "../audio/pcm.js";
import { Player } from "../audio/player.js";
import { Problem, refusalProblem } from "../problems.js";

const CONNECT_TIMEOUT = 15000;
const MAX_BUFFERED = 64 * 1024; // bytes the browser may hold unsent; beyond it the network is too slow and live audio is dropped

/** See `connect.js` for what a transport is. */
export class WebSocketTransport {
  kind = "WebSocket";
  ownsPlayback = false;
  #socket;
  #player;
  #capture = null;
  #inputLevel = 0;
  #microphone = "off";
  #handlers;

  /** Throws a `Problem`. */
  static async connect({ model, key, stream, onevent, onsent, onclose, signal }) {
    const transport = new WebSocketTransport();
    transport.#handlers = { onevent, onsent, onclose };
    const address = new URL("/v1/realtime", location.href);
    address.protocol = location.protocol === "https:" ? "wss:" : "ws:";
    if (model) address.searchParams.set("model", model);
    try {
      transport.#socket = await open(address, key ? ["realtime", `openai-insecure-api-key.${key}`] : ["realtime"], signal);
      transport.#listen();
      transport.#player = await Player.start();
      if (stream) transport.#capture = await Capture.start(stream, (samples, level) => transport.#heard(samples, level));
    } catch (error) {
      await transport.close();
      throw error;
    }
    return transport;
  }

  send(event) {
    if (this.#socket.readyState !== WebSocket.OPEN) return;
    this.#socket.send(JSON.stringify(event));
    this.#handlers.onsent(event);
  }

  setMicrophone(state) {
    this.#microphone = state;
    if (state !== "open") this.#inputLevel = 0;
  }

  async flushMicrophone() {
    await this.#capture?.flush();
  }

  stopPlayback() {
    return this.#player.stop();
  }

  heardMs(itemId) {
    return this.#player.heardMs(itemId);
  }

  get playing() {
    return this.#player?.playing ?? false;
  }

  levels() {
    return { input: this.#inputLevel, output: this.#player.level };
  }

  async close() {
    if (this.#socket) {
      this.#socket.onclose = null;
      this.#socket.onmessage = null;
      this.#socket.close(1000);
    }
    await Promise.allSettled([this.#capture?.stop(), this.#player?.close()]);
  }

  #listen() {
    this.#socket.onmessage = ({ data }) => this.#receive(data);
    this.#socket.onclose = ({ code, reason }) => this.#handlers.onclose({ code, reason });
  }

  #receive(data) {
    const event = parse(data);
    if (event === null) return;
    if (event.type === "response.output_audio.delta") {
      const pcm = decode(event.delta);
      this.#player.play(event.item_id, event.content_index, pcm);
      // The bytes are of no use to anybody who looks at the event, and a thousand of them would fill the memory.
      event.delta = `(${pcm.byteLength} bytes of PCM16 in base64)`;
      event.duration_ms = pcm.length / 24;
    } else if (event.type === "response.output_audio.done") this.#player.finish(event.item_id);
    this.#handlers.onevent(event);
  }

  #heard(samples, level) {
    if (this.#microphone === "off" || this.#socket.readyState !== WebSocket.OPEN || this.#socket.bufferedAmount > MAX_BUFFERED) return;
    // A muted microphone sends silence: the server ends a turn when it hears a pause, not when it hears nothing.
    if (this.#microphone === "open") this.#inputLevel = level;
    else samples.fill(0);
    this.#socket.send(`{"type":"input_audio_buffer.append","audio":"${encode(samples)}"}`);
    this.#handlers.onsent({ type: "input_audio_buffer.append", audio: `(${samples.byteLength} bytes of PCM16 in base64)` });
  }
}

/** A server event from its text, null for what is none. */
export function parse(text) {
  try {
    const event = JSON.parse(text);
    return typeof event?.type === "string" ? event : null;
  } catch {
    return null;
  }
}

function open(address, protocols, signal) {
  return new Promise((resolve, reject) => {
    let socket;
    try {
      socket = new WebSocket(address, protocols);
    } catch {
      reject(
        new Problem(
          "key",
          "This API key has characters that a browser cannot send.",
          "Check the key under Setup: letters, digits and -._~ are safe.",
        ),
      );
      return;
    }
    const timer = setTimeout(
      () => fail(new Problem("timeout", "The server did not answer within 15 seconds.", "Check the network and connect again.")),
      CONNECT_TIMEOUT,
    );
    const cancelled = () => fail(signal.reason);
    signal?.addEventListener("abort", cancelled, { once: true });
    const settle = () => {
      clearTimeout(timer);
      signal?.removeEventListener("abort", cancelled);
      socket.onopen = socket.onerror = socket.onclose = null;
    };
    const fail = (error) => {
      settle();
      socket.close();
      reject(error);
    };
    socket.onopen = () => {
      settle();
      resolve(socket);
    };
    socket.onclose = async () => {
      settle();
      reject(await refused());
    };
  });
}

async function refused() {
  try {
    const reason = await whyRefused();
    if (reason) return refusalProblem(reason);
  } catch (error) {
    return error;
  }
  return new Problem(
    "refused",
    "The server refused the WebSocket.",
    "A proxy between here and the server may not let WebSockets through. Try WebRTC under Setup, or look into the server's log.",
  );
}
