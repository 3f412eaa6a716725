/**
 * The fields of objects that a bundle contains: for each kind those that the checks and support need. Other fields are
 * left out. Of a kind that is not listed only the name is kept. The fields of Sealane's own kinds come from their
 * schemas.
 */
import { type Fact, type FactSet, type FieldSchema, probeSchema, reportSchema } from '../../explain/facts/facts.ts'
import { OWN_CRDS } from '../../install/crds/crds.ts'
import { SITE_KEY } from '../../install/values/values.ts'
import { formatYaml, parseYaml } from '../../kubeapi/kubeapi.ts'
import { SERVICE_EXPORT_FIELDS, SERVICE_IMPORT_FIELDS, crdSchema } from '../../model/kinds/kinds.ts'

// Keeps the fields of a value that a list names, and marks the others as left out. Pure.

/** Replaces a value that no list names. */
export const LEFT_OUT = '<left out>'

/**
 * What is kept of a value, or of each item of a list. `plain`: a string, a number or a boolean. `map`: plain values
 * under any names. AllowedFields: the named fields, each by its own rule. A function chooses the rule by the value's
 * other fields.
 */
export type Allowed = 'plain' | 'map' | AllowedFields | ((fields: Fields) => AllowedFields)
export interface AllowedFields {
  readonly [field: string]: Allowed
}

type Fields = Readonly<Record<string, unknown>>

/** A value whose type differs from the rule is left out too. */
export function letOut(value: unknown, allowed: Allowed | undefined): unknown {
  return kept(value, allowed, false)
}

/** For values that a program reads again: a field that no list names is absent instead of marked. */
function letOutForReaders(value: unknown, allowed: Allowed | undefined): unknown {
  return kept(value, allowed, true)
}

function kept(value: unknown, allowed: Allowed | undefined, omits: boolean): unknown {
  if (value === null || value === undefined) return value
  if (allowed === undefined) return LEFT_OUT
  if (Array.isArray(value)) return value.map((one) => kept(one, allowed, omits))
  if (typeof value !== 'object') return allowed === 'plain' || allowed === 'map' ? value : LEFT_OUT
  // A choice without fields, such as a tier `local: {}`, is said by its name alone.
  if (allowed === 'plain') return Object.keys(value).length === 0 ? {} : LEFT_OUT
  const fields = value as Fields
  const named = typeof allowed === 'function' ? allowed(fields) : allowed
  const ofKey = (key: string): Allowed | undefined => (named === 'map' ? 'plain' : ownOf(named, key))
  return Object.fromEntries(
    Object.entries(fields).flatMap(([key, one]) => {
      const own = ofKey(key)
      return omits && own === undefined ? [] : [[key, kept(one, own, omits)]]
    }),
  )
}

/** `fields('name port', { more: 'map' })`: plain fields by name, and others with a rule. */
export function fields(names: string, others: AllowedFields = {}): AllowedFields {
  return { ...plain(names.split(' ')), ...others }
}

function plain(names: readonly string[]): AllowedFields {
  return Object.fromEntries(names.map((name) => [name, 'plain']))
}

/** All fields that a schema names. */
export function allowedBy({ properties, items, additionalProperties, anyOf }: FieldSchema): Allowed {
  if (items !== undefined) return allowedBy(items)
  if (properties !== undefined) {
    return Object.fromEntries(Object.entries(properties).map(([name, schema]) => [name, allowedBy(schema)]))
  }
  const choices = (anyOf ?? []).map(allowedBy).filter((choice) => choice !== 'plain')
  return choices[0] ?? (additionalProperties === undefined || additionalProperties === false ? 'plain' : 'map')
}

function ownOf(allowed: AllowedFields, key: string): Allowed | undefined {
  return Object.hasOwn(allowed, key) ? allowed[key] : undefined
}

/** Only these annotations are kept, because other tools write any content into annotations, including whole objects. */
const READ_ANNOTATIONS =
  /^([a-z-]+\.)*(sealane\.io|multicluster\.(x-)?k(8s|ubernetes)\.io)\/|^deployment\.kubernetes\.io\/revision$/
const annotations = (all: Fields): AllowedFields =>
  plain(Object.keys(all).filter((name) => READ_ANNOTATIONS.test(name)))
const METADATA = fields(
  'name namespace uid generation resourceVersion creationTimestamp deletionTimestamp finalizers generateName',
  { labels: 'map', annotations, ownerReferences: fields('apiVersion kind name uid controller') },
)

const CONDITIONS = fields(
  'type status reason message lastTransitionTime lastHeartbeatTime lastUpdateTime lastProbeTime observedGeneration',
)
const SELECTOR = { matchLabels: 'map', matchExpressions: fields('key operator values') } as const
const PORTS = fields('name protocol port targetPort nodePort containerPort hostPort hostIP endPort appProtocol')

