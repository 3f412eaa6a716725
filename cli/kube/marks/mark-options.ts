/** Flags of labels, annotations and resources that a cluster's own rules ask for. */
import type { Command } from 'commander'
import { type MarkKind, keyProblem, valueProblem } from '../../../install/marks/marks.ts'
import { marksProblem } from '../../../install/marks/marks-env.ts'
import type { PartName } from '../../../install/names.ts'
import { DEFAULT_VALUES, type InstallValues, type ResourceValues } from '../../../install/values.ts'
import { isQualifiedName } from '../../../model/label-syntax.ts'
import { UserError } from '../../../runtime/user-error.ts'
import { parseQuantity } from '../../broker/quantity.ts'
import { collect, quoted } from '../../context.ts'

/** Key and value; null takes it away. */
export type MarkChange = readonly [key: string, value: string | null]

/** Part and resources; null is the default again. */
export type ResourceChange = readonly [part: PartName, resources: ResourceValues | null]

/** Absent: what is installed already keeps its own; else the default. */
export interface MarkOptions {
  readonly objectLabel?: readonly MarkChange[]
  readonly objectAnnotation?: readonly MarkChange[]
  readonly podLabel?: readonly MarkChange[]
  readonly podAnnotation?: readonly MarkChange[]
  readonly resources?: readonly ResourceChange[]
}

const FLAGS = {
  objectLabel: ['--object-label', 'labels', 'a label of every object, pods included, and of what the parts make'],
  objectAnnotation: [
    '--object-annotation',
    'annotations',
    'an annotation of every object, pods included, and of what the parts make',
  ],
  podLabel: ['--pod-label', 'labels', 'a label of pods alone'],
  podAnnotation: ['--pod-annotation', 'annotations', 'an annotation of pods alone'],
} as const satisfies Readonly<Record<string, readonly [string, MarkKind, string]>>

/** `parts`: those that the command installs. `only` comes before each description. */
export function addMarkOptions(command: Command, parts: readonly PartName[], only = ''): Command {
  for (const [flag, kind, what] of Object.values(FLAGS)) {
    const text = `${only}${what} (default: as installed); key- takes it away; may be given several times`
    command.option(`${flag} <key=value>`, text, collect(markParser(flag, kind)))
  }
  return command.option(
    '--resources <part=requests/limits>',
    `${only}of ${parts.join(', ')}, such as ${parts[0] ?? ''}=cpu:50m,memory:200Mi/cpu:1,memory:512Mi (default: as installed); part- is the default again`,
    collect((text) => parseResources(text, parts)),
  )
}

/**
 * The values with what the options say; pods of a part that is not named keep theirs. Throws UserError where the marks
 * of objects are too long together.
 */
export function withMarks(values: InstallValues, options: MarkOptions): InstallValues {
  const { objects, pods } = values
  const marked = {
    ...values,
    objects: {
      labels: changed(objects.labels, options.objectLabel),
      annotations: changed(objects.annotations, options.objectAnnotation),
    },
    pods: {
      labels: changed(pods.labels, options.podLabel),
      annotations: changed(pods.annotations, options.podAnnotation),
    },
  }
  const problem = marksProblem(marked.objects)
  if (problem !== undefined) throw new UserError(`--object-label, --object-annotation: ${problem}`)
  return (options.resources ?? []).reduce<InstallValues>(
    (before, [part, resources]) => ({
      ...before,
      [part]: { ...before[part], resources: resources ?? DEFAULT_VALUES[part].resources },
    }),
    marked,
  )
}

type TextMap = Readonly<Record<string, string>>

function changed(before: TextMap, changes: readonly MarkChange[] = []): TextMap {
  const all = Object.entries({ ...before, ...Object.fromEntries(changes) })
  return Object.fromEntries(all.filter((pair): pair is [string, string] => pair[1] !== null))
}

