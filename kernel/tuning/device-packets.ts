/** Packets that a device has carried, by /proc/net/dev of this network namespace (proc(5)). */
import { readFile } from 'node:fs/promises'

/** Received and sent, since the device was made; undefined where there is no such device, or it cannot be read. */
export type DevicePackets = (device: string) => Promise<number | undefined>

export const readDevicePackets: DevicePackets = async (device) => {
  try {
    return packetsOf(await readFile('/proc/net/dev', 'utf8'), device)
  } catch {
    return undefined
  }
}

/** After the name: bytes and packets received, six more, bytes and packets sent, … Never throws. */
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
