/**
 * Receive packet steering (Documentation/networking/scaling.rst): spreads the packets of one receive queue over the
 * processors. A tunnel device has one queue, so without it the processor that decrypts a packet also does all later
 * work on it.
 */
import { readFile, readdir, writeFile } from 'node:fs/promises'
import { availableParallelism } from 'node:os'
import { join } from 'node:path'

export interface PacketSteering {
  /**
   * Lets all processors handle packets of the device. Returns the command for what was written, `echo 3 > …`. Undefined
   * if nothing had to be written or the kernel does not allow it here (a read-only /sys), which only costs speed.
   */
  spread(device: string): Promise<string | undefined>
}

export class SysfsPacketSteering implements PacketSteering {
  readonly #root: string
  readonly #processors: number

  constructor(root = '/sys/class/net', processors = availableParallelism()) {
    this.#root = root
    this.#processors = processors
  }

  async spread(device: string): Promise<string | undefined> {
    if (this.#processors < 2) return undefined
    const mask = processorMask(this.#processors)
    const queues = join(this.#root, device, 'queues')
    let written: string | undefined
    for (const queue of await readdir(queues).catch(() => [])) {
      if (!/^rx-\d+$/.test(queue)) continue
      const file = join(queues, queue, 'rps_cpus')
      const present = await readFile(file, 'utf8').catch(() => undefined)
      // A mask that the operator has set stays.
      if (present === undefined || !/^[0,\s]*$/.test(present)) continue
      const done = await writeFile(file, mask).then(
        () => true,
        () => false,
      )
      if (done) written = `echo ${mask} > ${file}`
    }
    return written
  }
}

/** Returns the mask of all processors in the format of the kernel: hexadecimal, in groups of 32 bits. */
export function processorMask(processors: number): string {
  const digits = ((1n << BigInt(processors)) - 1n).toString(16)
  const groups: string[] = []
  for (let end = digits.length; end > 0; end -= 8) groups.unshift(digits.slice(Math.max(0, end - 8), end))
  return groups.join(',')
}
