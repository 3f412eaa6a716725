/** Why the gateway's table drops a packet, and the named counter of each reason. */
import type { ReasonCode } from '../../model/reasons/reasons.ts'

export const DROP_REASONS = {
  'in-not-ours': 'not for an address of this cluster',
  'in-unknown-source': 'from an address of no other cluster',
  'in-lane-source': 'from a lane address, and neither a probe nor an ICMP error',
  'in-no-pod': 'from a lane to no pod of ours',
  'lane-to-lane': 'from lane to lane',
  redirect: 'redirect from a lane',
  'out-no-pod': 'to a lane from no pod of ours',
  'out-unknown-destination': 'to a lane, for no other cluster',
  'out-unknown-source': 'from an address that the others do not know',
  'icmp-error': 'an ICMP error that cannot be translated',
  'lane-address-outside': 'for a lane address, but not from a lane',
  'lane-address-astray': 'from a lane address, but not into a lane',
  'host-service': 'from a lane for this node itself, at a port that is not named',
  'lane-address-no-probe': 'for a lane address, but not a probe',
} as const satisfies Partial<Readonly<Record<ReasonCode, string>>>

export type DropReason = keyof typeof DROP_REASONS

export function dropCounter(reason: DropReason): string {
  return `dropped-${reason}`
}
