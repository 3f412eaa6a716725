/** The pods of all components: what they share, and how little each may do. */
import {
  type ComponentName,
  type InstallValues,
  type PodValues,
  SITE_CONFIG,
  SITE_KEY,
  STATUS_PORTS,
  STATUS_PORT_NAME,
  type StatusPlace,
  digest,
  objectMarksEnv,
  objectName,
  partLabels,
  whenEither,
  whenIs,
} from '../values/values.ts'

/** Nobody in particular; the number that distroless images use too. */
const UNPRIVILEGED_ID = 65_532

/** The security context of a pod that needs no power at all. */
export const UNPRIVILEGED = {
  runAsNonRoot: true,
  ...{ runAsUser: UNPRIVILEGED_ID, runAsGroup: UNPRIVILEGED_ID, fsGroup: UNPRIVILEGED_ID },
  seccompProfile: { type: 'RuntimeDefault' },
}

/** A volume and where the container sees it. `source` is the volume's own field, such as `{ emptyDir: {} }`. */
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
  readonly priority: 'system-node-critical' | 'system-cluster-critical'
  readonly args: readonly string[]
  /** Volumes and mounts as lists, so that a mount may depend on a value. */
  readonly volumes: readonly unknown[]
  readonly volumeMounts: readonly unknown[]
  readonly env?: readonly unknown[]
  readonly ports?: readonly unknown[]
  /** Goes over what all pod specs have. */
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

/** `everywhere`: a status page on all addresses gives metrics to every caller; else on loopback alone. */
export const STATUS_METRICS = 'SEALANE_STATUS_METRICS'
export const METRICS_EVERYWHERE = 'everywhere'

/** As in the environment: an image of an earlier release would not start with a flag that it does not know. */
export const OPEN_METRICS = { name: STATUS_METRICS, value: METRICS_EVERYWHERE }

/** Addresses from which the kubelet's probes come, with commas between them. */
export const NODE_ADDRESSES = 'SEALANE_NODE_ADDRESSES'
const NODE_ADDRESSES_ENV = {
  name: NODE_ADDRESSES,
  valueFrom: { fieldRef: { apiVersion: 'v1', fieldPath: 'status.hostIPs' } },
}

/** A component that talks to the API server, away from the node's own network. */
export function unprivilegedPod(init: PodInit): unknown {
  const { open, podMonitors } = init.values.metrics
  const env = [...(init.env ?? []), NODE_ADDRESSES_ENV, ...whenEither(open, podMonitors.enabled, OPEN_METRICS)]
  return podTemplate(
    { ...init, env },
    { listen: '0.0.0.0', podSecurity: UNPRIVILEGED, capabilities: { drop: ['ALL'] } },
  )
}

/** A component that changes the node's own network: root without any power but that one. */
export function nodeNetworkPod(init: PodInit, statusListen: StatusPlace): unknown {
  const port = STATUS_PORTS[init.part]
  const template = podTemplate(
    {
      ...init,
      env: [...(init.env ?? []), ...whenIs(statusListen, 'node', NODE_IP)],
      ports: [{ name: STATUS_PORT_NAME, containerPort: port }],
      // The node's own resolver: these pods must start while cluster DNS is away.
      spec: { hostNetwork: true, dnsPolicy: 'Default', ...init.spec },
    },
    {
      // The node's addresses may be public: loopback, and another only where it is asked for. Probes stay on loopback.
      listen: '127.0.0.1',
      moreArgs: whenIs(statusListen, 'node', ...onNodeArgs(init.part)),
      podSecurity: { runAsUser: 0, runAsGroup: 0, seccompProfile: { type: 'RuntimeDefault' } },
      capabilities: { drop: ['ALL'], add: ['NET_ADMIN'] },
    },
  )
  return template
}

interface Confinement {
  readonly listen: '0.0.0.0' | '127.0.0.1'
  readonly moreArgs?: readonly string[]
  readonly podSecurity: Readonly<Record<string, unknown>>
  readonly capabilities: Readonly<Record<string, readonly string[]>>
}

