// On the audio thread: the microphone in blocks of 20 ms, 24 kHz PCM16, with their level.

const RATE = 24000;
const BLOCK = 480;
const TAPS = 32; // of the resampling filter, on either side

/** Windowed-sinc resampling from the device's rate, for browsers that do not do it themselves. Keeps its tail between calls. */
class Resampler {
  constructor(from) {
    this.step = from / RATE;
    this.cutoff = Math.min(1, RATE / from) * 0.95;
    this.history = new Float32Array(2 * TAPS);
    this.position = TAPS; // of the next output sample in the history plus input
  }

  process(input, give) {
    const samples = new Float32Array(this.history.length + input.length);
    samples.set(this.history);
    samples.set(input, this.history.length);
    while (this.position + TAPS < samples.length) {
      const whole = Math.floor(this.position);
      let sum = 0;
      for (let at = whole - TAPS + 1; at <= whole + TAPS; at++) sum += (samples[at] ?? 0) * this.weight(at - this.position);
      give(sum);
      this.position += this.step;
    }
    const keep = Math.max(0, Math.floor(this.position) - TAPS);
    this.history = samples.slice(keep);
    this.position -= keep;
  }

  weight(distance) {
    const x = distance * this.cutoff * Math.PI;
    const sinc = Math.abs(x) < 1e-6 ? 1 : Math.sin(x) / x;
    return this.cutoff * sinc * (0.5 + 0.5 * Math.cos((Math.PI * distance) / TAPS));
  }
}

class Capture extends AudioWorkletProcessor {
  constructor() {
    super();
    this.resampler = sampleRate === RATE ? null : new Resampler(sampleRate);
    this.block = new Int16Array(BLOCK);
    this.filled = 0;
    this.energy = 0;
    // What has been recorded goes out at once when the speaker lets go of the button.
    this.port.onmessage = () => this.flush();
  }

  take(sample) {
    const clipped = Math.max(-1, Math.min(1, sample));
    this.block[this.filled++] = Math.round(clipped * 32767);
    this.energy += clipped * clipped;
    if (this.filled === BLOCK) this.flush();
  }

  flush() {
    if (this.filled) {
      const samples = this.block.slice(0, this.filled);
      this.port.postMessage({ samples, level: Math.sqrt(this.energy / this.filled) }, [samples.buffer]);
    }
    this.filled = 0;
    this.energy = 0;
  }

  process([input]) {
    const channel = input[0];
    if (!channel) return true;
    if (this.resampler) this.resampler.process(channel, (sample) => this.take(sample));
    else for (const sample of channel) this.take(sample);
    return true;
  }
}

registerProcessor("antiphon-capture", Capture);
