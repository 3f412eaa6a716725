/**
 * Previews the changes of a join: asks the API server for each object and shows the differences before anything is
 * changed.
 */
import type { ManifestObject, Marks } from '../../install/values/values.ts'
import { type ObjectRef, refOf, titleOf } from '../../kubeapi/kube/kube.ts'
import type { ClusterAdmin } from '../context/context.ts'
import { type NodeChange, type SecretMarkChange, afterMarks, decideCrds } from '../installation/installation.ts'

// The differences between an object in the cluster and the one that replaces it, one line each. Fields that the server
// maintains and the content of Secrets are not shown. Pure.

/** The maximum number of lines for one object. An updated CRD may differ in hundreds of fields. */
const MAX_LINES = 60
const MAX_VALUE = 160
const STAMPS = ['managedFields', 'resourceVersion', 'generation', 'uid', 'creationTimestamp', 'selfLink']
/**
 * Annotations that hold a copy of the whole object, including a Secret's content, or that follow from other changes.
 */
const SET_BY_SERVER = [
  'kubectl.kubernetes.io/last-applied-configuration',
  'deprecated.daemonset.template.generation',
  'deployment.kubernetes.io/revision',
]
/** The fields by which the API server identifies items of a list. */
const ITEM_KEYS = ['name', 'mountPath', 'key', 'containerPort', 'port', 'type']

/** The object without the fields that the server maintains. */
function contentOf(object: ManifestObject): Readonly<Record<string, unknown>> {
  const { status: _status, metadata, ...rest } = object as ManifestObject & { readonly status?: unknown }
  const described = Object.entries(metadata).filter(([name]) => !STAMPS.includes(name))
  const { annotations = {}, ...others } = Object.fromEntries(described) as { annotations?: Record<string, string> }
  const reported = Object.entries(annotations).filter(([name]) => !SET_BY_SERVER.includes(name))
  return { ...rest, metadata: { ...others, annotations: Object.fromEntries(reported) } }
}

/**
 * Lines such as `spec.replicas: 2 -> 3`, and for texts of several lines the lines that differ, with `-` and `+`. Empty
 * if the objects are equal.
 */
export function objectDiff(before: ManifestObject, after: ManifestObject): readonly string[] {
  const isSecret = after.kind === 'Secret'
  const lines = [...differences(contentOf(before), contentOf(after), '', isSecret)]
  if (lines.length <= MAX_LINES) return lines
  return [...lines.slice(0, MAX_LINES), `… and ${lines.length - MAX_LINES} more lines`]
}

function* differences(before: unknown, after: unknown, path: string, isSecret: boolean): Generator<string> {
  if (isSecret && /^(data|stringData)$/.test(path)) {
    yield* hiddenDifferences(before, after, path)
  } else if (Array.isArray(before) && Array.isArray(after)) {
    yield* listDifferences(before, after, path, isSecret)
  } else if (isMap(before) && isMap(after)) {
    for (const key of keysOf(before, after)) {
      yield* differences(before[key], after[key], below(path, key), isSecret)
    }
  } else if (!isSame(before, after)) {
    if (isText(before) && isText(after)) yield* textDifferences(before, after, path)
    else yield `${path}: ${shown(before)} -> ${shown(after)}`
  }
}

/** Shows that a value differs, but not the value. */
function* hiddenDifferences(before: unknown, after: unknown, path: string): Generator<string> {
  const [old, now] = [before, after].map((value) => (isMap(value) ? value : {})) as [AnyMap, AnyMap]
  const word = (value: unknown): string => (value === undefined ? NONE : '(hidden)')
  for (const key of keysOf(old, now)) {
    if (!isSame(old[key], now[key])) yield `${below(path, key)}: ${word(old[key])} -> ${word(now[key])}`
  }
}

