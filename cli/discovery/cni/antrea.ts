/** Antrea: its agents' configuration is a YAML file in a ConfigMap. */
import { type Evidence, networks } from '../evidence.ts'
import { daemonSet } from '../snapshot/containers.ts'
import { prefixesIn } from '../snapshot/prefix-texts.ts'
import { at, documentIn, nameOf, textAt } from '../snapshot/raw.ts'
import { type World, configText, pathOf } from '../snapshot/snapshot.ts'
import { cniClaim } from './cni-claim.ts'

export function antrea(world: World): Evidence[] {
  const workload = daemonSet(world, 'antrea-agent')
  if (workload === undefined) return []
  // Older releases end the name with a hash.
  const maps = world
    .list('ConfigMap', '')
    .map(nameOf)
    .filter((name) => name.startsWith('antrea-config'))
  const paths = maps.map((name) => `kube-system/${name}`)
  const agent = configText(world, paths, ['antrea-agent.conf'])
  const controller = configText(world, paths, ['antrea-controller.conf'])
  const document = documentIn(agent?.text)
  const encapsulation = textAt(document, 'trafficEncapMode') ?? 'encap'
  const ipam = at(documentIn(controller?.text), 'nodeIPAM')
  const mode = encapsulation === 'encap' ? (textAt(document, 'tunnelType') ?? 'geneve') : encapsulation
  const pools = at(ipam, 'enableNodeIPAM') === true ? prefixesIn(clusterCidrs(ipam)) : []
  return [
    // In the policy-only mode another CNI moves the packets.
    ...(encapsulation === 'networkPolicyOnly' ? [] : [cniClaim('antrea', { mode, how: pathOf(workload) })]),
    ...networks('podCIDRs', pools, 'certain', `${controller?.where ?? ''} nodeIPAM.clusterCIDRs`),
    ...proxy(document, agent?.where ?? ''),
  ]
}

function clusterCidrs(ipam: unknown): string[] {
  const value = at(ipam, 'clusterCIDRs')
  return Array.isArray(value) ? value.filter((one): one is string => typeof one === 'string') : []
}

function proxy(document: unknown, where: string): Evidence[] {
  if (at(document, 'antreaProxy', 'proxyAll') !== true) return []
  const how = `${where} antreaProxy.proxyAll`
  return [{ about: 'kubeProxy', value: { mode: 'none', insteadOf: 'Antrea' }, confidence: 'likely', how }]
}