const PROBE = fields('initialDelaySeconds periodSeconds timeoutSeconds failureThreshold successThreshold', {
  httpGet: fields('port scheme host'),
  tcpSocket: fields('port'),
})
const CONTAINER = fields('name image imagePullPolicy restartPolicy', {
  ports: PORTS,
  resources: { requests: 'map', limits: 'map' },
  env: fields('name'),
  volumeMounts: fields('name mountPath readOnly subPath'),
  livenessProbe: PROBE,
  readinessProbe: PROBE,
  startupProbe: PROBE,
  securityContext: fields(
    'privileged runAsUser runAsGroup runAsNonRoot readOnlyRootFilesystem allowPrivilegeEscalation',
    {
      capabilities: fields('add drop'),
      seccompProfile: fields('type'),
    },
  ),
})
const OUR_CONTAINERS = /^(agent|gateway|routeagent|dns|broker)$/
/** The arguments of Sealane's own containers are kept; a pattern redacts the value after the flag of a secret. */
const containers = ({ name }: Fields): AllowedFields =>
  typeof name === 'string' && OUR_CONTAINERS.test(name) ? { ...CONTAINER, ...fields('args') } : CONTAINER

const POD_SPEC = fields(
  'nodeName hostname hostNetwork dnsPolicy restartPolicy priority priorityClassName preemptionPolicy ' +
    'serviceAccountName automountServiceAccountToken schedulerName terminationGracePeriodSeconds enableServiceLinks',
  {
    nodeSelector: 'map',
    tolerations: fields('key operator value effect tolerationSeconds'),
    imagePullSecrets: fields('name'),
    containers,
    initContainers: containers,
    ephemeralContainers: fields('name image'),
    volumes: fields('name', {
      hostPath: fields('path type'),
      secret: fields('secretName optional defaultMode'),
      configMap: fields('name optional defaultMode'),
      emptyDir: fields('medium sizeLimit'),
      persistentVolumeClaim: fields('claimName readOnly'),
    }),
  },
)
const CONTAINER_STATE: AllowedFields = {
  waiting: fields('reason message'),
  running: fields('startedAt'),
  terminated: fields('reason message exitCode signal startedAt finishedAt'),
}
const CONTAINER_STATUSES = fields('name ready started restartCount image imageID', {
  state: CONTAINER_STATE,
  lastState: CONTAINER_STATE,
})
const WORKLOAD: AllowedFields = {
  spec: fields('replicas minReadySeconds revisionHistoryLimit progressDeadlineSeconds paused', {
    selector: SELECTOR,
    template: { metadata: { labels: 'map', annotations }, spec: POD_SPEC },
    strategy: fields('type', { rollingUpdate: fields('maxSurge maxUnavailable') }),
    updateStrategy: fields('type', { rollingUpdate: fields('maxSurge maxUnavailable') }),
  }),
  status: fields(
    'observedGeneration replicas readyReplicas updatedReplicas availableReplicas unavailableReplicas ' +
      'currentNumberScheduled desiredNumberScheduled numberReady numberAvailable numberUnavailable ' +
      'numberMisscheduled updatedNumberScheduled',
    { conditions: CONDITIONS },
  ),
}
const PEERS = { ipBlock: fields('cidr except'), namespaceSelector: SELECTOR, podSelector: SELECTOR } as const

const OTHERS: Readonly<Record<string, AllowedFields>> = {
  Node: {
    spec: fields('podCIDR podCIDRs providerID unschedulable', { taints: fields('key value effect timeAdded') }),
    status: fields('phase', {
      addresses: fields('type address'),
      capacity: 'map',
      allocatable: 'map',
      conditions: CONDITIONS,
      nodeInfo: fields(
        'architecture containerRuntimeVersion kernelVersion kubeProxyVersion kubeletVersion operatingSystem osImage',
      ),
    }),
  },
  Pod: {
    spec: POD_SPEC,
    status: fields('phase reason message hostIP podIP startTime qosClass', {
      hostIPs: fields('ip'),
      podIPs: fields('ip'),
      conditions: CONDITIONS,
      containerStatuses: CONTAINER_STATUSES,
      initContainerStatuses: CONTAINER_STATUSES,
    }),
  },
  Deployment: WORKLOAD,
  DaemonSet: WORKLOAD,
  Service: {
    spec: fields(
      'type clusterIP clusterIPs ipFamilies ipFamilyPolicy externalIPs sessionAffinity internalTrafficPolicy ' +
        'externalTrafficPolicy trafficDistribution publishNotReadyAddresses healthCheckNodePort',
      { selector: 'map', ports: PORTS, sessionAffinityConfig: { clientIP: fields('timeoutSeconds') } },
    ),
    status: { loadBalancer: { ingress: fields('ip hostname ipMode') }, conditions: CONDITIONS },
  },
  EndpointSlice: fields('addressType', {
    endpoints: fields('addresses hostname nodeName zone', {
      conditions: fields('ready serving terminating'),
      hints: { forZones: fields('name') },
      targetRef: fields('kind name namespace uid'),
    }),
    ports: PORTS,
    // Without the text of the check: the path of a health page may contain a secret.
    status: { backends: fields('address up since message') },
  }),
  NetworkPolicy: {
    spec: fields('policyTypes', {
      podSelector: SELECTOR,
      ingress: { from: PEERS, ports: PORTS },
      egress: { to: PEERS, ports: PORTS },
    }),
  },
  Namespace: { status: fields('phase') },
  Lease: {
    spec: fields('holderIdentity leaseDurationSeconds acquireTime renewTime leaseTransitions'),
  },
  Event: fields('type reason message count firstTimestamp lastTimestamp eventTime reportingComponent', {
    involvedObject: fields('apiVersion kind name namespace uid fieldPath'),
    source: fields('component host'),
  }),
  // Of a ConfigMap only the site file is kept.
  ConfigMap: { data: { [SITE_KEY]: 'plain' } },
}

