/** Adds the labels and annotations that a user requests to installed objects. */
import { isLabelValue, isQualifiedName } from '../../model/model.ts'
import { Conditional, type ManifestObject, jsonText, when, withOurs } from './manifest.ts'

type TextMap = Readonly<Record<string, string>>

export interface Marks {
  readonly labels: TextMap
  readonly annotations: TextMap
}

export type MarkKind = keyof Marks

/** `objects`: for every object, including pods. `pods`: for pods only, with precedence over `objects`. */
export interface MarkValues {
  readonly objects: Marks
  readonly pods: Marks
}

const WORKLOADS: ReadonlySet<string> = new Set(['Deployment', 'DaemonSet', 'StatefulSet'])

/**
 * Adds the marks to the objects. Existing entries take precedence. Volume claim templates of a StatefulSet get none,
 * since the API server rejects every change of them.
 */
export function marked(objects: readonly ManifestObject[], values: MarkValues): readonly ManifestObject[] {
  return objects.map((object): ManifestObject => {
    // A conditional object of the chart.
    if (object instanceof Conditional) {
      const { path, items, terms } = object
      return new Conditional(
        path,
        marked(items as readonly ManifestObject[], values),
        terms,
      ) as unknown as ManifestObject
    }
    const own = { ...object, metadata: markedMetadata(object.metadata, values.objects) }
    if (!WORKLOADS.has(object.kind)) return own
    const spec = object['spec'] as { readonly template: { readonly metadata: Partial<Marks> } }
    const metadata = markedMetadata(spec.template.metadata, values.pods, values.objects)
    return { ...own, spec: { ...spec, template: { ...spec.template, metadata } } }
  })
}

/** Earlier marks of `given` take precedence over later ones. */
function markedMetadata<T extends Partial<Marks>>(metadata: T, ...given: readonly Marks[]): T {
  const { labels, annotations, ...others } = metadata
  const all = {
    labels: withOurs(labels, ...given.map((one) => one.labels)),
    annotations: withOurs(annotations, ...given.map((one) => one.annotations)),
  }
  const some = Object.fromEntries(Object.entries(all).filter(([, map]) => map !== undefined))
  return { ...others, ...some } as T
}

/**
 * The marks of every pod of ours by which service meshes leave it alone, as each mesh publishes them: a proxy beside a
 * part would capture the connections that carry, or watch over, those of the mesh. Istio reads the label, and its older
 * releases the annotation; its ambient mode has a label of its own. Linkerd and Consul read annotations, Kuma a label.
 * Kyverno has no such mark: its policies name what they leave out.
 */
export const LEFT_ALONE = {
  labels: {
    'sidecar.istio.io/inject': 'false',
    'istio.io/dataplane-mode': 'none',
    'kuma.io/sidecar-injection': 'disabled',
  },
  annotations: {
    'sidecar.istio.io/inject': 'false',
    'linkerd.io/inject': 'disabled',
    'consul.hashicorp.com/connect-inject': 'false',
  },
} as const satisfies Marks

/** The annotation by which a pod names the SecurityContextConstraints that admits it (OpenShift 4.14 and later). */
export const REQUIRED_SCC = 'openshift.io/required-scc'

/** Labels that selectors and owners use, and annotations that other programs write. */
const RESERVED_KEYS = [
  ...['name', 'component', 'part-of', 'managed-by'].map((name) => `app.kubernetes.io/${name}`),
  'kubernetes.io/metadata.name',
  'kubernetes.io/service-name',
  'pod-template-hash',
  'controller-revision-hash',
  'kubectl.kubernetes.io/last-applied-configuration',
  REQUIRED_SCC,
]

/** All keys of these domains and their subdomains are reserved. */
const RESERVED_DOMAINS = [
  'sealane.io',
  'multicluster.x-k8s.io',
  'endpointslice.kubernetes.io',
  'rbac.authorization.k8s.io',
  'pod-security.kubernetes.io',
  'api-approved.kubernetes.io',
]

