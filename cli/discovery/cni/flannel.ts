/** Flannel, as a DaemonSet or inside k3s; and Canal, which is Flannel with Calico's policy. */
import { type Evidence, networks } from '../evidence.ts'
import { daemonSet } from '../snapshot/containers.ts'
import { byFamily, prefixesIn } from '../snapshot/prefix-texts.ts'
import { annotationOf, documentIn, nameOf, textAt } from '../snapshot/raw.ts'
import { type World, configText, pathOf } from '../snapshot/snapshot.ts'
import { cniClaim } from './cni-claim.ts'

const FLANNEL_CONFIG = ['kube-flannel/kube-flannel-cfg', 'kube-system/kube-flannel-cfg']
const CANAL_CONFIG = ['kube-system/canal-config', 'kube-system/rke2-canal-config']

export function canal(world: World): Evidence[] {
  const workload = daemonSet(world, 'canal', 'rke2-canal')
  return workload === undefined ? [] : claims(world, 'canal', pathOf(workload), CANAL_CONFIG)
}

export function flannel(world: World): Evidence[] {
  if (daemonSet(world, 'canal', 'rke2-canal') !== undefined) return []
  const workload = daemonSet(world, 'kube-flannel-ds', 'kube-flannel')
  if (workload !== undefined) return claims(world, 'flannel', pathOf(workload), FLANNEL_CONFIG)
  const node = world.list('Node', '').find((one) => annotationOf(one, BACKEND) !== undefined)
  // An annotation outlives the product: a DaemonSet of another CNI counts for more.
  return node === undefined ? [] : claims(world, 'flannel', `Node ${nameOf(node)} annotation ${BACKEND}`, [], 'likely')
}

const BACKEND = 'flannel.alpha.coreos.com/backend-type'

function claims(
  world: World,
  name: 'flannel' | 'canal',
  how: string,
  configMaps: readonly string[],
  confidence: 'certain' | 'likely' = 'certain',
): Evidence[] {
  const config = configText(world, configMaps, ['net-conf.json'])
  const document = documentIn(config?.text)
  const annotated = world.list('Node', '').map((node) => annotationOf(node, BACKEND))
  const mode = textAt(document, 'Backend', 'Type') ?? annotated.find((text) => text !== undefined) ?? 'vxlan'
  const cidrs = byFamily(prefixesIn([textAt(document, 'Network'), textAt(document, 'IPv6Network')]))
  return [
    cniClaim(name, { mode, how, confidence }),
    ...networks('podCIDRs', cidrs, 'certain', `${config?.where ?? ''} Network`),
  ]
}
