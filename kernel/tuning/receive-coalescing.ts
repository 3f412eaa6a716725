/**
 * Receive coalescing: how long a device may hold a segment back to join it with the next ones of the same connection
 * (`gro_flush_timeout`, Documentation/ABI/testing/sysfs-class-net). Packets out of a user-space tunnel come one by
 * one; joined they cross the rest of the node as one, and the receiver acknowledges once where it would ten times.
 * Only segments in the middle of a stream wait: a packet with PSH, an acknowledgement, UDP and ICMP go on at once.
 */
import { readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'

export interface ReceiveCoalescing {
  /**
   * Lets the device hold segments for so many microseconds. Gives what was written, `echo 100000 > …`; undefined when
   * nothing had to be, or when the kernel does not offer it here (a read-only /sys): that costs speed, nothing else.
   */
  hold(device: string, microseconds: number): Promise<string | undefined>
}

export class SysfsReceiveCoalescing implements ReceiveCoalescing {
  readonly #root: string

  constructor(root = '/sys/class/net') {
    this.#root = root
  }

  async hold(device: string, microseconds: number): Promise<string | undefined> {
    const file = join(this.#root, device, 'gro_flush_timeout')
    const present = await readFile(file, 'utf8').catch(() => undefined)
    // The first to say something decides: an operator's own value stays.
    if (present?.trim() !== '0') return undefined
    const nanoseconds = String(Math.round(microseconds * 1000))
    const done = await writeFile(file, nanoseconds).then(
      () => true,
      () => false,
    )
    return done ? `echo ${nanoseconds} > ${file}` : undefined
  }
}
