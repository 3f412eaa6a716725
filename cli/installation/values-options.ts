/** Options for the values of an installation: image, marks, resources and status pages. */
import type { Command } from 'commander'
import {
  DEFAULT_VALUES,
  type InstallValues,
  type MarkKind,
  type PartName,
  type ResourceValues,
  STATUS_PLACES,
  type StatusPlace,
  formatImageName,
  injectionProblem,
  keyProblem,
  marksProblem,
  parseImageName,
  valueProblem,
} from '../../install/values/values.ts'
import { isDnsSubdomain, isQualifiedName } from '../../model/model.ts'
import { UserError } from '../../runtime/runtime.ts'
import { choiceOption, collect, parsed, quoted } from '../context/context.ts'
import { parseQuantity } from './quantity.ts'

// Options for labels, annotations and resources that the rules of a cluster require.

/** Key and value. Null removes the mark. */
type MarkChange = readonly [key: string, value: string | null]

/** Part and resources. Null restores the default. */
type ResourceChange = readonly [part: PartName, resources: ResourceValues | null]

/** If an option is undefined, an installation keeps its value, and a new one gets the default. */
export interface MarkOptions {
  readonly objectLabel?: readonly MarkChange[]
  readonly objectAnnotation?: readonly MarkChange[]
  readonly podLabel?: readonly MarkChange[]
  readonly podAnnotation?: readonly MarkChange[]
  readonly resources?: readonly ResourceChange[]
}

const FLAGS = {
  objectLabel: [
    '--object-label',
    'labels',
    'a label of every object, including pods and the objects that the parts create',
  ],
  objectAnnotation: [
    '--object-annotation',
    'annotations',
    'an annotation of every object, including pods and the objects that the parts create',
  ],
  podLabel: ['--pod-label', 'labels', 'a label of pods only'],
  podAnnotation: ['--pod-annotation', 'annotations', 'an annotation of pods only'],
} as const satisfies Readonly<Record<string, readonly [string, MarkKind, string]>>

/** `parts` are the parts that the command installs. `only` precedes each description. */
export function addMarkOptions(command: Command, parts: readonly PartName[], only = ''): Command {
  for (const [flag, kind, what] of Object.values(FLAGS)) {
    const text = `${only}${what} (default: as installed); key- removes it; may be given several times`
    command.option(`${flag} <key=value>`, text, collect(markParser(flag, kind)))
  }
  return command.option(
    '--resources <part=requests/limits>',
    `${only}resources of ${parts.join(', ')}, such as ${parts[0] ?? ''}=cpu:50m,memory:200Mi/cpu:1,memory:512Mi (default: as installed); part- restores the default`,
    collect((text) => parseResources(text, parts)),
  )
}

/**
 * Applies the options to the values. A part that no option names keeps its resources. Throws UserError if the marks of
 * objects are too long in total.
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

/** True if the options set the resources of this part or restore its default. */
export function asksResources({ resources = [] }: MarkOptions, part: PartName): boolean {
  return resources.some(([name]) => name === part)
}

/** Formats the options as flags and words again. */
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
    if (at < 0 && !text.endsWith('-')) throw wrong('expected key=value, or key- to remove one')
    const [key, value] = at < 0 ? [text.slice(0, -1), null] : [text.slice(0, at), text.slice(at + 1)]
    const problem =
      keyProblem(key) ?? (value === null ? undefined : (injectionProblem(key, value) ?? valueProblem(kind, value)))
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
  if (more.length > 0) throw wrong('requests, optionally followed by a slash and limits')
  const read = (list: string): TextMap => quantities(list, wrong)
  const said = { requests: read(requests), limits: read(limits ?? '') }
  const isEmpty = Object.keys(said.requests).length + Object.keys(said.limits).length === 0
  if (isEmpty) throw wrong('at least one quantity, such as cpu:50m')
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

/** If an option is undefined, an installation keeps its value, and a new one gets the default. */
export interface ImageOptions {
  readonly image?: string
  readonly imagePullPolicy?: string
  readonly imagePullSecret?: readonly string[]
}

const PULL_POLICIES = ['IfNotPresent', 'Always', 'Never'] as const

export function addImageOptions(command: Command): Command {
  const standard = formatImageName(DEFAULT_VALUES.image)
  return command
    .option('--image <image>', `image of all parts (default: as installed, else "${standard}")`, parsed(parseImage))
    .addOption(
      choiceOption(
        '--image-pull-policy <policy>',
        `when nodes pull the image (default: as installed, else "${DEFAULT_VALUES.image.pullPolicy}")`,
        PULL_POLICIES,
      ),
    )
    .option(
      '--image-pull-secret <name>',
      'a Secret with credentials for the registry, in the namespace of the parts; may be given several times',
      collect(parseSecretName),
    )
}

export function withImage(values: InstallValues, options: ImageOptions): InstallValues {
  const { image, imagePullPolicy = values.image.pullPolicy, imagePullSecret } = options
  const named = imageValues(values, image ?? formatImageName(values.image), imagePullPolicy)
  return imagePullSecret === undefined
    ? named
    : { ...named, imagePullSecrets: imagePullSecret.map((name) => ({ name })) }
}

export function imageValues(values: InstallValues, image: string, pullPolicy: string): InstallValues {
  return { ...values, image: { ...parseImageName(image), pullPolicy } }
}

function parseSecretName(text: string): string {
  if (!isDnsSubdomain(text)) throw new UserError(`--image-pull-secret ${quoted(text)}: expected the name of a Secret`)
  return text
}

/** If the option is undefined, the value stays as it is. */
export interface StatusOptions {
  readonly statusListen?: StatusPlace
  /** Empty: no proxy. */
  readonly proxySecret?: string
}

/** The values that the user asked for. All other values stay as they are installed. */
export type AskedOptions = ImageOptions &
  StatusOptions &
  MarkOptions & {
    /** False: an installed console goes. */
    readonly console?: boolean
  }

export function addStatusOptions(command: Command): Command {
  const what =
    "with --context: where metrics can be scraped; node: at each node's InternalIP, and at the pods of agent and dns"
  return command
    .addOption(choiceOption('--status-listen <place>', what, STATUS_PLACES))
    .option(
      '--proxy-secret <name>',
      'with --context: a Secret in the namespace of Sealane with HTTPS_PROXY, and optionally NO_PROXY, for connections to the broker and to relays on port 443 (default: as installed); "" removes it',
      parsed(parseProxySecret),
    )
}

function parseProxySecret(text: string): string {
  if (text === '' || isDnsSubdomain(text)) return text
  throw new UserError(`--proxy-secret ${quoted(text)}: expected the name of a Secret`)
}

export function withStatus(given: InstallValues, { statusListen, proxySecret }: StatusOptions): InstallValues {
  const values = proxySecret === undefined ? given : { ...given, agent: { ...given.agent, proxySecret } }
  if (statusListen === undefined) return values
  const { gateway, routeagent } = values
  const metrics = { ...values.metrics, open: statusListen === 'node' }
  return { ...values, metrics, gateway: { ...gateway, statusListen }, routeagent: { ...routeagent, statusListen } }
}

/** Requires a tag or digest, so that it is known what is installed. */
export function parseImage(text: string): string {
  if (!/^[a-z0-9][a-z0-9._/:-]*(:[\w][\w.-]{0,127}|@sha256:[0-9a-f]{64})$/.test(text)) {
    throw new UserError(`--image ${quoted(text)}: expected a name with a tag, such as registry.example.org/sealane:1.0`)
  }
  return text
}
