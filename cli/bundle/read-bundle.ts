/**
 * Reads a bundle of `sealane gather` in place of a cluster. The file may come from anyone, so all sizes are limited.
 */
import { open } from 'node:fs/promises'
import { promisify } from 'node:util'
import { gunzip } from 'node:zlib'
import {
  ACCESS_POLICY_FIELDS,
  CLUSTER_ACCESS_POLICY_FIELDS,
  CLUSTER_FIELDS,
  CLUSTER_TRAFFIC_POLICY_FIELDS,
  ENDPOINT_SLICE_FIELDS,
  GATEWAY_FIELDS,
  MEMBERSHIP_FIELDS,
  METADATA,
  NAMESPACE_FIELDS,
  NODE_FIELDS,
  SERVICE_EXPORT_FIELDS,
  SERVICE_FIELDS,
  SERVICE_IMPORT_FIELDS,
  TRAFFIC_POLICY_FIELDS,
  loose,
} from '../../model/kinds/kinds.ts'
import { type ObjectKinds, printable } from '../../model/model.ts'
import { UserError, checkReadable, messageOf } from '../../runtime/runtime.ts'
import { FACTS_FILE, MAX_FACTS, POLICY_KINDS, ROOT, exportedFile, objectsFile } from './items.ts'
import { LEFT_OUT } from './kind-fields.ts'
import { unpackTar } from './tar.ts'

const MAX_FILE = 64 << 20
const MAX_UNPACKED = 128 << 20
const MAX_FILES = 5000
/** The maximum number of facts: one for each list of objects, part and question. */
const MAX_FACT_COUNT = 10_000
const MAX_OBJECTS = 200_000

/**
 * The facts in the bundle, for diagnoseMember(), which validates each of them. Throws UserError, which says what is
 * wrong with the file.
 */
export async function readBundle(file: string): Promise<unknown> {
  return (await readWholeBundle(file)).facts
}

const metadata = loose(METADATA, 'anyone')
/** The spec of a policy is validated where its rules are read. */
const SHAPES = {
  Membership: loose(MEMBERSHIP_FIELDS, 'anyone').extend({ metadata }),
  Cluster: loose(CLUSTER_FIELDS, 'anyone').extend({ metadata }),
  Gateway: loose(GATEWAY_FIELDS, 'anyone').extend({ metadata }),
  Node: loose(NODE_FIELDS, 'kubernetes').extend({ metadata }),
  Namespace: loose(NAMESPACE_FIELDS, 'kubernetes').extend({ metadata }),
  Service: loose(SERVICE_FIELDS, 'kubernetes').extend({ metadata }),
  EndpointSlice: loose(ENDPOINT_SLICE_FIELDS, 'kubernetes').extend({ metadata }),
  ServiceExport: loose(SERVICE_EXPORT_FIELDS, 'anyone').extend({ metadata }),
  ServiceImport: loose(SERVICE_IMPORT_FIELDS, 'anyone').required({ spec: true }).extend({ metadata }),
  AccessPolicy: loose(ACCESS_POLICY_FIELDS, 'anyone').omit({ spec: true }).extend({ metadata }),
  ClusterAccessPolicy: loose(CLUSTER_ACCESS_POLICY_FIELDS, 'anyone').omit({ spec: true }).extend({ metadata }),
  TrafficPolicy: loose(TRAFFIC_POLICY_FIELDS, 'anyone').omit({ spec: true }).extend({ metadata }),
  ClusterTrafficPolicy: loose(CLUSTER_TRAFFIC_POLICY_FIELDS, 'anyone').omit({ spec: true }).extend({ metadata }),
} as const satisfies Partial<Record<keyof ObjectKinds, object>>
type BundledKind = keyof typeof SHAPES

/** The objects in a bundle that decide about calls. A kind that could not be listed is absent. */
export type BundleObjects = { readonly [K in BundledKind]?: readonly ObjectKinds[K][] }

export interface WholeBundle {
  /** As of readBundle(). */
  readonly facts: unknown
  /** Objects whose fields cannot be read are left out. */
  readonly objects: BundleObjects
}

/** Calls of this cluster end at imported slices, and calls from others at the slices of exported services too. */
export type NeededSlices = 'all' | 'imported'