function* listDifferences(
  before: readonly unknown[],
  after: readonly unknown[],
  path: string,
  isSecret: boolean,
): Generator<string> {
  if (isSame(before, after)) return
  const key = ITEM_KEYS.find((name) => [before, after].every((list) => distinguishes(list, name)))
  if (key !== undefined) {
    const byKey = (list: readonly unknown[]): AnyMap =>
      Object.fromEntries(list.map((item) => [idOf(item, key) ?? '', item]))
    const [old, now] = [byKey(before), byKey(after)]
    for (const id of keysOf(old, now)) yield* differences(old[id], now[id], `${path}[${id}]`, isSecret)
  } else if (before.length === after.length) {
    for (const [i, item] of before.entries()) yield* differences(item, after[i], `${path}[${i}]`, isSecret)
  } else {
    yield `${path}: ${shown(before)} -> ${shown(after)}`
  }
}

function* textDifferences(before: string, after: string, path: string): Generator<string> {
  yield `${path}:`
  for (const line of lineDiff(before.split('\n'), after.split('\n'))) yield `  ${line}`
}

/** The maximum number of compared pairs of lines. Larger texts are shown as a whole. */
const MAX_COMPARED = 1_000_000

/** The lines that differ, by the longest common subsequence. */
function lineDiff(before: readonly string[], after: readonly string[]): readonly string[] {
  const [rows, columns] = [before.length, after.length]
  if (rows * columns > MAX_COMPARED) return [...before.map((line) => `- ${line}`), ...after.map((line) => `+ ${line}`)]
  const width = columns + 1
  const common = new Uint32Array((rows + 1) * width)
  const at = (i: number, j: number): number => common[i * width + j] ?? 0
  for (let i = rows - 1; i >= 0; i -= 1) {
    for (let j = columns - 1; j >= 0; j -= 1) {
      common[i * width + j] = before[i] === after[j] ? at(i + 1, j + 1) + 1 : Math.max(at(i + 1, j), at(i, j + 1))
    }
  }
  const lines: string[] = []
  for (let i = 0, j = 0; i < rows || j < columns;) {
    if (i < rows && j < columns && before[i] === after[j]) [i, j] = [i + 1, j + 1]
    else if (i < rows && (j === columns || at(i + 1, j) >= at(i, j + 1))) lines.push(`- ${before[i++] ?? ''}`)
    else lines.push(`+ ${after[j++] ?? ''}`)
  }
  return lines
}

type AnyMap = Readonly<Record<string, unknown>>

const NONE = '(none)'

function isMap(value: unknown): value is AnyMap {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}

/** True for a text of several lines. A text of one line is shown like any other value. */
function isText(value: unknown): value is string {
  return typeof value === 'string' && value.includes('\n')
}

/** True if each item has the key, and no two items have the same value. */
function distinguishes(list: readonly unknown[], key: string): boolean {
  const ids = list.map((item) => idOf(item, key))
  return ids.every((id) => id !== undefined) && new Set(ids).size === ids.length
}

function idOf(item: unknown, key: string): string | undefined {
  const id = isMap(item) ? item[key] : undefined
  return typeof id === 'string' || typeof id === 'number' ? String(id) : undefined
}

function keysOf(before: AnyMap, after: AnyMap): readonly string[] {
  return [...new Set([...Object.keys(before), ...Object.keys(after)])].sort()
}

function below(path: string, key: string): string {
  const plain = /^[\w-]+$/.test(key)
  if (path === '') return plain ? key : `["${key}"]`
  return plain ? `${path}.${key}` : `${path}["${key}"]`
}

/** An empty value equals a missing one, as for the API server. */
function isSame(a: unknown, b: unknown): boolean {
  return canonical(a) === canonical(b)
}

function canonical(value: unknown): string {
  return JSON.stringify(pruned(value) ?? null)
}

function pruned(value: unknown): unknown {
  if (Array.isArray(value)) return value.length === 0 ? undefined : value.map((item) => pruned(item) ?? null)
  if (!isMap(value)) return value ?? undefined
  const entries = Object.keys(value)
    .sort()
    .flatMap((key) => {
      const inner = pruned(value[key])
      return inner === undefined ? [] : [[key, inner] as const]
    })
  return entries.length === 0 ? undefined : Object.fromEntries(entries)
}

