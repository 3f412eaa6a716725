/** Plans the objects of a member cluster's installation, except the CRDs (plan-crds.ts) and what a join creates. */
import { LABEL_GATEWAY } from '../model/lanes/lanes.ts'
import {
  CREATES_IDENTITY,
  REPLACES_GATEWAYS,
  agentNamespaceAccess,
  clusterAccess,
  consoleNamespaceAccess,
  consoleReaders,
  constraintsAccess,
  gatewayNamespaceAccess,
  memberPolicies,
  networkPolicy,
  nodeConstraints,
  userAccess,
} from './policies/policies.ts'
import {
  CONSOLE_PORT,
  CONSOLE_PORT_NAME,
  DNS_CONTAINER_PORT,
  IDENTITY_SECRET,
  IDENTITY_SECRET_TYPE,
  type InstallPart,
  type InstallValues,
  type ManifestObject,
  SITE_CONFIG,
  SITE_KEY,
  STATUS_PORTS,
  STATUS_PORT_NAME,
  marked,
  namespaceObject,
  objectName,
  optional,
  partLabels,
  selectorLabels,
  when,
  whenIs,
} from './values/values.ts'
import {
  DEVICES,
  type Mount,
  NODE_MOUNTS,
  NODE_NAME,
  type PartRef,
  EVERYWHERE,
  SITE_MOUNT,
  SYSCTLS,
  PROXY_ENV,
  TUN,
  daemonSet,
  deployment,
  disruptionBudget,
  gatewayChoiceEnv,
  memberMonitors,
  metadataOf,
  mountOf,
  nodeNetworkPod,
  onMachines,
  serviceAccount,
  spread,
  unprivilegedPod,
  upArgs,
  volumeOf,
} from './workloads/workloads.ts'

/**
 * By then, all other nodes use a gateway that has returned, so the next one may stop. It is also longer than it takes
 * to correct a readiness probe that succeeded too early (pod.ts: three failures, two seconds apart).
 */
const GATEWAY_SETTLE_SECONDS = 8

/** The parts in the order in which they should be applied. */
export function planMember(values: InstallValues): readonly InstallPart[] {
  const parts: readonly InstallPart[] = [
    { name: 'shared', objects: planShared(values) },
    { name: 'policies', objects: when(values.member.admissionPolicies, ...memberPolicies(values.member.namespace)) },
    { name: 'openshift', objects: when(values.platform.openshift, ...planOpenShift(values)) },
    { name: 'agent', objects: planAgent(values) },
    { name: 'gateway', objects: planGateway(values) },
    { name: 'routeagent', objects: planRouteagent(values) },
    { name: 'dns', objects: planDns(values) },
    { name: 'console', objects: when(values.console.enabled, ...planConsole(values)) },
    { name: 'monitors', objects: memberMonitors(values) },
  ]
  return parts.map(({ name, objects }) => ({ name, objects: marked(objects, values) }))
}

/** `site` is the text of site.yaml. */
export function siteConfigMap(namespace: string, site: string): ManifestObject {
  return {
    apiVersion: 'v1',
    kind: 'ConfigMap',
    metadata: { name: SITE_CONFIG, namespace, labels: partLabels(undefined) },
    data: { [SITE_KEY]: site },
  }
}

/** `files` has the files of the identity folder by name: cluster.key, cluster.crt, ca.crt, broker.json. */
export function identitySecret(namespace: string, files: Readonly<Record<string, string>>): ManifestObject {
  return {
    apiVersion: 'v1',
    kind: 'Secret',
    metadata: { name: IDENTITY_SECRET, namespace, labels: partLabels('agent') },
    type: IDENTITY_SECRET_TYPE,
    data: Object.fromEntries(
      Object.entries(files).map(([name, text]) => [name, Buffer.from(text, 'utf8').toString('base64')]),
    ),
  }
}

function planShared({ member }: InstallValues): readonly ManifestObject[] {
  return [
    // Gateway and route agent use the network of the node, which only this level allows. Policy sealane-pods restricts
    // all other pods there to `restricted`.
    ...when(member.createNamespace, namespaceObject(member.namespace, 'privileged')),
    ...when(member.criticalPodsQuota, criticalPodsQuota(member.namespace)),
    ...when(member.site, siteConfigMap(member.namespace, member.site)),
    ...userAccess(),
  ]
}

