/** OpenShift says what it is in config.openshift.io. */
import { type Evidence, networks } from '../evidence.ts'
import { byFamily, prefixesIn } from '../snapshot/prefix-texts.ts'
import { listAt, textAt, textsAt } from '../snapshot/raw.ts'
import type { World } from '../snapshot/snapshot.ts'

export function openshiftNetwork(world: World): Evidence[] {
  const network = world.list('Network', 'config.openshift.io')[0]
  if (network === undefined) return []
  const part = textsAt(network, 'status', 'serviceNetwork').length > 0 ? 'status' : 'spec'
  const pods = listAt(network, part, 'clusterNetwork').map((entry) => textAt(entry, 'cidr'))
  const how = (field: string): string => `Network.config.openshift.io cluster ${part}.${field}`
  return [
    ...networks('podCIDRs', byFamily(prefixesIn(pods)), 'certain', how('clusterNetwork')),
    ...networks(
      'serviceCIDRs',
      byFamily(prefixesIn(textsAt(network, part, 'serviceNetwork'))),
      'certain',
      how('serviceNetwork'),
    ),
  ]
}
