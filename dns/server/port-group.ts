/**
 * Sockets that share a port with SO_REUSEPORT form a group, in the order in which they joined it, and the kernel
 * distributes packets among them. A process that is about to end attaches a BPF filter of one instruction to the group,
 * which sends new packets to the second socket. The first socket is the oldest, and the older process is the one that
 * leaves. If there is no second socket, the kernel distributes packets as before, so that a single process still
 * receives everything.
 */
import { readdirSync, readlinkSync } from 'node:fs'
import type { SocketAddress } from '../config/config.ts'

export interface PortGroup {
  /**
   * From now on, UDP and TCP traffic to `at` goes to another process that shares the port; packets that wait at our own
   * sockets stay there. Returns how many of our sockets pass traffic on.
   */
  passOn(at: SocketAddress): number
}

/** The same values on x86-64 and arm64. */
const SOL_SOCKET = 1
const SO_ATTACH_REUSEPORT_CBPF = 51
const AF_INET = 2
const AF_INET6 = 10
/** Room for struct sockaddr_in6, the longest that matters: 28 octets. */
const NAME_SIZE = 32
/** struct sock_fprog: number of instructions 0, pointer to the first 8. */
const PROGRAM_SIZE = 16
/** struct sock_filter. BPF_RET | BPF_K: ends with a constant result, here the index in the group. */
const RETURN_CONSTANT = 0x06
const SECOND = 1

/**
 * One buffer for everything that the kernel reads or writes. It never moves, because it is too large for V8's own heap.
 */
const MEMORY = 4096
const AT = { name: 0, nameSize: 64, program: 128, instruction: 192 } as const

/** Undefined if this Node cannot call the C library. Traffic cannot be passed on then. Never rejects. */
export async function openPortGroup(): Promise<PortGroup | undefined> {
  if (process.platform !== 'linux' || !['x64', 'arm64'].includes(process.arch)) return undefined
  try {
    const { dlopen, getRawPointer } = await import('node:ffi')
    const { functions } = dlopen(null, {
      getsockname: { arguments: ['i32', 'pointer', 'pointer'], return: 'i32' },
      setsockopt: { arguments: ['i32', 'i32', 'i32', 'pointer', 'u32'], return: 'i32' },
    })
    const memory = Buffer.alloc(MEMORY)
    const pointer = (at: number): bigint => getRawPointer(memory) + BigInt(at)
    memory.writeUInt16LE(RETURN_CONSTANT, AT.instruction)
    memory.writeUInt32LE(SECOND, AT.instruction + 4)
    memory.writeUInt16LE(1, AT.program)
    memory.writeBigUInt64LE(pointer(AT.instruction), AT.program + 8)
    const name = memory.subarray(AT.name, AT.name + NAME_SIZE)
    const isAt = (descriptor: number, wanted: Buffer): boolean => {
      name.fill(0)
      memory.writeUInt32LE(NAME_SIZE, AT.nameSize)
      return functions.getsockname(descriptor, pointer(AT.name), pointer(AT.nameSize)) === 0 && name.equals(wanted)
    }
    // The system refuses this for a connection of a client, which has the same name but belongs to no group.
    const attach = (descriptor: number): boolean =>
      functions.setsockopt(descriptor, SOL_SOCKET, SO_ATTACH_REUSEPORT_CBPF, pointer(AT.program), PROGRAM_SIZE) === 0
    return {
      passOn: (at) => {
        const wanted = socketName(at)
        return ownSockets().filter((descriptor) => isAt(descriptor, wanted) && attach(descriptor)).length
      },
    }
  } catch {
    // Node is older or lacks `node:ffi`, or the C library lacks these calls.
    return undefined
  }
}

/** Returns the name as the kernel writes it, padded with zeros. */
function socketName({ address, port }: SocketAddress): Buffer {
  const name = Buffer.alloc(NAME_SIZE)
  name.writeUInt16LE(address.family === 4 ? AF_INET : AF_INET6, 0)
  name.writeUInt16BE(port, 2)
  if (address.family === 4) {
    name.writeUInt32BE(Number(address.value), 4)
  } else {
    name.writeBigUInt64BE(address.value >> 64n, 8)
    name.writeBigUInt64BE(address.value & 0xffff_ffff_ffff_ffffn, 16)
  }
  return name
}

// Finds the descriptors of sockets, which Node's own objects do not expose.

/**
 * Calls `open` and returns the descriptor of the one socket that this process has gained. Undefined if it has not
 * gained exactly one (something else opened a socket at the same moment, or /proc is missing). Throws what `open`
 * throws.
 */
export function descriptorOpenedBy(open: () => void): number | undefined {
  const before = sockets()
  open()
  const added = [...sockets()].filter(([descriptor, link]) => before.get(descriptor) !== link)
  return added.length === 1 ? Number(added[0]?.[0]) : undefined
}

/** Returns the descriptors of all sockets of this process. */
function ownSockets(): number[] {
  return [...sockets().keys()].map(Number)
}

/** Maps descriptor → `socket:[inode]`. */
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
    // The descriptor was closed meanwhile, as that of the listing itself always is.
    return undefined
  }
}
