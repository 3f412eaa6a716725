/** Builds the pods of all components: their common parts and their restrictions. */
import {
  type ComponentName,
  type InstallValues,
  LEFT_ALONE,
  type Marks,
  type PartName,
  type PodValues,
  REQUIRED_SCC,
  SITE_CONFIG,
  SITE_KEY,
  STATUS_PORTS,
  STATUS_PORT_NAME,
  type StatusPlace,
  digest,
  entryWhen,
  jsonText,
  objectMarksEnv,
  objectName,
  optional,
  partLabels,
  unlessEmpty,
  when,
  whenEither,
  whenIs,
  withOurs,
} from '../values/values.ts'

/** The user id of a nonroot user, as in distroless images. */
const UNPRIVILEGED_ID = 65_532

/** The security context of a pod that needs no privileges. */
export const UNPRIVILEGED = {
  runAsNonRoot: true,
  ...{ runAsUser: UNPRIVILEGED_ID, runAsGroup: UNPRIVILEGED_ID, fsGroup: UNPRIVILEGED_ID },
  seccompProfile: { type: 'RuntimeDefault' },
}

/**
 * The SecurityContextConstraints that admit our pods in OpenShift. `nonroot-v2` is part of OpenShift (4.11 and later)
 * and allows what Pod Security `restricted` allows. `sealane-node` is planned in policies/openshift.ts.
 */
export const SCC = { unprivileged: 'nonroot-v2', node: 'sealane-node' } as const

const NODE_PARTS: ReadonlySet<PartName> = new Set<PartName>(['gateway', 'routeagent'])

export function sccOf(part: PartName): string {
  return NODE_PARTS.has(part) ? SCC.node : SCC.unprivileged
}

/**
 * The marks of the pods of a part. With `platform.openshift`, the pod names its SecurityContextConstraints: otherwise
 * constraints with a higher priority, which another owner granted, could change the pod. Without the value it names
 * none, since then the constraints may be granted by hand.
 */
export function podMarks(part: PartName, { platform }: Pick<InstallValues, 'platform'>): Marks {
  return {
    labels: { ...partLabels(part), ...LEFT_ALONE.labels },
    annotations: { ...LEFT_ALONE.annotations, ...entryWhen(platform.openshift, REQUIRED_SCC, sccOf(part)) },
  }
}

/** The annotation of podMarks() for OpenShift as a JSON patch (RFC 6902) of a workload without it. */
export function requiredSccPatch(part: PartName): readonly object[] {
  const key = REQUIRED_SCC.replaceAll('/', '~1')
  return [{ op: 'add', path: `/spec/template/metadata/annotations/${key}`, value: sccOf(part) }]
}

/** A volume and its mount path. `source` is the volume's own field, such as `{ emptyDir: {} }`. */
export interface Mount {
  readonly name: string
  readonly path: string
  readonly source: Readonly<Record<string, unknown>>
  readonly readOnly?: boolean
}

export interface PodInit {
  readonly part: ComponentName
  readonly values: InstallValues
  readonly pod: PodValues
  readonly args: readonly string[]
  /** Volumes and mounts are lists, so that a mount can depend on a value. */
  readonly volumes: readonly unknown[]
  readonly volumeMounts: readonly unknown[]
  readonly env?: readonly unknown[]
  readonly ports?: readonly unknown[]
  /** Overrides the fields that all pod specs have. */
  readonly spec?: Readonly<Record<string, unknown>>
}

export function volumeOf({ name, source }: Mount): unknown {
  return { name, ...source }
}

export function mountOf({ name, path, readOnly }: Mount): unknown {
  return { name, mountPath: path, ...(readOnly === true ? { readOnly: true } : {}) }
}

export const SITE_MOUNT: Mount = {
  name: 'site',
  path: '/etc/sealane',
  source: { configMap: { name: SITE_CONFIG, items: [{ key: SITE_KEY, path: SITE_KEY }] } },
  readOnly: true,
}

/** With `everywhere`, a status page serves metrics to every caller. Otherwise it serves them to loopback only. */
export const STATUS_METRICS = 'SEALANE_STATUS_METRICS'
export const METRICS_EVERYWHERE = 'everywhere'

/** Passed in the environment, since an image of an earlier release would not start with an unknown flag. */
export const OPEN_METRICS = { name: STATUS_METRICS, value: METRICS_EVERYWHERE }

/** The variable of the agent that names the proxy in front of the broker. */
export const PROXY_ENV = 'HTTPS_PROXY'

/**
 * With `never`, the agent does not replace gateway nodes. With `missing`, it also chooses nodes where gateways are
 * missing. In the environment for the same reason.
 */
export const REPLACE_GATEWAYS = 'SEALANE_REPLACE_GATEWAYS'
export const REPLACE_NEVER = 'never'
export const REPLACE_MISSING = 'missing'
/** The value gateway.nodeSelector as JSON: on other nodes, no gateway runs. */
export const GATEWAY_NODES = 'SEALANE_GATEWAY_NODES'

