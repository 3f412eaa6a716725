/** The objects of a run in one cluster: pods that call and answer, Services, exports, and an AccessPolicy. Pure. */
import { LEFT_ALONE, type ManifestObject } from '../../../install/values/values.ts'
import { LABEL_GATEWAY } from '../../../model/lanes/lanes.ts'
import { HIDDEN_PORT, PROBE_COMMAND, PROBE_PORT } from './probe-wire.ts'

/** On all objects of probes. */
export const PROBE_LABEL = 'sealane.io/probe'
/** Its value, and the value of the label by which tools show who manages an object. */
export const PROBE_LABEL_VALUE = 'verify'
export const RUN_LABEL = 'sealane.io/probe-run'
const ROLE_LABEL = 'sealane.io/probe-role'
/** The RFC 3339 time after which the objects are the remains of a killed run. */
export const UNTIL_ANNOTATION = 'sealane.io/probe-until'
/** On a Service of the run, while a Node is drained for `--failover`. */
export const DRAINED_ANNOTATION = 'sealane.io/probe-drained-node'

export const CONTAINER = 'probe'
export const POLICY = 'sealane-probe'
export const POD_NAMES = { client: 'sealane-probe-client', server: 'sealane-probe-server' } as const
export type Role = keyof typeof POD_NAMES

/** The two members of a run. Their Services have different names, so that no call can end at home. */
export type Letter = 'a' | 'b'

export interface ServiceNames {
  readonly balanced: string
  readonly headless: string
}

export function serviceNames(letter: Letter): ServiceNames {
  return { balanced: `sealane-probe-${letter}`, headless: `sealane-probe-${letter}-headless` }
}

export interface ProbeImage {
  readonly name: string
  readonly pullPolicy: string
  /** The Secrets with which the agent pulls it, in the agent's own namespace. */
  readonly pullSecrets: readonly string[]
}

export interface ObjectsInit {
  readonly run: string
  readonly namespace: string
  /** Whether the namespace is the run's own. */
  readonly makesNamespace: boolean
  readonly letter: Letter
  /** The id of this cluster, and of the other member. */
  readonly member: string
  readonly caller: string
  readonly image: ProbeImage
  readonly families: readonly ('IPv4' | 'IPv6')[]
  readonly roles: readonly Role[]
  /** OpenShift gives each namespace user ids of its own, and refuses others. */
  readonly isOpenShift: boolean
  /** Whether the Services are exported. */
  readonly exports: boolean
  /** Whether the cluster knows AccessPolicy. */
  readonly knowsPolicies: boolean
  /** The Node of each role, if it was asked for. */
  readonly nodes: Partial<Readonly<Record<Role, string>>>
  /** The RFC 3339 time at which the run must be over, and the seconds until then. */
  readonly until: string
  readonly lastsSeconds: number
}

/** In the order in which they are applied. */
export function planObjects(init: ObjectsInit): readonly ManifestObject[] {
  const { makesNamespace, exports: isExported, knowsPolicies, roles } = init
  return [
    ...(makesNamespace ? [namespaceObject(init)] : []),
    ...roles.map((role) => podObject(role, init)),
    ...(isExported ? serviceObjects(init) : []),
    ...(isExported && knowsPolicies ? [policyObject(init, [init.caller])] : []),
    ...(isExported ? exportObjects(init) : []),
  ]
}

type Meta = Pick<ObjectsInit, 'run' | 'namespace' | 'until'>

function metadata(name: string, { run, namespace, until }: Meta, labels: Readonly<Record<string, string>> = {}) {
  return {
    ...{ name, namespace },
    labels: { [PROBE_LABEL]: PROBE_LABEL_VALUE, [RUN_LABEL]: run, ...labels },
    annotations: { [UNTIL_ANNOTATION]: until },
  }
}

function namespaceObject(init: ObjectsInit): ManifestObject {
  const levels = ['enforce', 'warn'].map((mode) => [`pod-security.kubernetes.io/${mode}`, 'restricted'] as const)
  const { namespace: _, ...own } = metadata(init.namespace, init, {
    ...Object.fromEntries(levels),
    ...LEFT_ALONE.labels,
  })
  return { apiVersion: 'v1', kind: 'Namespace', metadata: own }
}

/** The user of the image. */
const USER = 65_532

function podObject(role: Role, init: ObjectsInit): ManifestObject {
  const { run, member, image, lastsSeconds, makesNamespace } = init
  // A namespace of the run's own has no Secrets.
  const secrets = makesNamespace ? [] : image.pullSecrets
  const name = POD_NAMES[role]
  const own = metadata(name, init, { [ROLE_LABEL]: role, ...LEFT_ALONE.labels })
  const ports = [PROBE_PORT, HIDDEN_PORT].flatMap((port) => ['--port', String(port)])
  return {
    apiVersion: 'v1',
    kind: 'Pod',
    metadata: { ...own, annotations: { ...own.annotations, ...LEFT_ALONE.annotations } },
    spec: {
      restartPolicy: 'Never',
      // The kubelet ends the pod of a command that was killed.
      activeDeadlineSeconds: lastsSeconds,
      terminationGracePeriodSeconds: 1,
      automountServiceAccountToken: false,
      enableServiceLinks: false,
      securityContext: {
        runAsNonRoot: true,
        ...(init.isOpenShift ? {} : { runAsUser: USER, runAsGroup: USER }),
        seccompProfile: { type: 'RuntimeDefault' },
      },
      ...placement(role, init),
      ...(secrets.length === 0 ? {} : { imagePullSecrets: secrets.map((one) => ({ name: one })) }),
      containers: [
        {
          name: CONTAINER,
          image: image.name,
          imagePullPolicy: image.pullPolicy,
          args: [PROBE_COMMAND, 'serve', '--run', run, '--member', member, '--pod', name, ...ports],
          // Calls come only after the program listens.
          readinessProbe: { tcpSocket: { port: PROBE_PORT }, periodSeconds: 1 },
          resources: {
            requests: { cpu: '20m', memory: '96Mi' },
            // A limit of processor time would be what a throughput call measures.
            limits: { cpu: '2', memory: '384Mi' },
          },
          terminationMessagePolicy: 'FallbackToLogsOnError',
          securityContext: {
            allowPrivilegeEscalation: false,
            readOnlyRootFilesystem: true,
            capabilities: { drop: ['ALL'] },
          },
        },
      ],
    },
  }
}