/** Takes and throws what readBundle() does. Slices are absent unless all that are needed were gathered. */
export async function readWholeBundle(file: string, slices: NeededSlices = 'all'): Promise<WholeBundle> {
  try {
    const files = await unpacked(await contentOf(file))
    return { facts: factsOf(files), objects: objectsOf(files, slices) }
  } catch (error) {
    throw new UserError(`--bundle ${file}: ${printable(messageOf(error)).slice(0, 300)}`, {
      hint: 'expected a file written by "sealane gather"',
      cause: error,
    })
  }
}

async function contentOf(file: string): Promise<Buffer> {
  checkReadable(file)
  const handle = await open(file, 'r')
  try {
    const { size } = await regular(handle)
    const buffer = Buffer.alloc(size)
    let filled = 0
    while (filled < size) {
      const { bytesRead } = await handle.read(buffer, filled, size - filled, filled)
      if (bytesRead === 0) break
      filled += bytesRead
    }
    return buffer.subarray(0, filled)
  } finally {
    await handle.close()
  }
}

async function regular(handle: Awaited<ReturnType<typeof open>>): Promise<{ readonly size: number }> {
  const found = await handle.stat()
  if (!found.isFile()) throw new Error('it is not a regular file')
  if (found.size > MAX_FILE) throw new Error(`it is larger than ${MAX_FILE >> 20} MiB`)
  return found
}

async function unpacked(content: Buffer): Promise<ReadonlyMap<string, Buffer>> {
  let archive: Buffer
  try {
    archive = await promisify(gunzip)(content, { maxOutputLength: MAX_UNPACKED })
  } catch (error) {
    const isTooLarge = (error as NodeJS.ErrnoException).code === 'ERR_BUFFER_TOO_LARGE'
    const why = isTooLarge
      ? `unpacked it is larger than ${MAX_UNPACKED >> 20} MiB`
      : 'it is not compressed with gzip, or it is damaged'
    throw new Error(why, { cause: error })
  }
  return unpackTar(archive, MAX_FILES)
}

/**
 * The objects of these kinds in a bundle, as a command reads them from a cluster. Throws UserError for a file that
 * readBundle() refuses, and for one that lacks a kind: without all policies, more would seem to be allowed.
 */
export async function bundledObjects<const K extends BundledKind>(
  file: string,
  kinds: readonly K[],
  slices: NeededSlices = 'all',
): Promise<{ readonly [One in K]: readonly ObjectKinds[One][] }> {
  const { objects } = await readWholeBundle(file, slices)
  const missing = kinds.filter((kind) => objects[kind] === undefined)
  if (missing.length > 0)
    throw new UserError(`--bundle ${file}: it has no ${missing.join(', ')}`, {
      hint: 'expected a file written by "sealane gather" of this release, with the right to list these kinds',
    })
  return objects as { readonly [One in K]: readonly ObjectKinds[One][] }
}

/** Earlier releases did not gather the slices of exported services. */
function objectsOf(files: ReadonlyMap<string, Buffer>, slices: NeededSlices): BundleObjects {
  const found = (Object.keys(SHAPES) as readonly BundledKind[]).flatMap((kind) => {
    const isCalled = kind === 'Service' || kind === 'EndpointSlice'
    const others = slices === 'imported' ? [] : undefined
    const exported = isCalled ? (itemsIn(files.get(ROOT + exportedFile(kind)), kind) ?? others) : []
    const listed = itemsIn(files.get(ROOT + objectsFile(kind)), kind)
    return listed === undefined || exported === undefined ? [] : [[kind, distinct([...listed, ...exported])] as const]
  })
  const hidden = hiddenKeys(found.flatMap(([kind, items]) => (kind === 'Cluster' || kind === 'Namespace' ? items : [])))
  return Object.fromEntries(
    found.filter(([kind, items]) => !POLICY_KINDS.has(kind) || items.every((item) => isWhole(item, hidden))),
  )
}

interface Item {
  readonly metadata: { readonly namespace?: string; readonly name: string; readonly labels?: object }
  readonly spec?: unknown
  readonly status?: unknown
}

/** A value that equals other redacted values. Those with a number equal none but their own. */
const REDACTED = /<redacted>/
/** Choices that an object without fields states, which earlier releases left out of a bundle. */
const CHOICES: ReadonlySet<string> = new Set(['local', 'any', 'passiveHealth'])