/** What the agent has to know about the choice of gateways, as entries of its container's `env`. */
export function gatewayChoiceEnv({ replace, nodeSelector }: InstallValues['gateway']): readonly unknown[] {
  return [
    ...[REPLACE_NEVER, REPLACE_MISSING].flatMap((word) =>
      whenIs(replace, word, { name: REPLACE_GATEWAYS, value: word }),
    ),
    ...when(nodeSelector, { name: GATEWAY_NODES, value: jsonText(nodeSelector) }),
  ]
}

/** The addresses that the kubelet's probes come from, separated by commas. */
export const NODE_ADDRESSES = 'SEALANE_NODE_ADDRESSES'
const NODE_ADDRESSES_ENV = {
  name: NODE_ADDRESSES,
  valueFrom: { fieldRef: { apiVersion: 'v1', fieldPath: 'status.hostIPs' } },
}

/**
 * The host of what a pod serves to others: the addresses of a pod are of the families of its cluster, and the kubelet
 * probes the first one, which may be IPv6. A process listens on 0.0.0.0 instead on a node without IPv6 (listenAt()).
 */
export const EVERYWHERE = '[::]'

/** The pod of a component that uses only the API server and not the node's network. */
export function unprivilegedPod(init: PodInit): unknown {
  const { open, podMonitors } = init.values.metrics
  const env = [...(init.env ?? []), NODE_ADDRESSES_ENV, ...whenEither(open, podMonitors.enabled, OPEN_METRICS)]
  return podTemplate(
    { ...init, env },
    { listen: EVERYWHERE, podSecurity: UNPRIVILEGED, capabilities: { drop: ['ALL'] } },
  )
}

/** The pod of a component that changes the node's network: root with NET_ADMIN as its only capability. */
export function nodeNetworkPod(init: PodInit, statusListen: StatusPlace): unknown {
  const port = STATUS_PORTS[init.part]
  const template = podTemplate(
    {
      ...init,
      env: [...(init.env ?? []), ...whenIs(statusListen, 'node', NODE_IP)],
      ports: [{ name: STATUS_PORT_NAME, containerPort: port }],
      // Uses the node's resolver, since these pods must start without cluster DNS.
      spec: { hostNetwork: true, dnsPolicy: 'Default', ...init.spec },
    },
    {
      // The node's addresses may be public, so it listens on loopback, and on the node's address only on request.
      // Probes use loopback.
      listen: '127.0.0.1',
      moreArgs: whenIs(statusListen, 'node', ...onNodeArgs(init.part)),
      podSecurity: {
        ...{ runAsUser: 0, runAsGroup: 0, seccompProfile: { type: 'RuntimeDefault' } },
        ...seLinuxOf(init.values),
      },
      capabilities: { drop: ['ALL'], add: ['NET_ADMIN'] },
    },
  )
  return template
}

/**
 * The policy container-selinux lets containers (container_t) write neither /proc/sys/net nor /var/lib. The policies of
 * Bottlerocket and Talos do, and others may not know its types, so no type is set unless a value says so.
 */
function seLinuxOf({ platform }: InstallValues): Readonly<Record<string, unknown>> {
  const seLinuxOptions = withOurs(undefined, platform.seLinuxOptions)
  return seLinuxOptions === undefined ? {} : { seLinuxOptions }
}

interface Confinement {
  readonly listen: typeof EVERYWHERE | '127.0.0.1'
  readonly moreArgs?: readonly string[]
  readonly podSecurity: Readonly<Record<string, unknown>>
  readonly capabilities: Readonly<Record<string, readonly string[]>>
}

function podTemplate(init: PodInit, { listen, moreArgs = [], podSecurity, capabilities }: Confinement): unknown {
  const { part, values, pod } = init
  const port = STATUS_PORTS[part]
  const usesSite = part !== 'broker' && part !== 'console'
  // Only components that have the site file write objects.
  const env = [...(init.env ?? []), ...(usesSite ? objectMarksEnv(values.objects) : [])]
  const container = {
    name: part,
    image: `${values.image.repository}:${values.image.tag}`,
    imagePullPolicy: values.image.pullPolicy,
    args: [...init.args, '--status-listen', `${listen}:${port}`, '--log-level', values.logLevel, ...moreArgs],
    ...(env.length === 0 ? {} : { env }),
    ...(init.ports === undefined ? {} : { ports: init.ports }),
    ...probes(port, listen),
    resources: pod.resources,
    // The pod's status then contains the reason of a failure, where commands and users look first.
    terminationMessagePolicy: 'FallbackToLogsOnError',
    securityContext: { allowPrivilegeEscalation: false, readOnlyRootFilesystem: true, capabilities },
    ...(init.volumeMounts.length === 0 ? {} : { volumeMounts: init.volumeMounts }),
  }
  const { labels, annotations } = podMarks(part, values)
  // Restarts the pods when the site file changes, since they read it only once.
  const siteDigest = usesSite ? { 'sealane.io/site-digest': digest(values.member.site) } : {}
  return {
    metadata: { labels, annotations: { ...annotations, ...siteDigest } },
    spec: {
      serviceAccountName: objectName(part),
      // Only components that use the API server get a token.
      automountServiceAccountToken: part !== 'broker',
      enableServiceLinks: false,
      priorityClassName: optional(pod.priorityClassName),
      terminationGracePeriodSeconds: 15,
      imagePullSecrets: unlessEmpty(values.imagePullSecrets),
      securityContext: podSecurity,
      nodeSelector: unlessEmpty(pod.nodeSelector),
      tolerations: unlessEmpty(pod.tolerations),
      ...init.spec,
      containers: [container],
      ...(init.volumes.length === 0 ? {} : { volumes: init.volumes }),
    },
  }
}

