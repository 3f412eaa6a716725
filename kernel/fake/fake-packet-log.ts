/** Logged packets in memory: a test logs them. */
import { KernelError } from '../kernel.ts'
import type { LoggedPacket, PacketLog } from '../nfnetlink/nfnetlink.ts'

export class FakePacketLog implements PacketLog {
  readonly #listeners = new Map<number, (packet: LoggedPacket) => void>()
  /** If set, following throws this error. */
  failure: KernelError | undefined

  async follow(group: number, listener: (packet: LoggedPacket) => void, signal?: AbortSignal): Promise<() => void> {
    await Promise.resolve()
    const operation = `follow nflog group ${group}`
    if (signal?.aborted === true) throw new KernelError('EINTR', operation, 'stopped before it began')
    if (this.failure !== undefined) throw this.failure
    if (this.#listeners.has(group)) throw new KernelError('EPERM', operation, 'not permitted')
    this.#listeners.set(group, listener)
    return () => void this.#listeners.delete(group)
  }

  /** Returns false if nobody follows the group. */
  log(group: number, packet: LoggedPacket): boolean {
    const listener = this.#listeners.get(group)
    listener?.(packet)
    return listener !== undefined
  }
}
