/** The part of a WatchMessage that a simulated member reads: its kind, its revision, and its size. */

export interface WatchFacts {
  /** The field number in WatchMessage: 1 reset, 2 batch, 3 synced, 4 contact; later numbers are of later releases. */
  readonly kind: number
  readonly body: Buffer
}

export function readWatchMessage(bytes: Buffer): WatchFacts {
  const reader = new Reader(bytes)
  const kind = reader.varint() >> 3
  return { kind, body: reader.bytes() }
}

/** The number of events in a batch, their bytes, and the revision. */
export function readBatch(body: Buffer): {
  readonly events: number
  readonly bytes: number
  readonly revision: number
} {
  const reader = new Reader(body)
  let events = 0
  let bytes = 0
  let revision = 0
  while (!reader.over) {
    const field = reader.varint() >> 3
    if (field === 1) {
      events += 1
      bytes += reader.bytes().length
    } else revision = reader.varint()
  }
  return { events, bytes, revision }
}

export class Reader {
  readonly #bytes: Buffer
  #at = 0

  constructor(bytes: Buffer) {
    this.#bytes = bytes
  }

  get over(): boolean {
    return this.#at >= this.#bytes.length
  }

  varint(): number {
    let value = 0
    for (let scale = 1; ; scale *= 128) {
      const byte = this.#bytes[this.#at++] ?? 0
      value += (byte & 0x7f) * scale
      if (byte < 0x80) return value
    }
  }

  bytes(): Buffer {
    const length = this.varint()
    const from = this.#at
    this.#at += length
    return this.#bytes.subarray(from, this.#at)
  }
}
