/**
 * Everything that a device of ours inherits from `net.*.conf.default` of the host and that decides whether it carries:
 * Documentation/networking/ip-sysctl.rst. Hardened hosts (CIS, STIG) leave forwarding off there, and then links are up
 * and no packet goes through. Set when a device is made, held at each round, and compared by `sealane diagnose`. Pure.
 *
 * What is inherited and not here: arp_ignore, arp_announce, arp_filter and proxy_arp_pvlan (neighbours are permanent, so
 * nobody asks on these devices), addr_gen_mode (no address of the link is needed), and log_martians, which is the
 * operator's. Offloads are not inherited.
 */
import type { Family } from '../../model/addresses/addresses.ts'
import type { Round } from '../apply/apply.ts'
import type { Sysctl } from './sysctl.ts'

export interface DeviceSetting {
  /** `net/ipv4/conf/sealane0/forwarding` */
  readonly name: string
  readonly value: string
}

const SETTINGS: Readonly<Record<Family, Readonly<Record<string, string>>>> = {
  4: {
    // What comes in by the device is handed on.
    forwarding: '1',
    // Loose, RFC 3704 section 2.4: answers may come in by another way than the question took.
    rp_filter: '2',
    // From outside, nobody speaks for this node, calls its loopback, or chooses ways for it.
    accept_local: '0',
    route_localnet: '0',
    accept_source_route: '0',
    accept_redirects: '0',
    secure_redirects: '0',
    // What goes back out of the device it came in by (a detour) is on its way as it should be.
    send_redirects: '0',
    proxy_arp: '0',
  },
  6: {
    // First: without it, the others are not looked at.
    disable_ipv6: '0',
    forwarding: '1',
    accept_ra: '0',
    autoconf: '0',
    accept_source_route: '0',
    accept_redirects: '0',
    proxy_ndp: '0',
  },
}

/** In the order in which they are to be set; `families`: that the device carries. */
export function deviceSettings(device: string, families: readonly Family[]): readonly DeviceSetting[] {
  return families.flatMap((family) =>
    Object.entries(SETTINGS[family]).map(([key, value]) => ({ name: `net/ipv${family}/conf/${device}/${key}`, value })),
  )
}

// Brings settings of the kernel to what they have to be.

/** Writes a setting that differs. True when it had to. A setting that does not exist is none of ours. */
async function ensureSetting(sysctl: Sysctl, round: Round, name: string, value: string): Promise<boolean> {
  const current = await round.attempt(() => sysctl.read(name))
  if (current?.value === undefined || current.value.trim() === value) return false
  return round.change('sysctl', `sysctl -w ${name}=${value}`, () => sysctl.write(name, value))
}

/** All that a device of ours inherits from the host, for the families that it carries. */
export async function ensureDeviceSettings(
  sysctl: Sysctl,
  round: Round,
  device: string,
  families: readonly Family[],
): Promise<void> {
  for (const { name, value } of deviceSettings(device, families)) await ensureSetting(sysctl, round, name, value)
}