/** The two pods are apart and beside no gateway, if there are nodes for that: then calls take the whole way. */
function placement(role: Role, { run, nodes }: ObjectsInit): Readonly<Record<string, unknown>> {
  const node = nodes[role]
  if (node !== undefined) return { nodeSelector: { 'kubernetes.io/hostname': node } }
  const worker = { matchExpressions: [{ key: LABEL_GATEWAY, operator: 'DoesNotExist' }] }
  const apart = { labelSelector: { matchLabels: { [RUN_LABEL]: run } }, topologyKey: 'kubernetes.io/hostname' }
  return {
    affinity: {
      nodeAffinity: {
        preferredDuringSchedulingIgnoredDuringExecution: [{ weight: 50, preference: worker }],
      },
      podAntiAffinity: {
        preferredDuringSchedulingIgnoredDuringExecution: [{ weight: 100, podAffinityTerm: apart }],
      },
    },
  }
}

function serviceObjects(init: ObjectsInit): readonly ManifestObject[] {
  const { run, letter, families } = init
  const { balanced, headless } = serviceNames(letter)
  const spec = {
    selector: { [RUN_LABEL]: run, [ROLE_LABEL]: 'server' satisfies Role },
    ipFamilyPolicy: families.length > 1 ? 'PreferDualStack' : 'SingleStack',
    ports: [
      { name: 'probe', port: PROBE_PORT, protocol: 'TCP' },
      { name: 'probe-udp', port: PROBE_PORT, protocol: 'UDP' },
    ],
  }
  return [
    { apiVersion: 'v1', kind: 'Service', metadata: metadata(balanced, init), spec },
    { apiVersion: 'v1', kind: 'Service', metadata: metadata(headless, init), spec: { ...spec, clusterIP: 'None' } },
  ]
}

function exportObjects(init: ObjectsInit): readonly ManifestObject[] {
  const { balanced, headless } = serviceNames(init.letter)
  const apiVersion = 'multicluster.x-k8s.io/v1beta1'
  return [balanced, headless].map((name) => ({ apiVersion, kind: 'ServiceExport', metadata: metadata(name, init) }))
}

/** Offers both Services to these members, or to nobody. */
export function policyObject(init: Meta & Pick<ObjectsInit, 'letter'>, callers: readonly string[]): ManifestObject {
  const { balanced, headless } = serviceNames(init.letter)
  return {
    apiVersion: 'sealane.io/v1alpha1',
    kind: 'AccessPolicy',
    metadata: metadata(POLICY, init),
    spec: {
      targetRefs: [balanced, headless].map((name) => ({ kind: 'ServiceExport', name })),
      from: callers.length === 0 ? [] : [{ clusters: callers }],
    },
  }
}

/** The kinds of all objects of a run, in the order in which they are removed. */
export const PROBE_KINDS = [
  { apiVersion: 'multicluster.x-k8s.io/v1beta1', kind: 'ServiceExport' },
  { apiVersion: 'sealane.io/v1alpha1', kind: 'AccessPolicy' },
  { apiVersion: 'v1', kind: 'Service' },
  { apiVersion: 'v1', kind: 'Pod' },
  { apiVersion: 'v1', kind: 'Namespace' },
] as const

export interface Remains {
  readonly objects: readonly ManifestObject[]
  /** Nodes that a killed run had drained. */
  readonly drained: readonly string[]
}

/** The objects of runs that are over: those whose time has passed, and those that state none. */
export function planSweep(objects: readonly ManifestObject[], nowMs: number): Remains {
  const over = objects.filter(({ metadata: { labels, annotations } }) => {
    const until = Date.parse(annotations?.[UNTIL_ANNOTATION] ?? '')
    return labels?.[PROBE_LABEL] === PROBE_LABEL_VALUE && !(until > nowMs)
  })
  const drained = over.flatMap(({ metadata: { annotations } }) => {
    return annotations?.[DRAINED_ANNOTATION] ?? []
  })
  return { objects: over, drained: [...new Set(drained)] }
}

/**
 * The pods of runs that are over: their time has passed, or none of the run's pods runs any more. `pods` are all those of
 * a namespace.
 */
export function podsOver(pods: readonly ManifestObject[], nowMs: number): readonly ManifestObject[] {
  const expired = new Set(planSweep(pods, nowMs).objects)
  const runOf = ({ metadata: { labels } }: ManifestObject): string => labels?.[RUN_LABEL] ?? ''
  const running = new Set(pods.filter((pod) => !hasEnded(pod)).map(runOf))
  return pods.filter((pod) => {
    const isOfProbes = pod.metadata.labels?.[PROBE_LABEL] === PROBE_LABEL_VALUE
    return isOfProbes && (expired.has(pod) || !running.has(runOf(pod)))
  })
}

function hasEnded(pod: ManifestObject): boolean {
  const { phase } = (pod as { readonly status?: { readonly phase?: string } }).status ?? {}
  return phase === 'Failed' || phase === 'Succeeded'
}
