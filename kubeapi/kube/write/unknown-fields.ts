/**
 * Fields that the server's schema of a kind lacks. After an upgrade by image alone the CustomResourceDefinitions are
 * those of the earlier release, and server-side apply refuses the whole object because of one new field.
 */
import { KubeError } from '../kube-error.ts'

/** A step into an object (name of a field) or into a list (index, or the key fields of the element). */
type Step = string | number | Readonly<Record<string, unknown>>

/** Steps of a path in the messages of structured-merge-diff: `.spec.order[0].any`, `.spec.list[name="a"].b`. */
const STEP = /\.([^.[\]\s:]+)|\[(\d+)\]|\[([A-Za-z][^\]]*)\]/y
const PATHS = /(?:^|\s)((?:\.[^.[\]\s:]+|\[[^\]]*\])+): field not declared in schema/g
/** What identifies an object, and the whole of its spec, is never left out. */
const SHORTEST = 2
const MOST_PATHS = 64
const MOST_TRIES = 4

/**
 * Sends the object, and again without the fields that the server's schema lacks, if it names some. So objects of a newer
 * release reach an API server whose CustomResourceDefinitions are older. A long message is cut, so it may take several
 * times.
 */
export async function asServed<T extends object, R>(body: T, send: (served: T) => Promise<R>): Promise<R> {
  let served = body
  for (let tries = 1; ; tries += 1) {
    try {
      return await send(served)
    } catch (error) {
      const fields = error instanceof KubeError && tries < MOST_TRIES ? unknownFields(error.message) : []
      const less = fields.length === 0 ? undefined : withoutFields(served, fields)
      if (less === undefined) throw error
      served = less
    }
  }
}

/** The paths that the message of a refused apply names, at most MOST_PATHS. Empty if it is about something else. */
export function unknownFields(message: string): readonly string[] {
  return [...message.matchAll(PATHS)].slice(0, MOST_PATHS).map(([, path = '']) => path)
}

/** A copy of `body` without the fields at these paths. Undefined if one of them is not to be found or to be left out. */
export function withoutFields<T extends object>(body: T, paths: readonly string[]): T | undefined {
  const copy = structuredClone(body)
  for (const path of paths) {
    const steps = stepsOf(path)
    const last = steps?.at(-1)
    if (steps === undefined || steps.length < SHORTEST || typeof last !== 'string') return undefined
    const holder = steps.slice(0, -1).reduce<unknown>((value, step) => into(value, step), copy)
    if (!isFields(holder) || !Object.hasOwn(holder, last)) return undefined
    // A name from a message is deleted from a copy of our own body, and never written.
    Reflect.deleteProperty(holder, last)
  }
  return copy
}

function stepsOf(path: string): readonly Step[] | undefined {
  const steps: Step[] = []
  STEP.lastIndex = 0
  while (STEP.lastIndex < path.length) {
    const [, field, index, keys] = STEP.exec(path) ?? []
    const step = field ?? (index === undefined ? keysOf(keys) : Number(index))
    if (step === undefined) return undefined
    steps.push(step)
  }
  return steps
}

/** `name="a",port=80` */
function keysOf(text: string | undefined): Readonly<Record<string, unknown>> | undefined {
  const pairs = [...(text ?? '').matchAll(/([A-Za-z]\w*)=("(?:[^"\\]|\\.)*"|[\w.-]+)(?:,|$)/g)]
  if (pairs.length === 0) return undefined
  try {
    return Object.fromEntries(pairs.map(([, key = '', value = '']) => [key, JSON.parse(value) as unknown]))
  } catch {
    return undefined
  }
}

function into(value: unknown, step: Step): unknown {
  if (typeof step === 'string') return isFields(value) && Object.hasOwn(value, step) ? value[step] : undefined
  if (!Array.isArray(value)) return undefined
  if (typeof step === 'number') return value[step]
  return value.find((one) => isFields(one) && Object.entries(step).every(([key, wanted]) => one[key] === wanted))
}

function isFields(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}
