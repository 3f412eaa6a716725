/**
 * What the nodes of a plain site and its hub say to each other: JSON over HTTP/2 over TLS 1.3, both sides with a
 * certificate.
 *
 *   POST /v1/ask            a HubRequest; the answer is a HubAnswer, or a HubRefusal with a status of 400 or more
 *   POST /v1/enrol          an EnrolRequest; the only request without a certificate
 *   GET  /v1/watch/<Kind>   lines of WatchLine without end
 *   GET  /v1/acting         a HubAnswer with the term of a hub that acts; a refusal by one that follows another
 *   POST /v1/hub            a PeerRequest of another hub of the site, with the certificate of a hub; a PeerAnswer
 *
 * A watch sends each object once, then a line with `rev`: from then on the reader has everything up to that revision.
 * After each change there are the changed objects, then such a line again.
 */
import { z } from 'zod'
import { LEASE_FIELDS, METADATA, integer, partOf, text } from '../../model/kinds/kinds.ts'
import { type Kind, type KubeObject, type ObjectKinds, isObjectName } from '../../model/model.ts'
import { SPEC_SHAPES, STATUS_SHAPES, complaintOf } from '../../model/schemas/schemas.ts'
import { ClusterApiError, type ClusterApiErrorCode, type StoredLease } from '../kubeapi.ts'
import type { StoredTerm, Version } from './plan-term.ts'

/** Octets of one request. What a node writes takes a few thousand. */
export const MAX_REQUEST = 1_048_576
/** Octets of one line of a watch, of one answer, and of one request of a hub to another. */
export const MAX_LINE = 8_388_608
/** Octets of one file that hubs send each other. */
export const MAX_FILE = 4_194_304
const MAX_FILES = 200_000
/** Files of one answer of a hub to another. */
export const MAX_OFFERS = 100

const KINDS: Readonly<Record<Kind, true>> = {
  Namespace: true,
  Node: true,
  Pod: true,
  Service: true,
  EndpointSlice: true,
  ServiceExport: true,
  ServiceImport: true,
  Cluster: true,
  Endpoint: true,
  Gateway: true,
  RouteAgent: true,
  Membership: true,
  ClusterProperty: true,
  Lease: true,
  AccessPolicy: true,
  ClusterAccessPolicy: true,
  TrafficPolicy: true,
  ClusterTrafficPolicy: true,
  Topology: true,
} satisfies Record<keyof ObjectKinds, true>

export function isKind(name: string): name is Kind {
  return Object.hasOwn(KINDS, name)
}

export type HubRequest =
  | { readonly verb: 'apply' | 'applyStatus'; readonly object: KubeObject }
  | { readonly verb: 'remove'; readonly kind: Kind; readonly name: string; readonly namespace?: string }
  | { readonly verb: 'read'; readonly kind: Kind; readonly name: string; readonly namespace?: string }
  | { readonly verb: 'readLease'; readonly name: string }
  | { readonly verb: 'writeLease'; readonly lease: StoredLease }
  /** The text of the site file. */
  | { readonly verb: 'readSite' }
  /** A new certificate for the key that the caller has; `csr` is PKCS #10 in base64. */
  | { readonly verb: 'renew'; readonly csr: string }

export interface HubAnswer {
  /** The object, Lease or text that was asked for; a certificate in PEM. Absent if there is none. */
  readonly value?: unknown
  /** After a write: the revision of the kind that shows it, and the hub process that counts. */
  readonly seen?: Seen
}

export interface Seen {
  readonly epoch: string
  readonly rev: number
}

export interface HubRefusal {
  readonly code: ClusterApiErrorCode
  readonly message: string
}

export interface EnrolRequest {
  /** `<id>.<secret>` of an invitation. */
  readonly token: string
  readonly node: string
  /** PKCS #10 in base64. */
  readonly csr: string
}

/** A path below the files of a site, with `/`; see compose/hub/hub-tree.ts. */
export type TreePath = string

/**
 * What a hub removes that the acting one does not name. `marked`: of what each hub gets marks of, only what has one; the rest
 * was lost by the disk of the acting hub. `all`: everything, since the receiver is not yet one of the hubs that vote. Hubs of
 * earlier releases give none, and mark nothing.
 */
export type Removals = 'marked' | 'all'

export type PeerRequest =
  | {
      readonly verb: 'vote'
      readonly term: number
      /** The `address:port` of the sender. */
      readonly hub: string
      readonly version: Version
      readonly isTrial: boolean
    }
  | {
      readonly verb: 'follow'
      readonly term: number
      readonly hub: string
      /** Files to store; without content: to remove. Base64. */
      readonly files?: readonly (readonly [TreePath, string | null])[] | undefined
      /** The receiver must have this version, or nothing of the message counts. */
      readonly base?: Version | undefined
      /** All files there are, with their SHA-256 in hexadecimal. The answer names those that the receiver lacks. */
      readonly whole?: readonly (readonly [TreePath, string])[] | undefined
      /** With `whole`: files that the sender has but cannot use. The receiver keeps its own. */
      readonly damaged?: readonly TreePath[] | undefined
      /** With `whole`: the answer offers what the sender names as damaged; `lost`: also what it does not name at all. */
      readonly wants?: 'damaged' | 'lost' | undefined
      readonly removals?: Removals | undefined
      /** What the receiver has after this message. With `whole`, it removes every other file, unless it lacks one. */
      readonly version?: Version | undefined
    }