/** The labels and properties of which one value at least was redacted without a number. */
function hiddenKeys(items: readonly Item[]): ReadonlySet<string> {
  const found = new Set<string>()
  for (const { metadata, spec } of items) {
    for (const { key, value } of [...plainValues(metadata.labels), ...plainValues(spec)])
      if (REDACTED.test(String(value))) found.add(key)
  }
  return found
}

/** Whether the bundle has all that the policy compares. */
function isWhole({ spec, status }: Item, hidden: ReadonlySet<string>): boolean {
  const { inForce } = (status ?? {}) as { readonly inForce?: unknown }
  return [...plainValues(spec), ...plainValues(inForce)].every(({ key, value }) => {
    const named = key === 'key' ? String(value) : key
    const isChoice = CHOICES.has(key) && value === LEFT_OUT
    return !isChoice && !REDACTED.test(`${key} ${String(value)}`) && !hidden.has(named)
  })
}

interface PlainValue {
  /** The nearest field above the value. */
  readonly key: string
  readonly value: unknown
}

function plainValues(value: unknown, key = ''): readonly PlainValue[] {
  if (typeof value !== 'object' || value === null) return [{ key, value }]
  if (Array.isArray(value)) return value.flatMap((one: unknown) => plainValues(one, key))
  return Object.entries(value).flatMap(([name, one]) => plainValues(one, name))
}

/** Undefined without such a file, or if it has no list. */
function itemsIn(content: Buffer | undefined, kind: BundledKind): readonly Item[] | undefined {
  if (content === undefined) return undefined
  let value: unknown
  try {
    value = JSON.parse(content.toString())
  } catch {
    return undefined
  }
  const { items } = (typeof value === 'object' && value !== null ? value : {}) as { readonly items?: unknown }
  if (!Array.isArray(items)) return undefined
  const read = items.slice(0, MAX_OBJECTS).map((item: unknown) => itemOf(item, kind))
  const readable = read.filter((item) => item !== undefined)
  return POLICY_KINDS.has(kind) && readable.length < items.length ? undefined : readable
}

/** Undefined for an item that cannot be read. A policy counts by its spec, also where its status cannot be read. */
function itemOf(item: unknown, kind: BundledKind): Item | undefined {
  const read = SHAPES[kind].safeParse(item)
  if (read.success) return { ...(item as object), ...read.data, kind } as unknown as Item
  if (!POLICY_KINDS.has(kind) || typeof item !== 'object' || item === null || !('status' in item)) return undefined
  const { status: _unread, ...rest } = item
  return itemOf(rest, kind)
}

/** A file of exported services may have objects that the other file has too. */
function distinct(items: readonly Item[]): readonly Item[] {
  return [...new Map(items.map((item) => [`${item.metadata.namespace ?? ''}/${item.metadata.name}`, item])).values()]
}

function factsOf(files: ReadonlyMap<string, Buffer>): unknown {
  const content = files.get(ROOT + FACTS_FILE)
  if (content === undefined) throw new Error(`there is no ${FACTS_FILE} in it`)
  if (content.length > MAX_FACTS) throw new Error(`${FACTS_FILE} is larger than ${MAX_FACTS >> 20} MiB`)
  let value: unknown
  try {
    value = JSON.parse(content.toString())
  } catch (error) {
    throw new Error(`${FACTS_FILE} is not JSON`, { cause: error })
  }
  checkFacts(value)
  return value
}

/** Checks only the number of facts and objects. Their content is validated where facts are read. */
function checkFacts(value: unknown): void {
  const { format, facts } = (typeof value === 'object' && value !== null ? value : {}) as Readonly<
    Record<string, unknown>
  >
  if (format !== 1) throw new Error(`${FACTS_FILE}: format: expected 1: another release wrote it`)
  if (!Array.isArray(facts)) throw new Error(`${FACTS_FILE}: facts: expected a list`)
  if (facts.length > MAX_FACT_COUNT) throw new Error(`${FACTS_FILE}: more than ${MAX_FACT_COUNT} facts`)
  let objects = 0
  for (const fact of facts as readonly unknown[]) {
    const items = typeof fact === 'object' && fact !== null ? (fact as { items?: unknown }).items : undefined
    if (Array.isArray(items)) objects += items.length
  }
  if (objects > MAX_OBJECTS) throw new Error(`${FACTS_FILE}: more than ${MAX_OBJECTS} objects`)
}
