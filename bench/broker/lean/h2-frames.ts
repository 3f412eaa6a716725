/** HTTP/2 frames (RFC 9113), as far as a gRPC client needs them. Pure. */

export const DATA = 0
export const HEADERS = 1
export const RST_STREAM = 3
export const SETTINGS = 4
export const PING = 6
export const GOAWAY = 7
export const WINDOW_UPDATE = 8
export const FRAME_HEADER = 9
export const END_STREAM = 1
export const ACK = 1
const END_HEADERS = 4

export interface Frame {
  readonly type: number
  readonly flags: number
  readonly stream: number
  readonly payload: Buffer
}

export function frame(type: number, flags: number, stream: number, payload: Buffer): Buffer {
  const header = Buffer.allocUnsafe(FRAME_HEADER)
  header.writeUIntBE(payload.length, 0, 3)
  header[3] = type
  header[4] = flags
  header.writeUInt32BE(stream, 5)
  return Buffer.concat([header, payload])
}

/** Takes whole frames off the beginning, and returns the rest. */
export function takeFrames(bytes: Buffer, take: (frame: Frame) => void): Buffer {
  let at = 0
  while (bytes.length - at >= FRAME_HEADER) {
    const end = at + FRAME_HEADER + bytes.readUIntBE(at, 3)
    if (end > bytes.length) break
    const [type = 0, flags = 0] = [bytes[at + 3], bytes[at + 4]]
    take({ type, flags, stream: bytes.readUInt32BE(at + 5), payload: bytes.subarray(at + FRAME_HEADER, end) })
    at = end
  }
  return bytes.subarray(at)
}

/** The client's preface, with this window in bytes for each stream and for the connection. */
export function preface(window: number): Buffer {
  const settings = Buffer.alloc(12)
  settings.writeUInt16BE(1, 0) // HEADER_TABLE_SIZE is 0, so that received headers need no memory.
  settings.writeUInt16BE(4, 6) // INITIAL_WINDOW_SIZE
  settings.writeUInt32BE(window, 8)
  return Buffer.concat([
    Buffer.from('PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n'),
    frame(SETTINGS, 0, 0, settings),
    windowUpdate(0, window - 65_535),
  ])
}

export function windowUpdate(stream: number, by: number): Buffer {
  const payload = Buffer.alloc(4)
  payload.writeUInt32BE(by)
  return frame(WINDOW_UPDATE, 0, stream, payload)
}

/** The headers of a gRPC call, each written in full, so that no table is needed. */
export function callHeaders(stream: number, path: string, authority: string): Buffer {
  const block = Buffer.concat([
    Buffer.from([0x83, 0x87]), // :method POST, :scheme https
    Buffer.from([0x04]),
    text(path),
    Buffer.from([0x01]),
    text(authority),
    Buffer.from([0x0f, 0x10]),
    text('application/grpc'),
    Buffer.from([0x00]),
    text('te'),
    text('trailers'),
  ])
  return frame(HEADERS, END_HEADERS, stream, block)
}

/** A gRPC message in its envelope. */
export function message(bytes: Uint8Array): Buffer {
  const head = Buffer.alloc(5)
  head.writeUInt32BE(bytes.length, 1)
  return Buffer.concat([head, bytes])
}

function text(value: string): Buffer {
  if (value.length > 126) throw new RangeError(`header of ${value.length} characters: expected at most 126`)
  return Buffer.concat([Buffer.from([value.length]), Buffer.from(value)])
}
