/**
 * recvmmsg(2) and sendmmsg(2): many datagrams by one system call, which Node's sockets do not offer. Called through
 * `node:ffi` (Node 26.1, experimental; decision 24). Callers also work without it, one by one.
 */
import { endianness } from 'node:os'

export interface Mmsg {
  /** Reads at most `count` datagrams into the `mmsghdr` array at `headers`. Gives how many; -1: none, or an error. */
  receive(descriptor: number, headers: bigint, count: number): number
  /** Sends the first `count` of the array. Gives how many were sent; -1: not even the first. */
  send(descriptor: number, headers: bigint, count: number): number
  /** Where the bytes are, for as long as somebody holds `memory`: a buffer of its own, not a piece of Node's pool. */
  addressOf(memory: Buffer): bigint
}

/** Same value on every Linux: the socket is never waited on here. */
const MSG_DONTWAIT = 0x40

/** Undefined where the C structures are laid out otherwise, or this Node cannot call the C library. Never rejects. */
export async function openMmsg(): Promise<Mmsg | undefined> {
  const known = process.platform === 'linux' && ['x64', 'arm64'].includes(process.arch) && endianness() === 'LE'
  if (!known) return undefined
  try {
    const { dlopen, getRawPointer } = await import('node:ffi')
    const { functions } = dlopen(null, {
      recvmmsg: { arguments: ['i32', 'pointer', 'u32', 'i32', 'pointer'], return: 'i32' },
      sendmmsg: { arguments: ['i32', 'pointer', 'u32', 'i32'], return: 'i32' },
    })
    return {
      receive: (descriptor, headers, count) => functions.recvmmsg(descriptor, headers, count, MSG_DONTWAIT, 0n),
      send: (descriptor, headers, count) => functions.sendmmsg(descriptor, headers, count, MSG_DONTWAIT),
      addressOf: (memory) => getRawPointer(memory),
    }
  } catch {
    // An older Node, one built or started without it, or a C library without these calls.
    return undefined
  }
}