export interface PeerAnswer {
  readonly term: number
  readonly version: Version
  readonly granted?: boolean | undefined
  readonly missing?: readonly TreePath[] | undefined
  /** Files that the sender of the request has lost, or of which it sent older ones, in base64. Hubs of earlier releases give none. */
  readonly offers?: readonly (readonly [TreePath, string])[] | undefined
}

export type WatchLine =
  | { readonly set: KubeObject }
  | { readonly removed: { readonly name: string; readonly namespace?: string | undefined } }
  | Seen

/** HTTP statuses of refusals (RFC 9110 section 15). */
export const REFUSAL_STATUS: Readonly<Record<ClusterApiErrorCode, number>> = {
  Invalid: 400,
  Unauthorized: 401,
  Forbidden: 403,
  NotFound: 404,
  Conflict: 409,
  Unavailable: 503,
}

const kindName = z.custom<Kind>((value) => typeof value === 'string' && isKind(value), { error: 'a kind' })
const objectName = z.string({ error: 'a name' }).max(300, { error: 'a name of at most 300 characters' })
const base64 = z.string({ error: 'base64' }).max(8192, { error: 'at most 8192 characters' })

const object = z.looseObject(
  {
    apiVersion: text(),
    kind: kindName,
    metadata: z.looseObject(
      {
        name: objectName,
        namespace: objectName.optional(),
        ...partOf(METADATA, { labels: true, annotations: true, ownerReferences: true }).shape,
      },
      { error: 'a map' },
    ),
  },
  { error: 'an object' },
)

const lease = z.looseObject(
  {
    apiVersion: z.literal('coordination.k8s.io/v1', { error: 'coordination.k8s.io/v1' }),
    kind: z.literal('Lease', { error: 'Lease' }),
    metadata: z.looseObject(
      { name: objectName, ...partOf(METADATA, { labels: true, annotations: true, ownerReferences: true }).shape },
      { error: 'a map' },
    ),
    spec: z
      .looseObject(
        {
          ...LEASE_FIELDS.shape.spec.unwrap().shape,
          holderIdentity: z.string({ error: 'text' }).max(320, { error: 'at most 320 characters' }).optional(),
          leaseDurationSeconds: integer(1, 3600).optional(),
          leaseTransitions: integer(0, Number.MAX_SAFE_INTEGER).optional(),
        },
        { error: 'a map' },
      )
      .optional(),
  },
  { error: 'a Lease' },
)

const place = { kind: kindName, name: objectName, namespace: objectName.optional() }
const request = z.discriminatedUnion(
  'verb',
  [
    z.object({ verb: z.literal('apply'), object }),
    z.object({ verb: z.literal('applyStatus'), object }),
    z.object({ verb: z.literal('remove'), ...place }),
    z.object({ verb: z.literal('read'), ...place }),
    z.object({ verb: z.literal('readLease'), name: objectName }),
    z.object({ verb: z.literal('writeLease'), lease }),
    z.object({ verb: z.literal('readSite') }),
    z.object({ verb: z.literal('renew'), csr: base64 }),
  ],
  { error: 'a known verb' },
)

const enrolRequest = z.object({ token: base64, node: objectName, csr: base64 }, { error: 'a map' })

/** Throws ClusterApiError Invalid, which names the field and what was expected. */
export function parseHubRequest(body: string): HubRequest {
  const value = parsed(body, request) as HubRequest
  if (value.verb === 'apply' || value.verb === 'applyStatus') checkObject(value.object, value.verb)
  if (value.verb === 'readLease') checkLeaseName(value.name)
  if (value.verb === 'writeLease') checkLeaseName(value.lease.metadata.name)
  return value
}

const count = integer(0, Number.MAX_SAFE_INTEGER)
const version = z.object({ term: count, index: count }, { error: 'a map' })
const treePath = z.string({ error: 'a path' }).max(1024, { error: 'at most 1024 characters' })
const fromHub = { term: count, hub: objectName }
const peerRequest = z.discriminatedUnion(
  'verb',
  [
    z.object({ verb: z.literal('vote'), ...fromHub, version, isTrial: z.boolean({ error: 'true or false' }) }),
    z.object({
      verb: z.literal('follow'),
      ...fromHub,
      files: z.array(z.tuple([treePath, z.string({ error: 'base64' }).nullable()]), { error: 'a list' }).optional(),
      whole: z
        .array(z.tuple([treePath, z.string({ error: 'SHA-256' }).max(64)]), { error: 'a list' })
        .max(MAX_FILES, { error: `at most ${MAX_FILES} files` })
        .optional(),
      damaged: z
        .array(treePath, { error: 'a list' })
        .max(MAX_FILES, { error: `at most ${MAX_FILES} files` })
        .optional(),
      wants: z.enum(['damaged', 'lost'], { error: 'damaged or lost' }).optional(),
      removals: z.enum(['marked', 'all'], { error: 'marked or all' }).optional(),
      base: version.optional(),
      version: version.optional(),
    }),
  ],
  { error: 'a known verb' },
)
const peerAnswer = z.object(
  {
    ...{ term: count, version, granted: z.boolean().optional(), missing: z.array(treePath).optional() },
    offers: z
      .array(z.tuple([treePath, z.string().max(MAX_FILE)]))
      .max(MAX_OFFERS)
      .optional(),
  },
  { error: 'a map' },
)