function probes(port: number, listen: Confinement['listen']): Readonly<Record<string, unknown>> {
  const get = (path: string) => ({ path, port, ...(listen === '127.0.0.1' ? { host: listen } : {}) })
  return {
    // Node.js starts slowly if many pods start at once.
    startupProbe: { httpGet: get('/healthz'), periodSeconds: 1, failureThreshold: 60 },
    livenessProbe: { httpGet: get('/healthz'), periodSeconds: 10, timeoutSeconds: 5, failureThreshold: 6 },
    readinessProbe: { httpGet: get('/readyz'), periodSeconds: 2, timeoutSeconds: 2, failureThreshold: 3 },
  }
}

/** The arguments of every component of a member. */
export function upArgs(part: ComponentName): readonly string[] {
  return ['up', '--site', `${SITE_MOUNT.path}/${SITE_KEY}`, '--component', part, '--node', '$(NODE_NAME)']
}

/** Contains the server's default apiVersion, since a field manager owns fieldRef as a whole. */
export const NODE_NAME = {
  name: 'NODE_NAME',
  valueFrom: { fieldRef: { apiVersion: 'v1', fieldPath: 'spec.nodeName' } },
}

/** The node's InternalIP. */
const NODE_IP = { name: 'NODE_IP', valueFrom: { fieldRef: { apiVersion: 'v1', fieldPath: 'status.hostIP' } } }

/** The address is in brackets, since it may be IPv6. */
function onNodeArgs(part: ComponentName): readonly string[] {
  return ['--status-listen', `[$(${NODE_IP.name})]:${STATUS_PORTS[part]}`]
}

/** OPEN_METRICS as a JSON patch (RFC 6902) of a workload whose metrics are closed. */
export function openMetricsPatch(): readonly object[] {
  return [{ op: 'add', path: '/spec/template/spec/containers/0/env/-', value: OPEN_METRICS }]
}

/** statusListen `node` as a JSON patch (RFC 6902) of a workload that listens on loopback only. */
export function statusOnNodePatch(part: 'gateway' | 'routeagent'): readonly object[] {
  const container = '/spec/template/spec/containers/0'
  return [
    ...onNodeArgs(part).map((value) => ({ op: 'add', path: `${container}/args/-`, value })),
    { op: 'add', path: `${container}/env/-`, value: NODE_IP },
  ]
}

// The node's files that gateway and route agent can access.

/**
 * The settings of the node's network namespace, since the runtime mounts /proc/sys read-only in containers. Only net/
 * is mounted: with the rest of /proc/sys, root in the container could take over the node.
 */
export const SYSCTLS: Mount = {
  name: 'sysctls',
  path: '/host/proc/sys/net',
  source: { hostPath: { path: '/proc/sys/net', type: 'Directory' } },
}
/** The receive queues of lanes and overlay, which are also read-only in containers. */
export const DEVICES: Mount = {
  name: 'devices',
  path: '/host/sys/devices/virtual/net',
  source: { hostPath: { path: '/sys/devices/virtual/net', type: 'Directory' } },
}
/** Lane keys, which are generated on the node and never leave it, and the settings that were changed there. */
const NODE_STATE: Mount = {
  name: 'state',
  path: '/var/lib/sealane',
  source: { hostPath: { path: '/var/lib/sealane', type: 'DirectoryOrCreate' } },
}
export const TUN: Mount = {
  name: 'tun',
  path: '/dev/net/tun',
  source: { hostPath: { path: '/dev/net/tun', type: 'CharDevice' } },
}

export const NODE_MOUNTS: readonly Mount[] = [SITE_MOUNT, NODE_STATE, SYSCTLS, DEVICES]

/** The paths on the node that a pod of gateway or route agent may mount. */
export const NODE_PATHS: readonly string[] = [...NODE_MOUNTS, TUN].flatMap(({ source }) => {
  const { hostPath } = source as { readonly hostPath?: { readonly path: string } }
  return hostPath === undefined ? [] : [hostPath.path]
})
