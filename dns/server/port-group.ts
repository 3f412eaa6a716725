/**
 * The sockets that share one port by SO_REUSEPORT are a group, in the order in which they joined it; the kernel spreads
 * what comes over them. A process that is about to end gives the group a filter (BPF) of one instruction: what is new
 * goes to the second of the group. The first is who is there longest, and it is the elder who gives way. Where there is
 * no second one the kernel goes on spreading, so that a lone process still gets everything.
 */
import { readdirSync, readlinkSync } from 'node:fs'
import type { SocketAddress } from '../config/config.ts'

export interface PortGroup {
  /**
   * What comes to `at` from now on goes to another process that shares the port, over UDP and TCP; what waits at our
   * own sockets stays there. Gives how many of our sockets pass on.
   */
  passOn(at: SocketAddress): number
}

/** These are the same on x86-64 and arm64. */
const SOL_SOCKET = 1
const SO_ATTACH_REUSEPORT_CBPF = 51
const AF_INET = 2
const AF_INET6 = 10
/** struct sockaddr_in6 is the longest that matters: 28. */
const NAME_SIZE = 32
/** struct sock_fprog: number of instructions 0, pointer to the first 8. */
const PROGRAM_SIZE = 16
/** struct sock_filter. BPF_RET | BPF_K: ends, with a constant as result, here the place in the group. */
const RETURN_CONSTANT = 0x06
const SECOND = 1

/** All that the kernel reads or writes, in one buffer that is never moved: far too large for V8's own heap. */
const MEMORY = 4096
const AT = { name: 0, nameSize: 64, program: 128, instruction: 192 } as const

/** Undefined where this Node cannot call the C library: then nothing can be passed on. Never rejects. */
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
    // The system refuses it for a client's connection, which has the same name and belongs to no group.
    const attach = (descriptor: number): boolean =>
      functions.setsockopt(descriptor, SOL_SOCKET, SO_ATTACH_REUSEPORT_CBPF, pointer(AT.program), PROGRAM_SIZE) === 0
    return {
      passOn: (at) => {
        const wanted = socketName(at)
        return ownSockets().filter((descriptor) => isAt(descriptor, wanted) && attach(descriptor)).length
      },
    }
  } catch {
    // An older Node, one built or started without it, or a C library without these calls.
    return undefined
  }
}

/** As the kernel writes it, zeros behind. */
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

// Finds the descriptors of sockets, which Node's own objects do not show.

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
function ownSockets(): number[] {
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