/** Throws ClusterApiError Invalid. */
export function parsePeerRequest(body: string): PeerRequest {
  return parsed(body, peerRequest)
}

const storedTerm = z.object({ own: text(), term: count, votedFor: text().optional(), version, acts: z.boolean() })

/** Reads what one of several hubs keeps on its disk; `own` is its address. Throws an Error. */
export function parseStoredTerm(content: string): StoredTerm & { readonly own: string } {
  return storedTerm.parse(JSON.parse(content))
}

/** Takes the value of a HubAnswer. Throws ClusterApiError Unavailable. */
export function parsePeerAnswer(value: unknown): PeerAnswer {
  const checked = peerAnswer.safeParse(value)
  if (checked.success) return checked.data
  throw new ClusterApiError('Unavailable', 'the answer of the other hub cannot be read')
}

/** Throws ClusterApiError Invalid. */
export function parseEnrolRequest(body: string): EnrolRequest {
  return parsed(body, enrolRequest)
}

function parsed<T extends z.ZodType>(body: string, schema: T): z.output<T> {
  let value: unknown
  try {
    value = JSON.parse(body)
  } catch {
    throw invalid('expected JSON')
  }
  if (typeof value !== 'object' || value === null) throw invalid('expected a JSON object')
  const complaint = complaintOf(schema, value)
  if (complaint !== undefined) throw invalid(complaint)
  return value as z.output<T>
}

/** What a component could not use must not get into the state. */
function checkObject(value: KubeObject, verb: 'apply' | 'applyStatus'): void {
  const { kind, metadata } = value
  const status = (value as { status?: unknown }).status
  const shape = verb === 'apply' ? SPEC_SHAPES[kind] : STATUS_SHAPES[kind]
  const part = verb === 'apply' ? value : { status }
  if (shape === undefined) return
  const complaint = complaintOf(verb === 'apply' ? shape : z.object({ status: shape }), part)
  if (complaint !== undefined) throw invalid(`${kind} ${metadata.name}: ${complaint}`)
}

function checkLeaseName(name: string): void {
  if (!isObjectName(name)) throw invalid(`Lease ${JSON.stringify(name)}: expected an RFC 1123 subdomain`)
}

function invalid(problem: string): ClusterApiError {
  return new ClusterApiError('Invalid', `request to the hub: ${problem}`)
}

/** Reads a refusal; undefined if the text is none. */
export function parseRefusal(body: string): HubRefusal | undefined {
  try {
    const { code, message } = JSON.parse(body) as Partial<HubRefusal>
    if (typeof code !== 'string' || !Object.hasOwn(REFUSAL_STATUS, code) || typeof message !== 'string')
      return undefined
    return { code, message: message.slice(0, 2000) }
  } catch {
    return undefined
  }
}

/**
 * Splits what arrives into lines. Throws an Error for a line of more than MAX_LINE octets: then the other side is not a
 * hub.
 */
export class LineSplitter {
  #parts: Buffer[] = []
  #octets = 0

  /** The complete lines, without their ends. */
  add(data: Buffer): string[] {
    const lines: string[] = []
    let from = 0
    for (let end = data.indexOf(10); end >= 0; end = data.indexOf(10, from)) {
      this.#keep(data.subarray(from, end))
      lines.push(Buffer.concat(this.#parts).toString('utf8'))
      this.#parts = []
      this.#octets = 0
      from = end + 1
    }
    this.#keep(data.subarray(from))
    return lines
  }

  #keep(part: Buffer): void {
    if (part.length === 0) return
    this.#octets += part.length
    if (this.#octets > MAX_LINE) throw new Error(`a line of a watch has more than ${MAX_LINE} octets`)
    this.#parts.push(part)
  }
}

/** Throws an Error if the line is none of a watch of this kind. */
export function parseWatchLine(kind: Kind, text: string): WatchLine {
  const line = JSON.parse(text) as Partial<Record<'set' | 'removed' | 'epoch' | 'rev', unknown>> | null
  if (typeof line !== 'object' || line === null) throw new Error('a line of a watch is no object')
  if (typeof line.rev === 'number' && typeof line.epoch === 'string') return { epoch: line.epoch, rev: line.rev }
  const found = (line.set ?? { kind, metadata: line.removed }) as Partial<KubeObject> | null
  const { name, namespace } = (found?.metadata ?? {}) as { readonly name?: unknown; readonly namespace?: unknown }
  if (found?.kind !== kind || typeof name !== 'string' || !['string', 'undefined'].includes(typeof namespace))
    throw new Error(`a line of the watch of ${kind} names no ${kind}`)
  return line as WatchLine
}
