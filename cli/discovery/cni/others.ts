/** Small CNIs whose configuration is all in a DaemonSet's command line: kindnet, kube-router, Weave Net. */
import { type Evidence, networks } from '../evidence.ts'
import { containersOf, daemonSet, environmentOf, flagOf } from '../snapshot/containers.ts'
import { byFamily, prefixesIn } from '../snapshot/prefix-texts.ts'
import { textAt } from '../snapshot/raw.ts'
import { type World, pathOf } from '../snapshot/snapshot.ts'
import { cniClaim } from './cni-claim.ts'

export function kindnet(world: World): Evidence[] {
  const workload = daemonSet(world, 'kindnet')
  if (workload === undefined) return []
  const how = pathOf(workload)
  const cidrs = byFamily(prefixesIn([environmentOf(workload, 'POD_SUBNET')]))
  // kind brings its own, which masquerades by iptables. The one by itself does so in nftables, and earlier.
  const early = containersOf(workload).some(
    (container) => textAt(container, 'image')?.includes('aojea/kindnet') === true,
  )
  return [
    cniClaim('kindnet', {
      mode: 'routes between nodes',
      how,
      traits: early ? ['kindnet-early-masquerade'] : [],
    }),
    ...networks('podCIDRs', cidrs, 'certain', `${how} POD_SUBNET`),
  ]
}

export function kubeRouter(world: World): Evidence[] {
  const workload = daemonSet(world, 'kube-router')
  if (workload === undefined || flagOf(workload, 'run-router') === 'false') return []
  const how = pathOf(workload)
  const overlay = flagOf(workload, 'enable-overlay') !== 'false'
  const claims = [cniClaim('kube-router', { mode: overlay ? 'bgp, overlay between subnets' : 'bgp', how })]
  if (flagOf(workload, 'run-service-proxy') !== 'true') return claims
  const value = { mode: 'ipvs', insteadOf: 'kube-router' } as const
  return [...claims, { about: 'kubeProxy', value, confidence: 'certain', how: `${how} --run-service-proxy` }]
}

/** Weave's default; the product is no longer maintained. */
const WEAVE_DEFAULT = '10.32.0.0/12'

export function weave(world: World): Evidence[] {
  const workload = daemonSet(world, 'weave-net')
  if (workload === undefined) return []
  const how = pathOf(workload)
  const range = prefixesIn([environmentOf(workload, 'IPALLOC_RANGE')])
  return [
    cniClaim('weave', { mode: 'one bridged network', how, podRanges: 'own' }),
    ...(range.length > 0
      ? networks('podCIDRs', range, 'certain', `${how} IPALLOC_RANGE`)
      : networks(
          'podCIDRs',
          [WEAVE_DEFAULT],
          'certain',
          `${how}: no IPALLOC_RANGE, Weave then takes ${WEAVE_DEFAULT}`,
        )),
  ]
}
