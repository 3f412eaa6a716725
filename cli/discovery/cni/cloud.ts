/** Detects the CNIs of cloud providers: Amazon VPC CNI, Azure CNI and GKE. */
import { networksAround } from '../../../model/addresses/addresses.ts'
import { type Evidence, cniClaim, networks } from '../evidence.ts'
import { nodePodCidrs } from '../cidr-sources.ts'
import { isDistribution } from '../platform.ts'
import { nodeAddresses, podAddresses } from '../pod-addresses.ts'
import { workloadOf } from '../product.ts'
import { type World, environmentOf, labelOf, listAt, nameOf, pathOf, textAt } from '../snapshot.ts'
import { byFamily, prefixesIn } from '../prefix-texts.ts'

/** Pods have addresses of the VPC, and no object of the cluster contains the size of the VPC. */
export function awsVpc(world: World): Evidence[] {
  const workload = workloadOf(world, 'awsVpc')
  const auto = world.list('Node', '').find((node) => labelOf(node, 'eks.amazonaws.com/compute-type') === 'auto')
  if (workload === undefined && auto === undefined) return []
  const prefixes = environmentOf(workload, 'ENABLE_PREFIX_DELEGATION') === 'true'
  return [
    cniClaim('aws-vpc', {
      mode: prefixes ? 'VPC addresses, prefix delegation' : 'VPC addresses',
      how: workload === undefined ? `Node ${nameOf(auto)} is of EKS Auto Mode` : pathOf(workload),
      podRanges: 'own',
      traits: ['cloud-addresses'],
    }),
    ...seenAddresses(world, workload),
  ]
}

/**
 * A first guess: networks around the addresses that pods have now. Without such pods, around those of the nodes, unless
 * pods have addresses of other subnets than their nodes (custom networking).
 */
function seenAddresses(world: World, workload: unknown): Evidence[] {
  const custom = environmentOf(workload, 'AWS_VPC_K8S_CNI_CUSTOM_NETWORK_CFG')?.toLowerCase() === 'true'
  const pods = podAddresses(world).map(({ address }) => address)
  const machines = nodeAddresses(world, ['InternalIP'])
  const seen = pods.length > 0 || custom ? pods : machines
  const whose = pods.length > 0 ? 'pods' : 'nodes'
  const found = networksAround(seen, { declared: [], taken: [], nodes: custom ? machines : [] })
  return networks('podCIDRs', found, 'guess', `networks around the addresses of ${whose} now`)
}

export function azure(world: World): Evidence[] {
  const workload = workloadOf(world, 'azure')
  if (workload === undefined) return kubenet(world)
  // In Azure CNI powered by Cilium, Cilium forwards the packets, and Azure assigns the addresses.
  const moved = workloadOf(world, 'cilium') !== undefined
  const containers = world.list('NodeNetworkConfig').flatMap((config) => listAt(config, 'status', 'networkContainers'))
  const overlay =
    world
      .list('Node', '')
      .some(
        (node) =>
          labelOf(node, 'kubernetes.azure.com/podnetwork-type') === 'overlay' ||
          labelOf(node, 'kubernetes.azure.com/azure-cni-overlay') === 'true',
      ) || containers.some((entry) => textAt(entry, 'type') === 'overlay')
  const spaces = prefixesIn(containers.map((entry) => textAt(entry, 'subnetAddressSpace')))
  const how = 'NodeNetworkConfig status.networkContainers subnetAddressSpace'
  const claim = cniClaim('azure', {
    mode: overlay ? 'overlay' : 'VNet addresses',
    how: pathOf(workload),
    podRanges: nodesHaveRanges(world) ? 'node' : 'own',
    traits: overlay ? [] : ['cloud-addresses'],
  })
  return [...(moved ? [] : [claim]), ...networks('podCIDRs', byFamily(spaces), 'certain', how)]
}

function kubenet(world: World): Evidence[] {
  if (!isDistribution(world, 'aks') || !nodesHaveRanges(world) || workloadOf(world, 'cilium') !== undefined) return []
  const how = 'AKS without azure-cns, with Node spec.podCIDRs'
  return [cniClaim('kubenet', { mode: 'bridge and routes of the VNet', how, confidence: 'likely' })]
}

export function gke(world: World): Evidence[] {
  if (!isDistribution(world, 'gke')) return []
  const parameters = world.get('GKENetworkParamSet', 'default')
  const ranges = listAt(parameters, 'status', 'podCIDRs', 'cidrBlocks').filter((text) => typeof text === 'string')
  const found = networks(
    'podCIDRs',
    byFamily(prefixesIn(ranges)),
    'certain',
    'GKENetworkParamSet default status.podCIDRs',
  )
  const dataplane = workloadOf(world, 'anetd')
  // Dataplane V2 is Cilium, managed by Google: its settings can be neither read nor changed.
  if (dataplane !== undefined) {
    const how = pathOf(dataplane)
    const value = { mode: 'none', insteadOf: 'GKE Dataplane V2' } as const
    return [
      cniClaim('gke', { mode: 'Dataplane V2 (eBPF)', how, bypassesNetfilter: true }),
      { about: 'kubeProxy', value, confidence: 'certain', how },
      ...found,
    ]
  }
  const how = 'GKE without anetd (Dataplane V2), with Node spec.podCIDRs'
  const native = nodesHaveRanges(world) && workloadOf(world, 'calico') === undefined
  return [
    cniClaim('gke', { mode: 'VPC-native', how: native ? how : 'GKE without anetd', confidence: 'likely' }),
    ...found,
  ]
}

function nodesHaveRanges(world: World): boolean {
  const nodes = world.list('Node', '')
  return nodes.length > 0 && nodes.every((node) => nodePodCidrs(node).length > 0)
}
