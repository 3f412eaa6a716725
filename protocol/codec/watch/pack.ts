/** Messages as fewer bytes: zstd, which costs the one who sends little and the one who reads less. */
import { promisify } from 'node:util'
import { constants, zstdCompress, zstdCompressSync, zstdDecompressSync } from 'node:zlib'
import { CodecError } from '../codec-checks.ts'

const compress = promisify(zstdCompress)

/** What is larger is packed quickly, in the thread that serves all. */
const SMALL_BYTES = 128 * 1024
const QUICK = { [constants.ZSTD_c_compressionLevel]: 3 }
/**
 * From level 12 on it sees that slices are alike beyond their addresses; above, it takes many times as long. With tables
 * for half a megabyte: by itself it would take 50 MB of memory each time.
 */
const WELL = {
  [constants.ZSTD_c_compressionLevel]: 12,
  [constants.ZSTD_c_windowLog]: 19,
  [constants.ZSTD_c_hashLog]: 17,
  [constants.ZSTD_c_chainLog]: 17,
}

/** In this thread: some ten milliseconds for a megabyte. */
export function pack(bytes: Uint8Array): Uint8Array {
  return zstdCompressSync(bytes, { params: bytes.length > SMALL_BYTES ? QUICK : WELL })
}

/** Not in this thread, for what is sent to one. */
export function packQuickly(bytes: Uint8Array): Promise<Uint8Array> {
  return compress(bytes, { params: QUICK })
}

/** Not in this thread, and by a third smaller where much is alike: for what is sent to many. */
export function packWell(bytes: Uint8Array): Promise<Uint8Array> {
  return compress(bytes, { params: WELL })
}

/**
 * Of what a frame says that it needs to be unpacked, so much is believed: 8 MiB, above what any message of ours needs. By
 * itself zstd would take 128 MiB for a frame of a few bytes.
 */
const BOUNDED = { [constants.ZSTD_d_windowLogMax]: 23 }

/** Throws CodecError for what is no zstd, or more than `maxBytes` when it is unpacked. */
export function unpack(zstd: Uint8Array, maxBytes: number): Uint8Array {
  try {
    return zstdDecompressSync(zstd, { maxOutputLength: maxBytes, params: BOUNDED })
  } catch (error) {
    const why = (error as { code?: string }).code === 'ERR_BUFFER_TOO_LARGE' ? `more than ${maxBytes} bytes` : 'no zstd'
    throw new CodecError('packed', why)
  }
}
