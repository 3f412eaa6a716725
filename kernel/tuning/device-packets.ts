/** Reads how many packets a device has carried, from /proc/net/dev of this network namespace (proc(5)). */
import { readFile } from 'node:fs/promises'

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
