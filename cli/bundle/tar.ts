/**
 * Regular files in a tar archive (POSIX ustar), in memory. Archives to read may come from anyone, so they are
 * validated. Pure.
 */
import { Buffer } from 'node:buffer'

export interface TarFile {
  readonly name: string
  readonly content: Buffer
}

const BLOCK = 512
const MAX_NAME = 100
/** Letters, digits and a few signs: nothing that leaves the directory or contains control characters. */
const NAME = /^[A-Za-z0-9_-][A-Za-z0-9._@:-]*(\/[A-Za-z0-9_-][A-Za-z0-9._@:-]*)*$/

/** Throws Error for a name that a bundle may not contain. */
export function packTar(files: readonly TarFile[], atMs: number): Buffer {
  const parts = files.flatMap(({ name, content }) => {
    if (!isTarName(name)) throw new Error(`no name for a file in a bundle: ${JSON.stringify(name.slice(0, 200))}`)
    return [header(name, content.length, atMs), content, Buffer.alloc(-content.length & (BLOCK - 1))]
  })
  return Buffer.concat([...parts, Buffer.alloc(2 * BLOCK)])
}

export function isTarName(name: string): boolean {
  return name.length <= MAX_NAME && NAME.test(name)
}

function header(name: string, size: number, atMs: number): Buffer {
  const block = Buffer.alloc(BLOCK)
  block.write(name, 0, 'ascii')
  block.write(octal(0o600, 7), 100)
  block.write(octal(0, 7), 108)
  block.write(octal(0, 7), 116)
  block.write(octal(size, 11), 124)
  block.write(octal(Math.max(0, Math.floor(atMs / 1000)), 11), 136)
  block.write('0', 156)
  block.write('ustar\u000000', 257, 'latin1')
  block.write(`${octal(checksum(block), 6)}\0 `, 148, 'latin1')
  return block
}

function octal(value: number, digits: number): string {
  return value.toString(8).padStart(digits, '0')
}

/** The checksum counts its own field as spaces. */
function checksum(block: Buffer): number {
  let sum = 8 * 0x20
  for (let i = 0; i < BLOCK; i += 1) if (i < 148 || i >= 156) sum += block[i] ?? 0
  return sum
}

/**
 * Throws Error if the content is no tar archive or is incomplete, for a name that a bundle may not contain, for
 * anything but a regular file, for a duplicate name, and for too many files.
 */
export function unpackTar(archive: Buffer, mostFiles: number): ReadonlyMap<string, Buffer> {
  const files = new Map<string, Buffer>()
  let at = 0
  while (at + BLOCK <= archive.length) {
    const block = archive.subarray(at, at + BLOCK)
    if (block.every((octet) => octet === 0)) return files
    const { name, size } = readHeader(block)
    if (files.has(name)) throw new Error(`the file ${name} is in it twice`)
    if (files.size >= mostFiles) throw new Error(`it has more than ${mostFiles} files`)
    const begin = at + BLOCK
    if (size > archive.length - begin) throw new Error(`the file ${name} is cut short`)
    files.set(name, archive.subarray(begin, begin + size))
    at = begin + Math.ceil(size / BLOCK) * BLOCK
  }
  throw new Error('the archive has no end: it is cut short, or not a tar archive')
}

function readHeader(block: Buffer): { readonly name: string; readonly size: number } {
  if (readOctal(block, 148, 8) !== checksum(block)) throw new Error('it is not a tar archive, or it is damaged')
  const name = readText(block, 0, MAX_NAME)
  const title = JSON.stringify(name)
  const type = block[156]
  if (type !== 0 && type !== 0x30) throw new Error(`${title} is not a regular file`)
  if (!isTarName(name) || readText(block, 345, 155) !== '')
    throw new Error(`${title} is not a name of a file in a bundle`)
  const size = readOctal(block, 124, 12)
  if (size === undefined) throw new Error(`the size of ${title} is not a number`)
  return { name, size }
}

function readText(block: Buffer, from: number, length: number): string {
  const field = block.subarray(from, from + length)
  const end = field.indexOf(0)
  return field.toString('latin1', 0, end === -1 ? length : end)
}

function readOctal(block: Buffer, from: number, length: number): number | undefined {
  const text = readText(block, from, length).trim()
  return /^[0-7]{1,11}$/.test(text) ? Number.parseInt(text, 8) : undefined
}
