// The realtime protocol over WebRTC: audio travels on media tracks, events on the data channel `oai-events`.
// The server owns the playback: it knows what was heard and cuts the conversation itself.

import { ApiError, json, request } from "../api.js";
import { LevelMeter } from "../audio/level.js";
import { el } from "../dom.js";
import { Problem } from "../problems.js";
import { parse } from "./websocket.js";

const CONNECT_TIMEOUT = 10000;
const AUDIBLE = 0.003; // root mean square
const LINGER = 400; // ms of silence inside an answer

/** See `connect.js` for what a transport is. */
export class WebRtcTransport {
  kind = "WebRTC";
  ownsPlayback = true;
  peer; // for tests and the curious: its getStats() tells how the line is
  #channel;
  #meter = new LevelMeter();
  #track = null;
  #inputLevel = () => 0;
  #outputLevel = () => 0;
  #speaker = el("audio", { autoplay: true });
  #open = "off";
  #playing = null; // what the server last said of its output buffer; null: nothing yet
  #audibleAt = -Infinity;
  #location = null;
  #handlers;

  /** Throws a `Problem`, or an `ApiError` when the server refuses the call. */
  static async connect({ model, stream, onevent, onsent, onclose, signal }) {
    if (!window.RTCPeerConnection) throw new Problem("no-webrtc", "This browser has no WebRTC.", "Use the WebSocket connection.");
    const transport = new WebRtcTransport();
    transport.#handlers = { onevent, onsent, onclose };
    try {
      await transport.#call(model, stream, signal);
    } catch (error) {
      await transport.close();
      throw error;
    }
    return transport;
  }

  send(event) {
    if (this.#channel.readyState !== "open") return;
    this.#channel.send(JSON.stringify(event));
    this.#handlers.onsent(event);
  }

  setMicrophone(state) {
    this.#open = state;
    if (this.#track) this.#track.enabled = state === "open"; // a disabled track sends silence
  }

  /** The last words are on their way beside the data channel: let them arrive first. */
  async flushMicrophone() {
    await new Promise((resolve) => setTimeout(resolve, 160));
  }

  stopPlayback() {
    if (this.playing) this.send({ type: "output_audio_buffer.clear" });
    return []; // the server says what was cut
  }

  heardMs() {
    return null;
  }

  /** As the server says; one that does not is listened to. */
  get playing() {
    return this.#playing ?? performance.now() - this.#audibleAt < LINGER;
  }

  levels() {
    const output = this.#outputLevel();
    if (output > AUDIBLE) this.#audibleAt = performance.now();
    return { input: this.#open === "open" ? this.#inputLevel() : 0, output };
  }

  async close() {
    if (this.peer) this.peer.onconnectionstatechange = null;
    if (this.#channel) this.#channel.onclose = this.#channel.onmessage = null;
    const connected = this.#channel?.readyState === "open";
    this.#channel?.close();
    this.peer?.close();
    this.#speaker.srcObject = null;
    if (this.#location && !connected) {
      // A peer that is connected is told by DTLS; one that never was keeps its place until it is hung up.
      const path = new URL(this.#location, window.location.href).pathname;
      await request(`${path}/hangup`, { method: "POST", timeout: 2000 }).catch(() => null);
    }
    await this.#meter.close();
  }

  async #call(model, stream, signal) {
    await this.#meter.start();
    const peer = (this.peer = new RTCPeerConnection({ iceServers: await iceServers() }));
    peer.ontrack = ({ track, streams }) => this.#hear(streams[0] ?? new MediaStream([track]));
    this.#offerMicrophone(stream);
    this.#channel = peer.createDataChannel("oai-events");
    this.#channel.onmessage = ({ data }) => this.#receive(data);
    await peer.setLocalDescription();
    const answer = await request(`/v1/realtime/calls${model ? `?model=${encodeURIComponent(model)}` : ""}`, {
      method: "POST",
      body: peer.localDescription.sdp,
      headers: { "content-type": "application/sdp" },
      timeout: 15000,
      signal,
    });
    this.#location = answer.headers.get("location");
    await peer.setRemoteDescription({ type: "answer", sdp: await answer.text() });
    await this.#connected(signal);
    peer.onconnectionstatechange = () => this.#stateChanged();
    this.#channel.onclose = () => this.#hungUp({ code: 1000, reason: "" });
  }

  #offerMicrophone(stream) {
    if (!stream) {
      this.peer.addTransceiver("audio", { direction: "recvonly" });
      return;
    }
    // A copy, so that muting it leaves the level meter's alone and closing the call leaves the microphone to its owner.
    this.#track = stream.getAudioTracks()[0];
    this.#inputLevel = this.#meter.tap(stream);
    this.peer.addTrack(this.#track, stream);
  }

  #hear(stream) {
    this.#speaker.srcObject = stream;
    this.#speaker.play().catch(() => null); // the click that started the call has allowed it
    this.#outputLevel = this.#meter.tap(stream);
  }

  #connected(signal) {
    return new Promise((resolve, reject) => {
      const nothing = new Problem(
        "no-media",
        "No WebRTC connection came about.",
        "A firewall may block UDP to the server. Use the WebSocket connection, or ask for a TURN server.",
      );
      const timer = setTimeout(() => reject(nothing), CONNECT_TIMEOUT);
      signal?.addEventListener("abort", () => reject(signal.reason), { once: true });
      this.#channel.onopen = () => {
        clearTimeout(timer);
        resolve();
      };
      this.peer.onconnectionstatechange = () => {
        if (this.peer.connectionState === "failed") reject(nothing);
      };
    });
  }

  #stateChanged() {
    const state = this.peer.connectionState;
    if (state === "failed" || state === "closed") this.#hungUp({ code: 1006, reason: "No more packets came from the server." });
  }

  #hungUp(close) {
    this.#location = null; // there is nothing left to hang up
    this.#handlers.onclose(close);
  }

  #receive(data) {
    const event = parse(data);
    if (event === null) return;
    if (event.type === "output_audio_buffer.started") this.#playing = true;
    else if (event.type === "output_audio_buffer.stopped" || event.type === "output_audio_buffer.cleared") this.#playing = false;
    this.#handlers.onevent(event);
  }
}

async function iceServers() {
  try {
    const answer = await json("/v1/realtime/ice-servers");
    return answer.ice_servers ?? answer.iceServers ?? [];
  } catch (error) {
    if (error instanceof ApiError && error.status !== 401) return [];
    throw error;
  }
}