const SITE = fields('apiVersion kind', {
  metadata: fields('name', { labels: 'map', annotations }),
  spec: fields(
    'objects state podCIDRs serviceCIDRs allowedNamespaces excludedNamespaces exposure activeGateways ' +
      'failClosed keyRotationDays linkSleepMinutes openHostPorts',
    {
      kubernetes: fields('kubeconfig context namespace'),
      labels: 'map',
      gateways: fields('node lane publicAddress publicPort listenPort relay portMapping'),
      overlay: fields('port checksumOffload'),
      dns: fields('listen upstreams forwardFor'),
    },
  ),
})

/** The user's own annotations: only the names are kept. */
const EXPORTED = { spec: { exportedLabels: 'map', exportedAnnotations: {} } } as const

/** The fields by kind. `apiVersion`, `kind` and metadata are part of each. */
export const KIND_FIELDS: ReadonlyMap<string, AllowedFields> = new Map(
  [
    ...OWN_CRDS.map(({ spec: { names, versions } }) => {
      const schema = versions.find(({ storage }) => storage)?.schema?.openAPIV3Schema ?? {}
      return [names.kind, allowedBy(schema) as AllowedFields] as const
    }),
    ['ServiceExport', { ...(allowedBy(crdSchema(SERVICE_EXPORT_FIELDS)) as AllowedFields), ...EXPORTED }] as const,
    // The installed CRD does not have the fields of later standards.
    ['ServiceImport', allowedBy(crdSchema(SERVICE_IMPORT_FIELDS)) as AllowedFields] as const,
    ...Object.entries(OTHERS),
  ].map(([kind, allowed]) => [kind, { ...allowed, ...fields('apiVersion kind'), metadata: METADATA }]),
)

const OF_ANY_KIND = fields('apiVersion kind', { metadata: fields('name namespace') })

/** Filters an object of this kind. The object itself need not name its kind. */
export function objectLetOut(kind: string, object: unknown): unknown {
  return letOut(kind === 'ConfigMap' ? withSettings(object) : object, KIND_FIELDS.get(kind) ?? OF_ANY_KIND)
}

/** Filters the site file in a ConfigMap by the fields of a site file, and formats it as YAML. */
function withSettings(object: unknown): unknown {
  const { data, ...others } = (object ?? {}) as { readonly data?: Fields }
  const text = data?.[SITE_KEY]
  return typeof text === 'string' ? { ...others, data: { ...data, [SITE_KEY]: settings(text) } } : object
}

function settings(text: string): string {
  try {
    return formatYaml(letOut(parseYaml(text), SITE))
  } catch {
    return LEFT_OUT
  }
}

/** The fields of the `/status` page of a part. */
export const REPORT_FIELDS = allowedBy(reportSchema()) as AllowedFields

/** The fields of every fact. */
const FACT = fields('t kind source at what reason message needed')

/** Filters facts: objects by their kinds, reports and probes by the fields that the checks read. Pure. */
export function factsLetOut({ format, takenAt, target, facts }: FactSet): unknown {
  return { format, takenAt, target, facts: facts.map(factLetOut) }
}

function factLetOut(fact: Fact): unknown {
  switch (fact.t) {
    case 'objects':
      return { ...said(fact), items: fact.items.map((item) => objectLetOut(fact.kind, item)) }
    case 'report':
      return { ...said(fact), report: letOutForReaders(fact.report, REPORT_FIELDS) }
    case 'probe':
      return { ...said(fact), items: letOutForReaders(fact.items, allowedBy(probeSchema(fact.kind))) }
    case 'unanswered':
      return said(fact)
  }
}

function said(fact: Fact): object {
  const { t: _t, ...known } = Object.fromEntries(Object.entries(fact).filter(([key]) => key in FACT))
  return { t: fact.t, ...(letOut(known, FACT) as object) }
}
