/** Devices of this machine with their addresses, also of those that carry nothing now: a bridge without a port. */
import { networkInterfaces } from 'node:os'
import { type ToolRun, jsonFrom } from './json-from.ts'

export interface DeviceLook {
  readonly name: string
  readonly addresses: readonly string[]
}

/** Throws where `ip` cannot say. */
export async function devicesOf(tool: ToolRun): Promise<readonly DeviceLook[]> {
  const rows = (await jsonFrom(tool, ['ip', '-json', 'address', 'show'])) as readonly IpDevice[]
  return rows.flatMap(({ ifname, addr_info: addresses = [] }) =>
    ifname === undefined ? [] : [{ name: ifname, addresses: addresses.flatMap(({ local }) => local ?? []) }],
  )
}

/** What the system's library knows: none of those that carry nothing now. */
export function carryingDevices(): readonly DeviceLook[] {
  return Object.entries(networkInterfaces()).map(([name, all = []]) => ({
    name,
    addresses: all.map(({ address }) => address),
  }))
}

/** As far as they can be known. */
export async function addressesHere(tool: ToolRun): Promise<readonly string[]> {
  const devices = await devicesOf(tool).catch((error: unknown) => {
    if (tool.signal.aborted) throw error
    return carryingDevices()
  })
  return devices.flatMap(({ addresses }) => addresses)
}

interface IpDevice {
  readonly ifname?: string
  readonly addr_info?: readonly { readonly local?: string }[]
}
