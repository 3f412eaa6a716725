/**
 * Calico's view of the other clusters: pools that give no addresses, so that Calico counts their networks among those
 * it does not masquerade towards. Pure.
 */
import { addressBits, formatPrefix, parsePrefix } from '../../../model/addresses/ip.ts'
import { APP_MANAGED_BY_SEALANE, LABEL_APP_MANAGED_BY } from '../../../model/spec-constants.ts'

export interface CalicoPool {
  readonly apiVersion: string
  readonly kind: 'IPPool'
  readonly metadata: { readonly name: string; readonly labels: Readonly<Record<string, string>> }
  readonly spec: {
    readonly cidr: string
    readonly blockSize: number
    readonly disabled: true
    readonly disableBGPExport: true
    readonly natOutgoing: false
    readonly ipipMode: 'Never'
    readonly vxlanMode: 'Never'
    readonly nodeSelector: string
  }
}

/** One for each network, named after it: `sealane-244-0-0-0-8`. Throws InvalidAddressError. */
export function calicoPools(prefixes: readonly string[], apiVersion: string): CalicoPool[] {
  return [...new Set(prefixes)].sort().map((text) => {
    const prefix = parsePrefix(text)
    const usual = prefix.family === 4 ? 26 : 122
    return {
      apiVersion,
      kind: 'IPPool',
      metadata: {
        name: `sealane-${formatPrefix(prefix).replaceAll(/[^0-9a-f]+/g, '-')}`,
        labels: { [LABEL_APP_MANAGED_BY]: APP_MANAGED_BY_SEALANE },
      },
      spec: {
        cidr: formatPrefix(prefix),
        // A block must fit into its pool.
        blockSize: Math.min(addressBits(prefix.family), Math.max(usual, prefix.length)),
        disabled: true,
        disableBGPExport: true,
        natOutgoing: false,
        ipipMode: 'Never',
        vxlanMode: 'Never',
        nodeSelector: '!all()',
      },
    }
  })
}
