/** values.yaml and values.schema.json of the chart, from install/values/install-values.ts. */
import { LEFT_ALONE, type Marks, RESERVED_KEY } from '../install/values/marks.ts'
import {
  DEFAULT_VALUES,
  ETCD_LOGINS,
  REPLACE_POLICIES,
  STATUS_PLACES,
  STORES,
  TOPOLOGY_SOURCES,
} from '../install/values/install-values.ts'
import { LOG_LEVELS } from '../runtime/logging/logger.ts'

/** What each value is for. A value without a note fails the test of the manifests. */
export const NOTES: Readonly<Record<string, string>> = {
  image: 'One image contains all parts.',
  'image.repository':
    'Where your cluster pulls it. No image is published: npm run image builds it, npm run image -- push pushes it.',
  'image.tag': 'Version.',
  'image.pullPolicy': 'Always, IfNotPresent or Never.',
  imagePullSecrets: 'Secrets for a private registry: [{ name: … }].',
  logLevel: 'debug, info, warn, error or silent.',
  objects:
    'Labels and annotations of every object, including pods and the objects that the parts create, but not of CRDs.',
  'objects.labels': 'Such as team: net. They cannot override those that Sealane sets itself.',
  'objects.annotations': 'As labels.',
  pods: 'Labels and annotations of pods only, in addition to those of objects. A change restarts the pods.',
  'pods.labels': 'Like objects.labels, which they override.',
  'pods.annotations': 'As labels.',
  platform: 'What the cluster requires of pods. sealane join and sealane broker deploy find it out themselves.',
  'platform.openshift':
    'OpenShift and OKD: grant each part the SecurityContextConstraints that it needs (nonroot-v2, and one of our own).',
  'platform.seLinuxOptions':
    '{ type: spc_t } for gateway and routeagent, on nodes with the SELinux policy container-selinux (RHEL, Fedora and their kin, SLE Micro) and a runtime that uses it. Leave it empty on other nodes and with openshift.',
  member: 'The parts of a member of a clusterset.',
  'member.enabled': 'Install agent, gateway, routeagent and dns.',
  'member.namespace': 'Namespace of the member.',
  'member.createNamespace':
    'Create the namespace with its pod security level (privileged, because the gateway uses the host network).',
  'member.site':
    'Text of site.yaml; its spec.exposure (exports, pods, nothing) is what other clusters may call, spec.openHostPorts opens ports of nodes to other clusters, spec.overlay.port is the UDP port between nodes (default 4810), and spec.overlay.checksumOffload (auto, on, off) is for network cards with faults. Empty: something else, such as sealane join, creates ConfigMap sealane-site.',
  'member.admissionPolicies': 'Restrict ServiceAccounts to their own objects, and enforce the rules of the About API.',
  'member.networkPolicies': 'Allow other pods to call only the public ports of agent and dns.',
  'member.criticalPodsQuota': 'A ResourceQuota that allows critical pods; GKE requires one.',
  agent: 'Connects to the broker. One replica leads, the others are on standby.',
  'agent.replicas': 'Pods.',
  'agent.proxySecret':
    'Secret with HTTPS_PROXY, and optionally NO_PROXY, for the connection to the broker. Empty: none.',
  dns: 'Answers clusterset.local.',
  'dns.replicas': 'Pods.',
  'dns.clusterIP': 'A fixed address for the Service, for a cluster DNS that needs one. Empty: any.',
  gateway: 'Runs on every node with label sealane.io/gateway.',
  'gateway.userSpaceWireguard': 'Mount /dev/net/tun, for nodes whose kernel has no WireGuard. The device must exist.',
  'gateway.statusListen':
    'Address of /metrics, /healthz and /readyz, port 9472: loopback of the node, or node (also its InternalIP).',
  'gateway.replace':
    'gone: the agent replaces a gateway node that sealane join chose, once it is gone or is being removed; nodes that you labelled stay as they are. missing: it also labels nodes by itself wherever fewer than activeGateways of the site file are gateways, for GitOps. never: it labels none.',
  routeagent: 'Runs on every Linux node that is a machine of its own.',
  'routeagent.statusListen': 'Like gateway.statusListen, port 9473.',
  console:
    'The page of sealane console behind the proxy of the API server, read only. Open it: sealane console --cluster.',
  'console.enabled':
    'Install it. Whoever has the rights of Role sealane-console-reader in the namespace of the member may read it.',
  metrics: 'Metrics for a monitoring system.',
  'metrics.open':
    'Allow other pods to read /metrics of agent, dns and broker. Otherwise they can read only /healthz and /readyz. PodMonitors also allow it.',
  'metrics.podMonitors': 'Objects for the Prometheus Operator, whose CRD PodMonitor must be installed.',
  'metrics.podMonitors.enabled':
    'Create one for each part. Gateway and routeagent are scraped only with statusListen: node.',
  'metrics.podMonitors.interval': 'Scrape interval.',
  'metrics.podMonitors.labels': 'Labels by which your Prometheus selects PodMonitors.',
  broker: 'The control plane of a clusterset; it runs in one cluster, the hub.',
  'broker.enabled': 'Install the broker.',
  'broker.namespace': 'Namespace of the broker.',
  'broker.createNamespace': 'Create the namespace with pod security level restricted.',
  'broker.networkPolicies': 'Allow calls only to the ports that members and probes use.',
  'broker.advertise': 'host:port under which members reach the broker, in any order. Set this.',
  'broker.clusterset': 'Name of the clusterset, fixed at the first start.',
  'broker.topologyFrom':
    'commands: sealane topology set. object: also object Topology default of this cluster, for GitOps; the broker may then read it and write its status.',
  'broker.extraArgs':
    'More flags of sealane broker serve, such as --allow-namespace=kube-tools. Ranges are fixed at the first start.',
  'broker.service': 'Service through which members reach the broker.',
  'broker.service.type': 'LoadBalancer, NodePort or ClusterIP.',
  'broker.service.annotations': 'For the cloud provider.',
  'broker.service.externalTrafficPolicy':
    'Local or Cluster. Empty: Local for a LoadBalancer, so that the broker sees client addresses; Cluster for a NodePort.',
  'broker.service.loadBalancerClass': 'Empty: the default class.',
  'broker.store':
    'sqlite: one broker with a volume of its own. etcd: replicas that share an etcd. Changing it starts with an empty state: sealane broker migrate.',
  'broker.replicas': 'Pods, with store: etcd. With sqlite there is one.',
  'broker.etcd': 'With store: etcd, the etcd to use. The default is that of etcd.enabled.',
  'broker.etcd.url': 'etcd://[user@]host:port,host:port/prefix. Always over TLS.',
  'broker.etcd.login': 'certificate, or password (of the user in the url).',
  'broker.etcd.secret': 'Secret in the namespace of the broker: ca.crt, and tls.crt and tls.key, or password.',
  'broker.storage': 'With store: sqlite. State and certificate authority of the clusterset.',
  'broker.storage.size': 'Size of the volume.',
  'broker.storage.storageClassName': 'Empty: the default class.',
  etcd: 'An etcd of three members beside the broker. It needs Secrets sealane-etcd-server and sealane-etcd-client: docs/reference.md.',
  'etcd.enabled': 'Install it.',
  'etcd.image': 'Image of etcd 3.4 or newer.',
  'etcd.storage': 'Volume of each member. A disk with slow syncs slows down the whole clusterset.',
  'etcd.storage.size': 'Size of the volume.',
  'etcd.storage.storageClassName': 'Empty: the default class.',
}