/** Before the workloads, so that their first pods are admitted. */
function planOpenShift({ member: { namespace } }: InstallValues): readonly ManifestObject[] {
  return [...nodeConstraints(namespace), ...constraintsAccess(['agent', 'dns', 'console'], namespace)]
}

/** GKE rejects critical pods outside kube-system unless a quota allows them. */
function criticalPodsQuota(namespace: string): ManifestObject {
  const classes = ['system-node-critical', 'system-cluster-critical']
  return {
    apiVersion: 'v1',
    kind: 'ResourceQuota',
    metadata: { name: 'sealane-critical-pods', namespace, labels: partLabels(undefined) },
    spec: {
      hard: { pods: '10k' },
      scopeSelector: { matchExpressions: [{ scopeName: 'PriorityClass', operator: 'In', values: classes }] },
    },
  }
}

function planAgent(values: InstallValues): readonly ManifestObject[] {
  const place: PartRef = { part: 'agent', namespace: values.member.namespace }
  const state: Mount = {
    name: 'state',
    path: '/var/lib/sealane',
    source: { emptyDir: { sizeLimit: '256Mi' } },
  }
  const template = unprivilegedPod({
    part: 'agent',
    values,
    pod: values.agent,
    args: upArgs('agent'),
    env: [
      NODE_NAME,
      ...when(values.agent.proxySecret, ...proxyEnv(values.agent.proxySecret, 'required')),
      ...gatewayChoiceEnv(values.gateway),
    ],
    ports: [{ name: 'status', containerPort: STATUS_PORTS.agent }],
    volumes: [SITE_MOUNT, state].map(volumeOf),
    volumeMounts: [SITE_MOUNT, state].map(mountOf),
    spec: spread('agent'),
  })
  return [
    serviceAccount(place),
    ...clusterAccess(
      place,
      // A policy limits this right to the label and two annotations.
      when(
        values.member.admissionPolicies,
        ...['gone', 'missing'].flatMap((word) => whenIs(values.gateway.replace, word, REPLACES_GATEWAYS)),
      ),
    ),
    ...agentNamespaceAccess(place.namespace, when(values.member.admissionPolicies, CREATES_IDENTITY)),
    deployment(place, values.agent.replicas, template),
    disruptionBudget(place),
    ...networkPolicy(place, values.member.networkPolicies),
  ]
}

/**
 * The proxy in front of the broker and of relays on port 443. It comes from a Secret, since it may contain a password.
 * The API server of the own cluster is never called through it (kubeapi/kube/server-access.ts). A gateway starts
 * without the Secret too (`optional`): links that need no proxy must not depend on it.
 */
function proxyEnv(name: string, secret: 'required' | 'optional'): readonly unknown[] {
  const from = (key: string, optional: boolean): unknown => {
    return { name: key, valueFrom: { secretKeyRef: { name, key, ...(optional ? { optional } : {}) } } }
  }
  return [from(PROXY_ENV, secret === 'optional'), from('NO_PROXY', true)]
}

const NODE_ENV = [
  NODE_NAME,
  { name: 'SEALANE_SYSCTL_NET', value: SYSCTLS.path },
  { name: 'SEALANE_NET_DEVICES', value: DEVICES.path },
]

/** The control sockets of userspace WireGuard. */
const SOCKETS: Mount = { name: 'wireguard', path: '/var/run/wireguard', source: { emptyDir: { medium: 'Memory' } } }

function planGateway(values: InstallValues): readonly ManifestObject[] {
  const place: PartRef = { part: 'gateway', namespace: values.member.namespace }
  const userSpace = values.gateway.userSpaceWireguard
  const template = nodeNetworkPod(
    {
      part: 'gateway',
      values,
      pod: values.gateway,
      args: upArgs('gateway'),
      env: [...NODE_ENV, ...when(values.agent.proxySecret, ...proxyEnv(values.agent.proxySecret, 'optional'))],
      volumes: [...NODE_MOUNTS.map(volumeOf), ...when(userSpace, volumeOf(SOCKETS), volumeOf(TUN))],
      volumeMounts: [...NODE_MOUNTS.map(mountOf), ...when(userSpace, mountOf(SOCKETS), mountOf(TUN))],
      // The process hands its lane over to another node before it ends.
      spec: {
        affinity: { nodeAffinity: onMachines([{ key: LABEL_GATEWAY, operator: 'Exists' }]) },
        terminationGracePeriodSeconds: 90,
      },
    },
    values.gateway.statusListen,
  )
  return [
    serviceAccount(place),
    ...clusterAccess(place),
    ...gatewayNamespaceAccess(place.namespace),
    daemonSet(place, { maxUnavailable: 1, settleSeconds: GATEWAY_SETTLE_SECONDS }, template),
  ]
}

