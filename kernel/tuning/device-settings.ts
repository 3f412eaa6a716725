/**
 * Every setting that our devices inherit from `net.*.conf.default` of the host and that decides whether they carry
 * traffic (Documentation/networking/ip-sysctl.rst). Hardened hosts (CIS, STIG) disable forwarding there: links are then
 * up, but no packet passes. The settings are written when a device is created, kept in place in each round, and
 * compared by `sealane diagnose`. Pure.
 *
 * Not listed although inherited: arp_ignore, arp_announce, arp_filter and proxy_arp_pvlan (neighbours are permanent, so
 * these devices see no ARP requests), addr_gen_mode (no link-local address is needed), and log_martians, which is up to
 * the operator. Offloads are not inherited.
 */
import type { Family } from '../../model/addresses/addresses.ts'
import type { Round } from '../apply/apply.ts'
import type { Sysctl } from './sysctl.ts'

export interface DeviceSetting {
  /** For example `net/ipv4/conf/sealane0/forwarding`. */
  readonly name: string
  readonly value: string
}

const SETTINGS: Readonly<Record<Family, Readonly<Record<string, string>>>> = {
  4: {
    // Forward packets that arrive on the device.
    forwarding: '1',
    // Loose mode, RFC 3704 section 2.4: replies may arrive on another path than the request took.
    rp_filter: '2',
    // No remote host may use an address of this node as source, reach its loopback, or choose routes for it.
    accept_local: '0',
    route_localnet: '0',
    accept_source_route: '0',
    accept_redirects: '0',
    secure_redirects: '0',
    // A packet that leaves through the device it arrived on (a detour) takes the intended route.
    send_redirects: '0',
    proxy_arp: '0',
  },
  6: {
    // First in the list: without it, the other settings have no effect.
    disable_ipv6: '0',
    forwarding: '1',
    accept_ra: '0',
    autoconf: '0',
    accept_source_route: '0',
    accept_redirects: '0',
    proxy_ndp: '0',
  },
}

/** Returns the settings in the order in which they must be set. `families` are the families that the device carries. */
export function deviceSettings(device: string, families: readonly Family[]): readonly DeviceSetting[] {
  return families.flatMap((family) =>
    Object.entries(SETTINGS[family]).map(([key, value]) => ({ name: `net/ipv${family}/conf/${device}/${key}`, value })),
  )
}

// Applies the settings to the kernel.

/** Writes a setting if it differs. Returns true if it was written. Ignores a setting that does not exist. */
async function ensureSetting(sysctl: Sysctl, round: Round, name: string, value: string): Promise<boolean> {
  const current = await round.attempt(() => sysctl.read(name))
  if (current?.value === undefined || current.value.trim() === value) return false
  return round.change('sysctl', `sysctl -w ${name}=${value}`, () => sysctl.write(name, value))
}

/** Applies every inherited setting of one of our devices, for the families that it carries. */
export async function ensureDeviceSettings(
  sysctl: Sysctl,
  round: Round,
  device: string,
  families: readonly Family[],
): Promise<void> {
  for (const { name, value } of deviceSettings(device, families)) await ensureSetting(sysctl, round, name, value)
}