const POD_NOTES: Readonly<Record<string, string>> = {
  resources: 'Measured: about 100 MiB resident each, an agent with 1,000 services up to 200.',
  nodeSelector: 'Labels of the nodes on which to run.',
  tolerations: 'Taints to tolerate.',
  priorityClassName: "PriorityClass of the pods. Empty: the cluster's default.",
}

export function noteOf(path: string): string | undefined {
  return NOTES[path] ?? POD_NOTES[path.split('.').at(-1) ?? '']
}

const IMAGE_TEXT = '^[A-Za-z0-9][A-Za-z0-9._:/@-]*$'
const DNS_LABEL = '^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$'

/** Keys as Kubernetes writes them, and none of Sealane's own. */
const MARK_KEYS = {
  propertyNames: {
    maxLength: 317,
    pattern: '^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$',
    not: { pattern: RESERVED_KEY },
  },
}
/** These keys have one value, which Sealane sets itself. */
const fixed = (kind: keyof Marks): object => ({
  properties: Object.fromEntries(Object.entries(LEFT_ALONE[kind]).map(([key, value]) => [key, { const: value }])),
})
const LABEL_TEXT = '^([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?$'
const MARK_LABELS = { ...MARK_KEYS, ...fixed('labels'), additionalProperties: { type: 'string', pattern: LABEL_TEXT } }
const MARK_ANNOTATIONS = { ...MARK_KEYS, ...fixed('annotations'), additionalProperties: { type: 'string' } }

