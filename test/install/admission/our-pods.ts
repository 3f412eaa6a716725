/** Every pod of ours, with each set of values, and the constraints that its account may use. */
import { planMovePod } from '../../../cli/broker/deploy/plan-move.ts'
import { imageQuestion, probePod } from '../../../cli/installation/image-check.ts'
import { planBroker } from '../../../install/plan-broker.ts'
import { planMember } from '../../../install/plan-member.ts'
import { DEFAULT_VALUES, type InstallValues } from '../../../install/values/install-values.ts'
import type { ManifestObject } from '../../../install/values/manifest.ts'
import { type Constraints, NONROOT_V2, RESTRICTED_V2 } from './constraints.ts'
import type { Pod } from './pod.ts'

export interface OurPod {
  readonly part: string
  readonly title: string
  readonly namespace: string
  readonly pod: Pod
  readonly values: InstallValues
  /** Undefined for a pod that no workload makes. */
  readonly selector?: Readonly<Record<string, string>>
}

export const MARKS = {
  labels: { team: 'net', 'sidecar.istio.io/inject': 'true' },
  annotations: { note: 'a', 'linkerd.io/inject': 'enabled' },
}

type ValueSet = readonly [title: string, values: InstallValues]

/** Every combination of the values that change a pod. */
function combinations(): readonly ValueSet[] {
  const { broker, etcd, gateway, routeagent, member, metrics, platform } = DEFAULT_VALUES
  const changes: Readonly<Record<string, (values: InstallValues) => InstallValues>> = {
    openshift: (values) => ({ ...values, platform: { ...platform, openshift: true } }),
    replicas: (values) => ({
      ...values,
      broker: { ...values.broker, store: 'etcd' },
      etcd: { ...etcd, enabled: true },
    }),
    'status on nodes': (values) => ({
      ...values,
      gateway: { ...values.gateway, statusListen: 'node' },
      routeagent: { ...routeagent, statusListen: 'node' },
      metrics: { ...metrics, open: true },
    }),
    console: (values) => ({ ...values, console: { ...values.console, enabled: true } }),
    'no user space': (values) => ({ ...values, gateway: { ...values.gateway, userSpaceWireguard: false } }),
    'marks and a site': (values) => ({
      ...values,
      objects: MARKS,
      pods: MARKS,
      member: { ...member, site: 'kind: Site\n' },
    }),
  }
  const none: readonly (readonly [readonly string[], InstallValues])[] = [[[], { ...DEFAULT_VALUES, broker, gateway }]]
  return Object.entries(changes)
    .reduce(
      (sets, [name, change]) => [
        ...sets,
        ...sets.map(([names, values]) => [[...names, name], change(values)] as const),
      ],
      none,
    )
    .map(([names, values]) => [names.length === 0 ? 'defaults' : names.join(', '), values])
}

export const VALUE_SETS = combinations()

/** The value as an API server receives it: without fields that are undefined. */
export function plain<T>(value: T): T {
  return JSON.parse(JSON.stringify(value)) as T
}

const planned = new WeakMap<InstallValues, readonly ManifestObject[]>()

/** All objects of a member and a broker with these values. */
export function objectsOf(values: InstallValues): readonly ManifestObject[] {
  const known = planned.get(values)
  if (known !== undefined) return known
  const objects = plain([...planMember(values), ...planBroker(values)].flatMap((part) => part.objects))
  planned.set(values, objects)
  return objects
}

const WORKLOADS = new Set(['Deployment', 'DaemonSet', 'StatefulSet'])

interface WorkloadSpec {
  readonly selector: { readonly matchLabels: Readonly<Record<string, string>> }
  readonly template: Pod
}

function podsOf(title: string, values: InstallValues): readonly OurPod[] {
  const made = objectsOf(values)
    .filter(({ kind }) => WORKLOADS.has(kind))
    .map((object): OurPod => {
      const { namespace = '', name } = object.metadata
      const { selector, template } = object['spec'] as WorkloadSpec
      const part = name.replace(/^sealane-/, '')
      return { part, title: `${part} (${title})`, namespace, pod: template, values, selector: selector.matchLabels }
    })
  const asPod = (part: string, namespace: string, object: unknown): OurPod => {
    return { part, title: `${part} (${title})`, namespace, pod: plain(object) as Pod, values }
  }
  const question = imageQuestion(values, values.member.namespace, 'every')
  const check = probePod({ question, node: 'n1', namespace: question.namespace, name: 'check', run: 'r' })
  const own: InstallValues = { ...values, broker: { ...values.broker, store: 'sqlite' } }
  const shared: InstallValues = {
    ...values,
    broker: { ...values.broker, store: 'etcd' },
    etcd: { ...values.etcd, enabled: true },
  }
  return [
    ...made,
    asPod('image check', question.namespace, check),
    asPod('move to etcd', values.broker.namespace, planMovePod({ before: own, values: shared })),
    asPod('move from etcd', values.broker.namespace, planMovePod({ before: shared, values: own })),
  ]
}

export const OUR_PODS: readonly OurPod[] = VALUE_SETS.flatMap(([title, values]) => podsOf(title, values))

interface Binding {
  readonly roleRef: { readonly kind: string; readonly name: string }
  readonly subjects: readonly { readonly name: string; readonly namespace: string }[]
}

interface Role {
  readonly rules: readonly {
    readonly apiGroups: readonly string[]
    readonly resources: readonly string[]
    readonly resourceNames?: readonly string[]
    readonly verbs: readonly string[]
  }[]
}

/** All constraints of the cluster: those of OpenShift that any account may be granted, and ours. */
export function constraintsIn(values: InstallValues): readonly Constraints[] {
  const ours = objectsOf(values).filter(({ kind }) => kind === 'SecurityContextConstraints')
  return [RESTRICTED_V2, NONROOT_V2, ...(ours as readonly unknown[] as readonly Constraints[])]
}

/** The names of the constraints that the account of the pod may use, in the namespace of the pod. */
export function usableBy({ namespace, pod, values }: OurPod): readonly string[] {
  const account = pod.spec.serviceAccountName ?? 'default'
  const objects = objectsOf(values)
  const granted = objects
    .filter(({ kind, metadata }) => kind === 'RoleBinding' && metadata.namespace === namespace)
    .map((object) => object as unknown as Binding)
    .filter(({ subjects }) => subjects.some((one) => one.name === account && one.namespace === namespace))
    .flatMap(({ roleRef }) => {
      const builtIn = /^system:openshift:scc:(.*)$/.exec(roleRef.name)?.[1]
      if (roleRef.kind === 'ClusterRole') return builtIn === undefined ? [] : [builtIn]
      const role = objects.find(
        ({ kind, metadata }) => kind === 'Role' && metadata.namespace === namespace && metadata.name === roleRef.name,
      )
      return ((role as unknown as Role | undefined)?.rules ?? [])
        .filter(({ resources, verbs }) => resources.includes('securitycontextconstraints') && verbs.includes('use'))
        .flatMap(({ resourceNames }) => resourceNames ?? ['*'])
    })
  // OpenShift grants this one to every user that has logged in, and to every ServiceAccount.
  return ['restricted-v2', ...granted]
}