/** Resources of this part were asked for, or its default. */
export function asksResources({ resources = [] }: MarkOptions, part: PartName): boolean {
  return resources.some(([name]) => name === part)
}

/** The options as flags and words again. */
export function markFlags(options: MarkOptions): readonly (readonly [flag: string, word: string])[] {
  const marks = (['objectLabel', 'objectAnnotation', 'podLabel', 'podAnnotation'] as const).flatMap((name) =>
    (options[name] ?? []).map(
      ([key, value]) => [FLAGS[name][0], value === null ? `${key}-` : `${key}=${value}`] as const,
    ),
  )
  const resources = (options.resources ?? []).map(
    ([part, of]) => ['--resources', of === null ? `${part}-` : `${part}=${resourcesText(of)}`] as const,
  )
  return [...marks, ...resources]
}

function resourcesText({ requests = {}, limits = {} }: ResourceValues): string {
  const list = (of: TextMap): string =>
    Object.entries(of)
      .map((pair) => pair.join(':'))
      .join(',')
  return Object.keys(limits).length === 0 ? list(requests) : `${list(requests)}/${list(limits)}`
}

const markParser =
  (flag: string, kind: MarkKind) =>
  (text: string): MarkChange => {
    const wrong = (expected: string): UserError => new UserError(`${flag} ${quoted(text)}: ${expected}`)
    const at = text.indexOf('=')
    if (at < 0 && !text.endsWith('-')) throw wrong('expected key=value, or key- to take one away')
    const [key, value] = at < 0 ? [text.slice(0, -1), null] : [text.slice(0, at), text.slice(at + 1)]
    const problem = keyProblem(key) ?? (value === null ? undefined : valueProblem(kind, value))
    if (problem !== undefined) throw wrong(problem)
    return [key, value]
  }

function parseResources(text: string, parts: readonly PartName[]): ResourceChange {
  const wrong = (expected: string): UserError => new UserError(`--resources ${quoted(text)}: expected ${expected}`)
  const at = text.indexOf('=')
  const isDefault = at < 0 && text.endsWith('-')
  const name = isDefault ? text.slice(0, -1) : text.slice(0, Math.max(0, at))
  const part = parts.find((one) => one === name)
  if (part === undefined) throw wrong(`part=requests/limits, or part-, with a part of ${parts.join(', ')}`)
  if (isDefault) return [part, null]
  const [requests = '', limits, ...more] = text.slice(at + 1).split('/')
  if (more.length > 0) throw wrong('requests, and perhaps limits after one slash')
  const read = (list: string): TextMap => quantities(list, wrong)
  const said = { requests: read(requests), limits: read(limits ?? '') }
  const isEmpty = Object.keys(said.requests).length + Object.keys(said.limits).length === 0
  if (isEmpty) throw wrong('a quantity at least, such as cpu:50m')
  for (const [resource, limit] of Object.entries(said.limits)) {
    const request = said.requests[resource]
    if (request !== undefined && parseQuantity(request) > parseQuantity(limit)) {
      throw wrong(`a request of ${resource} of at most its limit, ${limit}`)
    }
  }
  const given = Object.entries(said).filter(([, map]) => Object.keys(map).length > 0)
  return [part, Object.fromEntries(given)]
}

function quantities(list: string, wrong: (expected: string) => UserError): TextMap {
  const entries = list.split(',').filter((one) => one !== '')
  const pairs = entries.map((entry): [string, string] => {
    const at = entry.indexOf(':')
    const [resource, quantity] = [entry.slice(0, Math.max(0, at)), entry.slice(at + 1)]
    if (!isQualifiedName(resource) || !(parseQuantity(quantity) >= 0)) {
      throw wrong(`resource:quantity, such as cpu:50m or memory:128Mi, for ${quoted(entry)}`)
    }
    return [resource, quantity]
  })
  if (new Set(pairs.map(([resource]) => resource)).size < pairs.length) throw wrong('each resource once')
  return Object.fromEntries(pairs)
}
