// Choosing a transport: WebRTC when it can be had, the WebSocket otherwise.
//
// A transport carries one call. Made by its class's `connect({ model, key, stream, onevent, onsent, onclose, signal })`, it has
//   kind               its name
//   ownsPlayback       true: the server plays and knows what was heard; false: we do, and tell it when we stop
//   send(event)        send a client event
//   setMicrophone(s)   "open", "silent" (muted: silence is sent) or "off" (nothing is sent)
//   flushMicrophone()  resolves once everything said so far is on its way
//   stopPlayback()     be silent at once; gives [{ itemId, contentIndex, heardMs }] of what was cut
//   heardMs(itemId)    how much of an item was heard, null where the server counts
//   playing            whether the assistant is being heard
//   levels()           { input, output }, root mean square 0..1
//   close()            end the call
// and calls onevent(event) for what comes, onsent(event) for what goes, onclose({ code, reason }) when the other side ends it.

import { ApiError } from "../api.js";
import { Problem } from "../problems.js";
import { WebRtcTransport } from "./webrtc.js";
import { WebSocketTransport } from "./websocket.js";

/** What makes us fall back: WebRTC itself is missing or blocked. A bad key or a full server would refuse the WebSocket too. */
const FALL_BACK = new Set(["no-webrtc", "no-media"]);
const NOT_SERVED = new Set([404, 405, 501]);

/** Connect as `choice` says (auto, webrtc, websocket). `onnote` hears why the WebSocket was taken instead. Throws. */
export async function connect(choice, options, onnote) {
  if (choice === "websocket") return WebSocketTransport.connect(options);
  try {
    return await WebRtcTransport.connect(options);
  } catch (error) {
    if (choice === "webrtc" || !replaceable(error)) throw explained(error);
    onnote(`${reason(error)} The call uses the WebSocket instead.`);
    return WebSocketTransport.connect(options);
  }
}

function replaceable(error) {
  if (error instanceof ApiError) return NOT_SERVED.has(error.status) && error.code !== "model_not_found";
  return error instanceof Problem && FALL_BACK.has(error.code);
}

function reason(error) {
  return error instanceof ApiError ? "This server takes no WebRTC calls." : error.title;
}

function explained(error) {
  if (error instanceof ApiError && NOT_SERVED.has(error.status) && error.code !== "model_not_found") {
    return new Problem("no-webrtc", "This server takes no WebRTC calls.", "Choose Automatic or WebSocket under Setup.");
  }
  return error;
}