const escaped = (texts: readonly string[]): string => texts.map((text) => text.replaceAll('.', '\\.')).join('|')

/** The pattern of isReservedKey(), for RE2 and JavaScript. */
export const RESERVED_KEY = `^(${escaped(RESERVED_KEYS)}|([^/]+\\.)?(${escaped(RESERVED_DOMAINS)})(/.*)?)$`
const RESERVED = new RegExp(RESERVED_KEY)

const LEFT_ALONE_VALUES: ReadonlyMap<string, string> = new Map(
  [LEFT_ALONE.labels, LEFT_ALONE.annotations].flatMap((map) => Object.entries(map)),
)

/** Whether Sealane or Kubernetes sets marks with this key. */
export function isReservedKey(key: string): boolean {
  return RESERVED.test(key) || LEFT_ALONE_VALUES.has(key)
}

/** The API server's limit for an object: the sum of all keys and values. */
const MAX_ANNOTATIONS_BYTES = 262_144

/** The problem of a key, as `expected …`. Undefined if there is none. */
export function keyProblem(key: string): string | undefined {
  if (!isQualifiedName(key)) {
    return "expected a Kubernetes key: up to 63 letters, digits, '-', '_' and '.', optionally after a DNS name and '/'"
  }
  return RESERVED.test(key) ? `expected another key than ${key}, which Sealane or Kubernetes sets itself` : undefined
}

/**
 * The problem of a value that is to keep a service mesh away from pods, or to let it in, as `expected …`. Undefined for
 * the value that Sealane sets itself, which users of earlier releases gave, and for other keys.
 */
export function injectionProblem(key: string, value: string): string | undefined {
  const ours = LEFT_ALONE_VALUES.get(key)
  if (ours === undefined || value === ours) return undefined
  return `expected ${key}=${ours}: a service mesh must not capture the connections of Sealane's pods`
}

/** The problem of a value, as `expected …`. Undefined if there is none. */
export function valueProblem(kind: MarkKind, value: string): string | undefined {
  if (kind === 'labels') {
    const form = "up to 63 letters, digits, '-', '_' and '.', with a letter or digit first and last"
    return isLabelValue(value) ? undefined : `expected a label's value: ${form}; or empty`
  }
  const isTooLong = Buffer.byteLength(value) > MAX_ANNOTATIONS_BYTES
  return isTooLong ? `expected an annotation of at most ${MAX_ANNOTATIONS_BYTES} bytes` : undefined
}

// Passes the labels and annotations for all objects to the running parts, in the environment of their pods.

/** The names of the variables. Each holds a JSON object of texts; absent or empty means none. */
export const OBJECT_MARKS = {
  labels: 'SEALANE_OBJECT_LABELS',
  annotations: 'SEALANE_OBJECT_ANNOTATIONS',
} as const satisfies Readonly<Record<MarkKind, string>>

/** A variable can have at most 128 KiB including its name. Beyond that, the kernel starts no program. */
export const MAX_MARKS_BYTES = 120_000

/**
 * Entries of a container's `env`. The environment is used since an image of an earlier release would not start with an
 * unknown flag.
 */
export function objectMarksEnv({ labels, annotations }: Marks): readonly unknown[] {
  return [
    ...when(labels, { name: OBJECT_MARKS.labels, value: jsonText(labels) }),
    ...when(annotations, { name: OBJECT_MARKS.annotations, value: jsonText(annotations) }),
  ]
}

/** The problem of all marks together, as `expected …`. Undefined if there is none. */
export function marksProblem(marks: Marks): string | undefined {
  const isTooLong = ([marks.labels, marks.annotations] as const).some(
    (map) => Buffer.byteLength(jsonText(map)) > MAX_MARKS_BYTES,
  )
  return isTooLong ? `expected at most ${MAX_MARKS_BYTES} bytes of keys and values together` : undefined
}
