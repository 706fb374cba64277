// PCM16 as the realtime protocol carries it: 24 kHz, mono, little-endian, in base64.

export const SAMPLE_RATE = 24000;

/** Base64 of an `Int16Array`. */
export function encode(samples) {
  const bytes = new Uint8Array(samples.buffer, samples.byteOffset, samples.byteLength);
  let text = "";
  for (let at = 0; at < bytes.length; at += 8192) text += String.fromCharCode(...bytes.subarray(at, at + 8192));
  return btoa(text);
}

/** The `Int16Array` in base64 text. Throws on text that is not base64. */
export function decode(text) {
  const binary = atob(text);
  const bytes = new Uint8Array(binary.length - (binary.length % 2));
  for (let at = 0; at < bytes.length; at++) bytes[at] = binary.charCodeAt(at);
  return new Int16Array(bytes.buffer);
}

/** Root mean square of floats, 0..1. */
export function rms(samples) {
  let sum = 0;
  for (const sample of samples) sum += sample * sample;
  return samples.length ? Math.sqrt(sum / samples.length) : 0;
}