/** Beyond the type that the default has. */
const LIMITS: Readonly<Record<string, object>> = {
  'image.repository': { pattern: IMAGE_TEXT },
  'image.tag': { pattern: IMAGE_TEXT },
  'image.pullPolicy': { enum: ['Always', 'IfNotPresent', 'Never'] },
  imagePullSecrets: { items: { type: 'object', required: ['name'], properties: { name: { type: 'string' } } } },
  logLevel: { enum: [...LOG_LEVELS] },
  'objects.labels': MARK_LABELS,
  'objects.annotations': MARK_ANNOTATIONS,
  'pods.labels': MARK_LABELS,
  'pods.annotations': MARK_ANNOTATIONS,
  'member.namespace': { pattern: DNS_LABEL },
  'agent.replicas': { minimum: 0 },
  'agent.proxySecret': { pattern: '^([a-z0-9]([a-z0-9.-]*[a-z0-9])?)?$' },
  'gateway.statusListen': { enum: STATUS_PLACES },
  'gateway.replace': { enum: REPLACE_POLICIES },
  'routeagent.statusListen': { enum: STATUS_PLACES },
  'metrics.podMonitors.interval': { pattern: '^[1-9][0-9]*(ms|s|m)$' },
  'dns.replicas': { minimum: 0 },
  'broker.namespace': { pattern: DNS_LABEL },
  'broker.clusterset': { pattern: DNS_LABEL },
  'broker.advertise': { minItems: 1, items: { type: 'string', minLength: 1 } },
  'broker.extraArgs': { items: { type: 'string', pattern: '^--[a-z-]+=.+$' } },
  'broker.topologyFrom': { enum: TOPOLOGY_SOURCES },
  'broker.store': { enum: STORES },
  'broker.replicas': { minimum: 1 },
  'broker.etcd.url': { pattern: '^etcd://[^/]+(/[A-Za-z0-9._/-]*)?$' },
  'broker.etcd.login': { enum: ETCD_LOGINS },
  'broker.etcd.secret': { pattern: '^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$' },
  'etcd.image': { pattern: IMAGE_TEXT },
  'broker.service.type': { enum: ['LoadBalancer', 'NodePort', 'ClusterIP'] },
  'broker.service.externalTrafficPolicy': { enum: ['', 'Local', 'Cluster'] },
}

const TEXT_MAP = { additionalProperties: { type: 'string' } }
const FREE: Readonly<Record<string, object>> = {
  resources: {
    properties: { requests: { type: 'object' }, limits: { type: 'object' } },
    additionalProperties: false,
  },
  nodeSelector: TEXT_MAP,
  annotations: TEXT_MAP,
  labels: TEXT_MAP,
  tolerations: { items: { type: 'object' } },
  priorityClassName: { pattern: '^([a-z0-9]([a-z0-9.-]*[a-z0-9])?)?$' },
  // Policy sealane-pods allows no other type, user or role.
  seLinuxOptions: {
    properties: {
      type: { enum: ['spc_t'] },
      level: { type: 'string', pattern: '^s0(:c[0-9]{1,4}([,.]c[0-9]{1,4})*)?$' },
    },
    additionalProperties: false,
  },
}

function schemaOf(value: unknown, path: string): object {
  const key = path.split('.').at(-1) ?? ''
  const note = noteOf(path)
  const description = note === undefined ? {} : { description: note }
  const limits = LIMITS[path] ?? FREE[key] ?? {}
  if (Array.isArray(value)) return { type: 'array', ...description, ...limits }
  if (typeof value === 'number') return { type: 'integer', ...description, ...limits }
  if (typeof value !== 'object' || value === null) return { type: typeof value, ...description, ...limits }
  if (key in FREE) return { type: 'object', ...description, ...limits }
  const properties = Object.entries(value).map(([name, inner]: [string, unknown]) => [
    name,
    schemaOf(inner, path === '' ? name : `${path}.${name}`),
  ])
  return {
    type: 'object',
    ...description,
    properties: Object.fromEntries(properties) as object,
    additionalProperties: false,
  }
}

export function valuesSchema(): string {
  const root = schemaOf(DEFAULT_VALUES, '') as { properties: object }
  // A chart that has this one as a part hands its own `global` down.
  const properties = { ...root.properties, global: { type: 'object' } }
  return `${JSON.stringify({ $schema: 'http://json-schema.org/draft-07/schema#', title: 'Values of sealane', ...root, properties }, undefined, 2)}\n`
}

export function valuesYaml(): string {
  return `# Defaults. Every value is checked against values.schema.json.\n${valueLines(DEFAULT_VALUES, '').join('\n')}\n`
}

function valueLines(values: object, under: string): string[] {
  const indent = '  '.repeat(under === '' ? 0 : under.split('.').length)
  return Object.entries(values).flatMap(([key, value]: [string, unknown]) => {
    const path = under === '' ? key : `${under}.${key}`
    const note = noteOf(path)
    const lines = note === undefined ? [] : [`${indent}# ${note}`]
    const isGroup = typeof value === 'object' && value !== null && !Array.isArray(value) && !(key in FREE)
    if (isGroup) return [...lines, `${indent}${key}:`, ...valueLines(value, path)]
    return [...lines, `${indent}${key}: ${flow(value)}`]
  })
}

/** On one line, as people write small lists and maps. */
function flow(value: unknown): string {
  if (Array.isArray(value)) return `[${value.map(flow).join(', ')}]`
  if (typeof value !== 'object' || value === null) {
    return typeof value === 'string' && /^[A-Za-z][\w/.-]*$/.test(value) ? value : JSON.stringify(value)
  }
  const entries = Object.entries(value).map(([key, inner]: [string, unknown]) => `${key}: ${flow(inner)}`)
  return entries.length === 0 ? '{}' : `{ ${entries.join(', ')} }`
}