function podTemplate(init: PodInit, { listen, moreArgs = [], podSecurity, capabilities }: Confinement): unknown {
  const { part, values, pod } = init
  const port = STATUS_PORTS[part]
  const usesSite = part !== 'broker'
  // Only who talks to the API server writes objects.
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
    // Why it ended is then in the pod's status, where commands and people look first.
    terminationMessagePolicy: 'FallbackToLogsOnError',
    securityContext: { allowPrivilegeEscalation: false, readOnlyRootFilesystem: true, capabilities },
    volumeMounts: init.volumeMounts,
  }
  return {
    metadata: {
      labels: partLabels(part),
      // A change of the site file starts the pods anew: it is read once.
      ...(usesSite ? { annotations: { 'sealane.io/site-digest': digest(values.member.site) } } : {}),
    },
    spec: {
      serviceAccountName: objectName(part),
      // Only who talks to the API server has a token.
      automountServiceAccountToken: usesSite,
      enableServiceLinks: false,
      priorityClassName: init.priority,
      terminationGracePeriodSeconds: 15,
      imagePullSecrets: values.imagePullSecrets,
      securityContext: podSecurity,
      nodeSelector: pod.nodeSelector,
      tolerations: pod.tolerations,
      ...init.spec,
      containers: [container],
      volumes: init.volumes,
    },
  }
}

function probes(port: number, listen: '0.0.0.0' | '127.0.0.1'): Readonly<Record<string, unknown>> {
  const get = (path: string) => ({ path, port, ...(listen === '127.0.0.1' ? { host: listen } : {}) })
  return {
    // Node needs a moment to start where many pods do so at once.
    startupProbe: { httpGet: get('/healthz'), periodSeconds: 1, failureThreshold: 60 },
    livenessProbe: { httpGet: get('/healthz'), periodSeconds: 10, timeoutSeconds: 5, failureThreshold: 6 },
    readinessProbe: { httpGet: get('/readyz'), periodSeconds: 2, timeoutSeconds: 2, failureThreshold: 3 },
  }
}

/** What every component of a member is started with. */
export function upArgs(part: ComponentName): readonly string[] {
  return ['up', '--site', `${SITE_MOUNT.path}/${SITE_KEY}`, '--component', part, '--node', '$(NODE_NAME)']
}

/** With the version that the server would fill in: fieldRef has one owner as a whole. */
export const NODE_NAME = {
  name: 'NODE_NAME',
  valueFrom: { fieldRef: { apiVersion: 'v1', fieldPath: 'spec.nodeName' } },
}

/** The node's InternalIP. */
const NODE_IP = { name: 'NODE_IP', valueFrom: { fieldRef: { apiVersion: 'v1', fieldPath: 'status.hostIP' } } }

/** Brackets, because it may be of either family. */
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

// What gateway and routeagent see of their node's own files, and nothing else of them.

/**
 * The runtime shows /proc/sys read-only to containers; these are the settings of the node's own network namespace. Only
 * net/: with the rest of /proc/sys root in the container could take over the node.
 */
export const SYSCTLS: Mount = {
  name: 'sysctls',
  path: '/host/proc/sys/net',
  source: { hostPath: { path: '/proc/sys/net', type: 'Directory' } },
}
/** Receive queues of lanes and overlay, read-only in containers too. */
export const DEVICES: Mount = {
  name: 'devices',
  path: '/host/sys/devices/virtual/net',
  source: { hostPath: { path: '/sys/devices/virtual/net', type: 'Directory' } },
}
/** Lane keys, made on the node and never leaving it, and what was switched on there. */
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

/** Paths on the node that a pod of gateway or routeagent may mount. */
export const NODE_PATHS: readonly string[] = [...NODE_MOUNTS, TUN].flatMap(({ source }) => {
  const { hostPath } = source as { readonly hostPath?: { readonly path: string } }
  return hostPath === undefined ? [] : [hostPath.path]
})
