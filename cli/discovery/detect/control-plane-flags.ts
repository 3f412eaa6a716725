/** The command lines of kube-apiserver and kube-controller-manager, where they run as pods that one may see. */
import { type Evidence, networks } from '../evidence.ts'
import { flagOf, partPods } from '../snapshot/containers.ts'
import { prefixesIn } from '../snapshot/prefix-texts.ts'
import { type World, pathOf } from '../snapshot/snapshot.ts'

const ROWS = [
  { part: 'kube-apiserver', flag: 'service-cluster-ip-range', about: 'serviceCIDRs', confidence: 'certain' },
  { part: 'kube-controller-manager', flag: 'service-cluster-ip-range', about: 'serviceCIDRs', confidence: 'likely' },
  // What nodes are given; a CNI with books of its own need not follow it.
  { part: 'kube-controller-manager', flag: 'cluster-cidr', about: 'podCIDRs', confidence: 'likely' },
] as const

export function controlPlaneFlags(world: World): Evidence[] {
  return ROWS.flatMap(({ part, flag, about, confidence }) => {
    const pod = partPods(world, part).find((one) => flagOf(one, flag) !== undefined)
    if (pod === undefined) return []
    return networks(about, prefixesIn([flagOf(pod, flag)]), confidence, `${pathOf(pod)} --${flag}`)
  })
}
