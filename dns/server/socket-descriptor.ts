/** Finds the descriptors of sockets, which Node's own objects do not show. */
import { readdirSync, readlinkSync } from 'node:fs'

/**
 * Calls `open` and gives the descriptor of the one socket that this process has more afterwards. Undefined where there
 * is not exactly one (something else opened a socket at the same moment, /proc is not there). Throws what `open`
 * throws.
 */
export function descriptorOpenedBy(open: () => void): number | undefined {
  const before = sockets()
  open()
  const added = [...sockets()].filter(([descriptor, link]) => before.get(descriptor) !== link)
  return added.length === 1 ? Number(added[0]?.[0]) : undefined
}

/** Descriptors of all sockets of this process. */
export function ownSockets(): number[] {
  return [...sockets().keys()].map(Number)
}

/** Descriptor → `socket:[inode]`. */
function sockets(): Map<string, string> {
  const links = new Map<string, string>()
  for (const descriptor of listOf('/proc/self/fd')) {
    const link = linkOf(`/proc/self/fd/${descriptor}`)
    if (link?.startsWith('socket:') === true) links.set(descriptor, link)
  }
  return links
}

function listOf(folder: string): string[] {
  try {
    return readdirSync(folder)
  } catch {
    return []
  }
}

function linkOf(path: string): string | undefined {
  try {
    return readlinkSync(path)
  } catch {
    // Closed meanwhile: the descriptor of the listing itself always is.
    return undefined
  }
}
