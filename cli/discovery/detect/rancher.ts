/** k3s and RKE2: the arguments of their servers are in an annotation of their nodes. */
import { type Evidence, type KubeProxyMode, networks } from '../evidence.ts'
import { flagIn } from '../snapshot/containers.ts'
import { prefixesIn } from '../snapshot/prefix-texts.ts'
import { annotationOf, documentIn, nameOf, textsAt } from '../snapshot/raw.ts'
import type { World } from '../snapshot/snapshot.ts'

/** Both products' defaults. */
const POD_DEFAULT = '10.42.0.0/16'
const SERVICE_DEFAULT = '10.43.0.0/16'

export interface ServerArguments {
  readonly words: readonly string[]
  readonly where: string
  readonly product: 'k3s' | 'rke2'
}

export function serverArguments(world: World): ServerArguments | undefined {
  for (const node of world.list('Node', '')) {
    for (const product of ['k3s', 'rke2'] as const) {
      const key = `${product}.io/node-args`
      const words = textsAt(documentIn(annotationOf(node, key)))
      if (words[0] === 'server') return { words, where: `Node ${nameOf(node)} annotation ${key}`, product }
    }
  }
  return undefined
}

export function rancherServers(world: World): Evidence[] {
  const server = serverArguments(world)
  if (server === undefined) return []
  const domain = flagIn(server.words, 'cluster-domain')
  return [
    ...network(server, 'podCIDRs', 'cluster-cidr', POD_DEFAULT),
    ...network(server, 'serviceCIDRs', 'service-cidr', SERVICE_DEFAULT),
    ...proxy(server),
    ...(domain === undefined
      ? []
      : [
          {
            about: 'dnsDomain',
            value: domain,
            confidence: 'certain',
            how: `${server.where} --cluster-domain`,
          } as const,
        ]),
  ]
}

function network(server: ServerArguments, about: 'podCIDRs' | 'serviceCIDRs', flag: string, usual: string): Evidence[] {
  const given = flagIn(server.words, flag)
  if (given !== undefined) return networks(about, prefixesIn([given]), 'certain', `${server.where} --${flag}`)
  return networks(about, [usual], 'likely', `${server.where}: no --${flag}, ${server.product} then takes ${usual}`)
}

// In k3s kube-proxy is part of the k3s process: neither a DaemonSet nor a Pod shows it.
function proxy(server: ServerArguments): Evidence[] {
  if (flagIn(server.words, 'disable-kube-proxy') === 'true') {
    const how = `${server.where} --disable-kube-proxy`
    return [{ about: 'kubeProxy', value: { mode: 'none', insteadOf: undefined }, confidence: 'likely', how }]
  }
  const wanted = server.words
    .findLast((word) => /^(--kube-proxy-arg=)?proxy-mode=/.test(word))
    ?.split('=')
    .at(-1)
  const mode = (['ipvs', 'nftables', 'iptables'] as const).find(
    (one): one is KubeProxyMode & typeof one => one === wanted,
  )
  const how =
    mode === undefined
      ? `${server.where}: no proxy-mode, iptables is the default`
      : `${server.where} proxy-mode=${mode}`
  const value = { mode: mode ?? 'iptables', insteadOf: undefined } as const
  return [{ about: 'kubeProxy', value, confidence: mode === undefined ? 'likely' : 'certain', how }]
}