function shown(value: unknown): string {
  if (value === undefined || value === null) return NONE
  const text = JSON.stringify(value)
  return text.length <= MAX_VALUE ? text : `${text.slice(0, MAX_VALUE)}…`
}

/** The change of one object. */
export interface PlannedChange {
  readonly ref: ObjectRef
  readonly how: 'create' | 'change' | 'remove'
  /** Empty for an object that is created or removed. */
  readonly lines: readonly string[]
  readonly why?: string
}

type Previewer = Pick<ClusterAdmin, 'get' | 'list' | 'preview'>

/** The objects that would be created or changed, in order. Unchanged objects are left out. */
export async function previewObjects(
  admin: Previewer,
  objects: readonly ManifestObject[],
  signal: AbortSignal,
): Promise<readonly PlannedChange[]> {
  const previews = await Promise.all(objects.map((object) => admin.preview(object, signal)))
  return previews.flatMap(({ before, after }, i) => {
    const object = objects[i]
    return object === undefined ? [] : plannedChange(refOf(object), before, after)
  })
}

/** The CRDs that applyCrds() would create or change. Problems are reported by applyCrds() only. */
export async function previewCrds(
  admin: Previewer,
  marks: Marks,
  signal: AbortSignal,
): Promise<readonly PlannedChange[]> {
  const decisions = await decideCrds(admin, marks, signal)
  const wanted = decisions.flatMap(({ crd, reason }) => (crd === undefined ? [] : [{ crd, why: reason }]))
  const changes = await previewObjects(
    admin,
    wanted.map(({ crd }) => crd as unknown as ManifestObject),
    signal,
  )
  return changes.map((change) => {
    const why = wanted.find(({ crd }) => crd.metadata.name === change.ref.name)?.why
    return why === undefined ? change : { ...change, why }
  })
}

export async function previewNodes(
  admin: Previewer,
  nodes: readonly NodeChange[],
  signal: AbortSignal,
): Promise<readonly PlannedChange[]> {
  const found = await Promise.all(
    nodes.map(async ({ node, labels, annotations }) => {
      const ref = { apiVersion: 'v1', kind: 'Node', name: node }
      const before = (await admin.get(ref, signal)) ?? { ...ref, metadata: { name: node } }
      const { metadata } = before
      const changed = {
        ...metadata,
        labels: present({ ...metadata.labels, ...labels }),
        annotations: present({ ...metadata.annotations, ...annotations }),
      }
      return plannedChange(ref, before, { ...before, metadata: changed })
    }),
  )
  return found.flat()
}

function present(values: Readonly<Record<string, string | null>>): Readonly<Record<string, string>> {
  return Object.fromEntries(Object.entries(values).flatMap(([key, value]) => (value === null ? [] : [[key, value]])))
}

export function previewSecretMarks(changes: readonly SecretMarkChange[]): readonly PlannedChange[] {
  return changes.flatMap((change) => plannedChange(change.ref, change.before, afterMarks(change)))
}

/** The change of one object. Empty if it does not change. */
export function plannedChange(
  ref: ObjectRef,
  before: ManifestObject | undefined,
  after: ManifestObject | undefined,
): readonly PlannedChange[] {
  if (before === undefined) return after === undefined ? [] : [{ ref, how: 'create', lines: [] }]
  if (after === undefined) return [{ ref, how: 'remove', lines: [] }]
  const lines = objectDiff(before, after)
  return lines.length === 0 ? [] : [{ ref, how: 'change', lines }]
}

const MARKS = { create: '+', change: '~', remove: '-' } as const

/** `~ Deployment sealane-system/sealane-agent`, followed by the lines that differ. */
export function describePlanned({ ref, how, lines, why }: PlannedChange): string {
  const title = `  ${MARKS[how]} ${titleOf(ref)}${why === undefined ? '' : `  (${why})`}\n`
  return title + lines.map((line) => `      ${line}\n`).join('')
}