function planRouteagent(values: InstallValues): readonly ManifestObject[] {
  const place: PartRef = { part: 'routeagent', namespace: values.member.namespace }
  const template = nodeNetworkPod(
    {
      part: 'routeagent',
      values,
      pod: values.routeagent,
      args: upArgs('routeagent'),
      env: NODE_ENV,
      volumes: NODE_MOUNTS.map(volumeOf),
      volumeMounts: NODE_MOUNTS.map(mountOf),
      spec: { affinity: { nodeAffinity: onMachines() } },
    },
    values.routeagent.statusListen,
  )
  return [serviceAccount(place), ...clusterAccess(place), daemonSet(place, { maxUnavailable: '10%' }, template)]
}

function planDns(values: InstallValues): readonly ManifestObject[] {
  const place: PartRef = { part: 'dns', namespace: values.member.namespace }
  const protocols = ['UDP', 'TCP'] as const
  const template = unprivilegedPod({
    part: 'dns',
    values,
    pod: values.dns,
    args: upArgs('dns'),
    env: [NODE_NAME],
    ports: [
      ...protocols.map((protocol) => ({
        name: `dns-${protocol.toLowerCase()}`,
        containerPort: DNS_CONTAINER_PORT,
        protocol,
      })),
      { name: 'status', containerPort: STATUS_PORTS.dns },
    ],
    volumes: [volumeOf(SITE_MOUNT)],
    volumeMounts: [mountOf(SITE_MOUNT)],
    // The site file names the upstreams. Cluster DNS forwards to these pods, so they must not use it themselves.
    spec: { ...spread('dns'), dnsPolicy: 'Default' },
  })
  const service: ManifestObject = {
    apiVersion: 'v1',
    kind: 'Service',
    metadata: { name: objectName('dns'), namespace: place.namespace, labels: partLabels('dns') },
    spec: {
      type: 'ClusterIP',
      clusterIP: optional(values.dns.clusterIP),
      selector: selectorLabels('dns'),
      ports: protocols.map((protocol) => ({
        name: `dns-${protocol.toLowerCase()}`,
        port: 53,
        protocol,
        targetPort: `dns-${protocol.toLowerCase()}`,
      })),
    },
  }
  return [
    serviceAccount(place),
    ...clusterAccess(place),
    service,
    deployment(place, values.dns.replicas, template),
    disruptionBudget(place),
    ...networkPolicy(place, values.member.networkPolicies),
  ]
}

/** The page behind the API server's proxy. One pod: without it, `sealane console` shows the same with other rights. */
function planConsole(values: InstallValues): readonly ManifestObject[] {
  const place: PartRef = { part: 'console', namespace: values.member.namespace }
  const template = unprivilegedPod({
    part: 'console',
    values,
    pod: values.console,
    args: ['console', 'serve', '--listen', `${EVERYWHERE}:${CONSOLE_PORT}`],
    ports: [
      { name: CONSOLE_PORT_NAME, containerPort: CONSOLE_PORT },
      { name: STATUS_PORT_NAME, containerPort: STATUS_PORTS.console },
    ],
    volumes: [],
    volumeMounts: [],
    spec: { affinity: { nodeAffinity: onMachines() } },
  })
  const service: ManifestObject = {
    apiVersion: 'v1',
    kind: 'Service',
    metadata: metadataOf(place),
    spec: {
      type: 'ClusterIP',
      selector: selectorLabels('console'),
      ports: [{ name: CONSOLE_PORT_NAME, port: 443, protocol: 'TCP', targetPort: CONSOLE_PORT_NAME }],
    },
  }
  return [
    serviceAccount(place),
    ...clusterAccess(place),
    ...consoleNamespaceAccess(place.namespace),
    ...consoleReaders(place.namespace),
    service,
    deployment(place, 1, template),
    ...networkPolicy(place, values.member.networkPolicies),
  ]
}
