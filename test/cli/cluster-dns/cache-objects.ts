/** Caches in front of a cluster's DNS, as their projects and distributions install them. */
import type { DnsObject } from '../../../cli/cluster-dns/dns-change.ts'
import { NODE_LOCAL } from '../../support/corefiles.ts'
import { configMap } from './objects.ts'

type Fields = Readonly<Record<string, unknown>>

interface CacheInit {
  readonly name?: string
  readonly namespace?: string
  readonly map?: string
  readonly corefile?: string
  readonly keys?: Readonly<Record<string, string>>
  readonly labels?: Readonly<Record<string, string>>
}

export function inNamespace(object: DnsObject, namespace: string): DnsObject {
  return { ...object, metadata: { ...object.metadata, namespace } }
}

export function daemonSet(
  name: string,
  container: Fields,
  { namespace = 'kube-system', volumes = [] as readonly Fields[], labels = { 'k8s-app': name } } = {},
): DnsObject {
  return {
    apiVersion: 'apps/v1',
    kind: 'DaemonSet',
    metadata: { name, namespace },
    spec: { template: { metadata: { labels }, spec: { containers: [{ name: 'main', ...container }], volumes } } },
  }
}

const volume = (map: string, items?: readonly Fields[]): Fields => ({
  name: 'config-volume',
  configMap: { name: map, ...(items === undefined ? {} : { items }) },
})
const AT_COREDNS = [{ name: 'config-volume', mountPath: '/etc/coredns' }]

/** The manifest of Kubernetes (cluster/addons/dns/nodelocaldns): node-cache writes /etc/Corefile from a template. */
export function nodeLocal({
  name = 'node-local-dns',
  namespace = 'kube-system',
  map = name,
  corefile = NODE_LOCAL,
  keys = { Corefile: corefile },
  labels = { 'addonmanager.kubernetes.io/mode': 'Reconcile' },
}: CacheInit = {}): readonly DnsObject[] {
  const container = {
    image: 'registry.k8s.io/dns/k8s-dns-node-cache:1.26.4@sha256:00',
    args: ['-localip', '169.254.20.10,10.43.0.10', '-conf', '/etc/Corefile', '-upstreamsvc', 'kube-dns-upstream'],
    volumeMounts: [...AT_COREDNS, { name: 'kube-dns-config', mountPath: '/etc/kube-dns' }],
  }
  const volumes = [
    { name: 'kube-dns-config', configMap: { name: 'kube-dns', optional: true } },
    volume(map, [{ key: Object.keys(keys)[0] ?? '', path: 'Corefile.base' }]),
  ]
  return [daemonSet(name, container, { namespace, volumes }), inNamespace(configMap(map, keys, labels), namespace)]
}

/** Kubespray: two DaemonSets with one ConfigMap, each with a key of its own. */
export function kubespray(): readonly DnsObject[] {
  const one = (name: string, key: string, localip: string): DnsObject =>
    daemonSet(
      name,
      {
        image: 'registry.k8s.io/dns/k8s-dns-node-cache:1.25.0',
        args: ['-localip', localip, '-conf', '/etc/coredns/Corefile', '-upstreamsvc', 'coredns'],
        volumeMounts: AT_COREDNS,
      },
      { volumes: [volume('nodelocaldns', [{ key, path: 'Corefile' }])] },
    )
  const second = NODE_LOCAL.replaceAll('169.254.20.10', '169.254.25.11')
  return [
    one('nodelocaldns', 'Corefile', '169.254.25.10'),
    one('nodelocaldns-second', 'Corefile-second', '169.254.25.11'),
    configMap('nodelocaldns', { Corefile: NODE_LOCAL, 'Corefile-second': second }),
  ]
}

/** A CoreDNS of any name that listens on a link-local address. Only its Corefile says so. */
export function ownCoreDns({ name = 'resolver', namespace = 'infra', map = 'resolver-settings' }: CacheInit = {}) {
  const container = {
    image: 'registry.corp.example:5000/base/coredns:v1',
    args: ['-conf=/config/dns.conf'],
    volumeMounts: [{ name: 'config-volume', mountPath: '/config/' }],
  }
  return [
    daemonSet(name, container, { namespace, volumes: [volume(map)] }),
    inNamespace(configMap(map, { 'dns.conf': NODE_LOCAL }), namespace),
  ]
}

/** Cilium: pods without the host's network, to which a policy redirects queries for the Service. */
export function ciliumRedirect(): readonly DnsObject[] {
  const container = {
    image: 'quay.io/corp/coredns:1.12',
    args: ['-conf', '/etc/coredns/Corefile'],
    volumeMounts: AT_COREDNS,
  }
  const policy: DnsObject = {
    apiVersion: 'cilium.io/v2',
    kind: 'CiliumLocalRedirectPolicy',
    metadata: { name: 'nodelocaldns', namespace: 'kube-system' },
    spec: {
      redirectFrontend: { serviceMatcher: { serviceName: 'kube-dns', namespace: 'kube-system' } },
      redirectBackend: {
        localEndpointSelector: { matchLabels: { 'k8s-app': 'edge' } },
        toPorts: [{ port: '53', name: 'dns', protocol: 'UDP' }],
      },
    },
  }
  return [
    daemonSet('edge', container, { volumes: [volume('edge')] }),
    configMap('edge', { Corefile: NODE_LOCAL.replaceAll(/^ *bind .*\n/gm, '') }),
    policy,
  ]
}

/** A cache that is no CoreDNS. */
export function dnsmasq(): readonly DnsObject[] {
  const args = ['--keep-in-foreground', '--listen-address=169.254.1.53', '--cache-size=10000']
  return [daemonSet('dns-accelerator', { image: 'corp/dnsmasq:2.90', args }, { namespace: 'net' })]
}
