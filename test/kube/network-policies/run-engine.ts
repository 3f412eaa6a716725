/**
 * An engine of NetworkPolicies on a node: the published program, installed as its authors do. It decides about the
 * first packet of each connection, which the kernel hands to it.
 */
import { execFileSync } from 'node:child_process'
import { eventually } from '../../support/eventually.ts'
import { buildGoModule } from '../support/build-programs.ts'
import type { Json } from '../support/kube-request.ts'
import type { Image } from '../support/node.ts'
import type { TestCluster } from '../support/two-clusters.ts'

const IMAGE = 'registry.k8s.io/networking/kube-network-policies:v0.8.0'
const NAME = 'kube-network-policies'
const TOOL = 'sigs.k8s.io/kube-network-policies/cmd'
const QUEUE = '98'
const RBAC = '/apis/rbac.authorization.k8s.io/v1'
const SYSTEM = 'namespaces/kube-system'

/** The path of the program, which is built once. */
export async function engineProgram(): Promise<string> {
  const { cmd = '' } = await buildGoModule(import.meta.dirname, { tools: [TOOL] })
  return cmd
}

/** What nodes run it by. */
export async function engineImage(): Promise<Readonly<Record<string, Image>>> {
  return {
    [IMAGE]: { root: 'host', entrypoint: ['/netpol'], paths: { '/netpol': await engineProgram() } },
  }
}

/** Installs it, and resolves when policies count on all nodes. */
export async function installEngine({ plane, nodes, row }: TestCluster): Promise<void> {
  for (const [path, body] of OBJECTS) await plane.api.apply(path, body)
  for (const { netns, name } of nodes) {
    await eventually(() => queues(netns).includes(QUEUE), { deadlineMs: 60_000, say: `the engine listens on ${name}` })
    for (const range of row.podCIDR.split(',')) handOver(netns, range)
  }
}

function queues(netns: string): readonly (string | undefined)[] {
  const text = inNode(netns, ['cat', '/proc/net/netfilter/nfnetlink_queue'])
  return text.split('\n').map((line) => line.trim().split(/\s+/)[0])
}

/**
 * The engine's own rules use the expression `queue` of nftables, which not every kernel has; this one has the older
 * target NFQUEUE. These say the same: after balancing, before source translation, new connections of pods alone, and
 * nothing that the node's root sends.
 */
function handOver(netns: string, range: string): void {
  const command = range.includes(':') ? 'ip6tables' : 'iptables'
  const add = (...words: readonly string[]): string =>
    inNode(netns, [command, '-w', '-t', 'mangle', '-A', 'POSTROUTING', ...words])
  if (command === 'ip6tables') add('-p', 'icmpv6', '-j', 'ACCEPT')
  add('-m', 'owner', '--uid-owner', '0', '-j', 'ACCEPT')
  add('-m', 'conntrack', '--ctstate', 'ESTABLISHED,RELATED', '-j', 'ACCEPT')
  for (const side of ['-s', '-d']) add(side, range, '-j', 'NFQUEUE', '--queue-num', QUEUE)
}

function inNode(netns: string, argv: readonly string[]): string {
  return execFileSync('ip', ['netns', 'exec', netns, ...argv], { encoding: 'utf8', stdio: ['ignore', 'pipe', 'pipe'] })
}

const METADATA = { name: NAME, namespace: 'kube-system' }
const LABELS = { app: NAME }
const ROLE = {
  apiVersion: 'rbac.authorization.k8s.io/v1',
  kind: 'ClusterRole',
  metadata: { name: NAME },
  rules: [
    { apiGroups: [''], resources: ['pods', 'namespaces'], verbs: ['list', 'watch'] },
    { apiGroups: ['networking.k8s.io'], resources: ['networkpolicies'], verbs: ['list', 'watch'] },
  ],
}
const BINDING = {
  apiVersion: 'rbac.authorization.k8s.io/v1',
  kind: 'ClusterRoleBinding',
  metadata: { name: NAME },
  roleRef: { apiGroup: 'rbac.authorization.k8s.io', kind: 'ClusterRole', name: NAME },
  subjects: [{ kind: 'ServiceAccount', ...METADATA }],
}
const CONTAINER = {
  name: NAME,
  image: IMAGE,
  args: ['--hostname-override=$(NODE)', `--nfqueue-id=${QUEUE}`, '--netfilter-bug-1766-fix=false'],
  env: [{ name: 'NODE', valueFrom: { fieldRef: { fieldPath: 'spec.nodeName' } } }],
  securityContext: { privileged: true },
}
const POD = {
  hostNetwork: true,
  serviceAccountName: NAME,
  terminationGracePeriodSeconds: 0,
  tolerations: [{ operator: 'Exists' }],
  containers: [CONTAINER],
}
const OBJECTS: readonly (readonly [path: string, body: Json])[] = [
  [`/api/v1/${SYSTEM}/serviceaccounts/${NAME}`, { apiVersion: 'v1', kind: 'ServiceAccount', metadata: METADATA }],
  [`${RBAC}/clusterroles/${NAME}`, ROLE],
  [`${RBAC}/clusterrolebindings/${NAME}`, BINDING],
  [
    `/apis/apps/v1/${SYSTEM}/daemonsets/${NAME}`,
    {
      apiVersion: 'apps/v1',
      kind: 'DaemonSet',
      metadata: METADATA,
      spec: { selector: { matchLabels: LABELS }, template: { metadata: { labels: LABELS }, spec: POD } },
    },
  ],
]
