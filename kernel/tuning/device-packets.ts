/** Reads figures of this machine: packets of a device, from /proc/net/dev of this network namespace (proc(5)), and CPUs. */
import { readFileSync } from 'node:fs'
import { readFile } from 'node:fs/promises'
import { cpus } from 'node:os'

/**
 * Returns the sum of packets received and sent since the device was created. Undefined if the device does not exist or
 * cannot be read.
 */
export type DevicePackets = (device: string) => Promise<number | undefined>

export const readDevicePackets: DevicePackets = async (device) => {
  try {
    return packetsOf(await readFile('/proc/net/dev', 'utf8'), device)
  } catch {
    return undefined
  }
}

/** The fields after the name are: bytes and packets received, six more, bytes and packets sent, … Never throws. */
export function packetsOf(text: string, device: string): number | undefined {
  for (const line of text.split('\n')) {
    const at = line.indexOf(':')
    if (at === -1 || line.slice(0, at).trim() !== device) continue
    const figures = line
      .slice(at + 1)
      .trim()
      .split(/\s+/)
    const sum = Number(figures[1]) + Number(figures[9])
    return Number.isFinite(sum) ? sum : undefined
  }
  return undefined
}

/** How many CPUs the kernel may have: what it keeps for each of them, it keeps for all of these. At least 1. */
export function possibleCpus(file = '/sys/devices/system/cpu/possible'): number {
  let text = ''
  try {
    text = readFileSync(file, 'utf8')
  } catch {
    // No such file: the CPUs that run count.
  }
  // The last number of `0-7,16-23`.
  const last = Number(/(\d+)\s*$/.exec(text)?.[1])
  return Number.isInteger(last) ? last + 1 : Math.max(1, cpus().length)
}
