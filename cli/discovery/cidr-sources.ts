/** Detects the pod and service networks of a cluster from sources other than its CNI. */
import { type Evidence, type KubeProxyMode, networks } from './evidence.ts'
import { byFamily, prefixesIn, smallestCover } from './prefix-texts.ts'
import { configText, findProduct } from './product.ts'
import {
  type World,
  annotationOf,
  documentIn,
  flagIn,
  flagOf,
  listAt,
  nameOf,
  partPods,
  pathOf,
  textAt,
  textsAt,
} from './snapshot.ts'

/**
 * Reads all ServiceCIDR objects of networking.k8s.io/v1 (Kubernetes 1.33), from which Service addresses are allocated.
 */
export function serviceCidrObjects(world: World): Evidence[] {
  const objects = world.list('ServiceCIDR', 'networking.k8s.io')
  const found = prefixesIn(objects.flatMap((object) => textsAt(object, 'spec', 'cidrs')))
  const names = objects.map(nameOf).slice(0, 3).join(', ')
  return networks('serviceCIDRs', byFamily(found), 'certain', `ServiceCIDR ${names} spec.cidrs`)
}

/** Parses messages such as `… The range of valid IPs is 10.96.0.0/12`. */
export function serviceProbes(world: World): Evidence[] {
  const found = world.snapshot.serviceProbes.flatMap((text) =>
    [...text.matchAll(/range of valid IPs is (?:CIDR )?([0-9a-fA-F.:/, ]+)/g)].map((match) => match[1]),
  )
  const how = 'the API server, in a dry run of a Service outside its range'
  return networks('serviceCIDRs', byFamily(prefixesIn(found)), 'certain', how)
}

const ROWS = [
  { part: 'kube-apiserver', flag: 'service-cluster-ip-range', about: 'serviceCIDRs', confidence: 'certain' },
  { part: 'kube-controller-manager', flag: 'service-cluster-ip-range', about: 'serviceCIDRs', confidence: 'likely' },
  // The range from which nodes get their pod CIDRs. A CNI with its own IPAM need not use it.
  { part: 'kube-controller-manager', flag: 'cluster-cidr', about: 'podCIDRs', confidence: 'likely' },
] as const

/**
 * Reads the command lines of kube-apiserver and kube-controller-manager, if they run as pods that this user may read.
 */
export function controlPlaneFlags(world: World): Evidence[] {
  return ROWS.flatMap(({ part, flag, about, confidence }) => {
    const pod = partPods(world, part).find((one) => flagOf(one, flag) !== undefined)
    if (pod === undefined) return []
    return networks(about, prefixesIn([flagOf(pod, flag)]), confidence, `${pathOf(pod)} --${flag}`)
  })
}

// k3s and RKE2 store the arguments of their servers in an annotation of their nodes.

/** The default of both products. */
const POD_DEFAULT = '10.42.0.0/16'
const SERVICE_DEFAULT = '10.43.0.0/16'

interface ServerArguments {
  readonly words: readonly string[]
  readonly where: string
  readonly product: 'k3s' | 'rke2'
}

function serverArguments(world: World): ServerArguments | undefined {
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
  return networks(about, [usual], 'likely', `${server.where}: no --${flag}, ${server.product} then uses ${usual}`)
}

// In k3s kube-proxy is part of the k3s process, so there is neither a DaemonSet nor a Pod of it.
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

/** Reads the settings with which kubeadm created the cluster. kind and other tools use kubeadm too. */
export function kubeadmConfig(world: World): Evidence[] {
  const found = configText(world, findProduct(world, 'kubeadm'), 'ClusterConfiguration')
  if (found === undefined) return []
  const networking = (field: string): string | undefined => textAt(documentIn(found.text), 'networking', field)
  const how = (field: string): string => `${found.where} networking.${field}`
  const domain = networking('dnsDomain')
  return [
    ...networks('podCIDRs', prefixesIn([networking('podSubnet')]), 'likely', how('podSubnet')),
    ...networks('serviceCIDRs', prefixesIn([networking('serviceSubnet')]), 'likely', how('serviceSubnet')),
    ...(domain === undefined
      ? []
      : [{ about: 'dnsDomain', value: domain, confidence: 'likely', how: how('dnsDomain') } as const]),
  ]
}

/** OpenShift describes its networks in config.openshift.io. */
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

// The smallest network that contains the current pod CIDRs of all nodes. Later nodes may get pod CIDRs outside it.

export function nodePodCidrs(node: unknown): string[] {
  const many = textsAt(node, 'spec', 'podCIDRs')
  return prefixesIn(many.length > 0 ? many : [textAt(node, 'spec', 'podCIDR')])
}

export function nodePodNetworks(world: World): Evidence[] {
  const all = world.list('Node', '').flatMap(nodePodCidrs)
  const cover = byFamily(smallestCover(all))
  return networks('podCIDRs', cover, 'guess', `smallest network around Node spec.podCIDRs (${all.length} so far)`)
}
