/** Where the pod and service networks of a cluster can be read, apart from its CNI. */
import { type Evidence, networks } from '../evidence.ts'
import { byFamily, prefixesIn } from '../snapshot/prefix-texts.ts'
import { nameOf, textsAt } from '../snapshot/raw.ts'
import type { World } from '../snapshot/snapshot.ts'

/** networking.k8s.io/v1 ServiceCIDR (Kubernetes 1.33): what addresses are given from. All of them together. */
export function serviceCidrObjects(world: World): Evidence[] {
  const objects = world.list('ServiceCIDR', 'networking.k8s.io')
  const found = prefixesIn(objects.flatMap((object) => textsAt(object, 'spec', 'cidrs')))
  const names = objects.map(nameOf).slice(0, 3).join(', ')
  return networks('serviceCIDRs', byFamily(found), 'certain', `ServiceCIDR ${names} spec.cidrs`)
}

/** `… The range of valid IPs is 10.96.0.0/12` */
export function serviceProbes(world: World): Evidence[] {
  const found = world.snapshot.serviceProbes.flatMap((text) =>
    [...text.matchAll(/range of valid IPs is (?:CIDR )?([0-9a-fA-F.:/, ]+)/g)].map((match) => match[1]),
  )
  const how = 'the API server, asked in a dry run for a Service outside its range'
  return networks('serviceCIDRs', byFamily(prefixesIn(found)), 'certain', how)
}
