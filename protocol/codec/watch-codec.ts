/** Encodes and decodes watch messages of broker-api.ts. Decoders throw only CodecError. */
import { promisify } from 'node:util'
import { constants, zstdCompress, zstdCompressSync, zstdDecompressSync } from 'node:zlib'
import type { AccessDefault } from '../../model/access/access.ts'
import { usableRelays } from '../../model/lanes/lanes.ts'
import { MAX_INTEREST, interestProblem } from '../../model/model.ts'
import {
  type AskedInterest,
  type Authorities,
  HASH_BYTES,
  MAX_CA_BUNDLE,
  MAX_EXPORTED_PART,
  MAX_NAME,
  MAX_OWNERS,
  type WatchMessage,
  type WatchRequest,
  type WatchSkill,
} from '../protocol.ts'
import * as wire from '../gen/broker.ts'
import type {
  WatchMessage_OwnersChanged as Wire,
  WatchMessage_ExportedNamespaces as WireExported,
  Interest as WireInterest,
} from '../gen/broker.ts'
import * as limits from '../protocol.ts'
import * as check from './codec-checks.ts'
import { CodecError, buffer, limited } from './codec-checks.ts'

// Compression with zstd, which takes little time for the sender and less for the reader.

const compress = promisify(zstdCompress)

/** Above this size pack() uses the fast level, because it runs in the broker's only thread. */
const SMALL_BYTES = 128 * 1024
const QUICK = { [constants.ZSTD_c_compressionLevel]: 3 }
/**
 * From level 12 on, zstd finds that EndpointSlices differ only in their addresses. Higher levels take many times as
 * long. The table sizes fit half a megabyte; with the defaults each compression would take 50 MB of memory.
 */
const WELL = {
  [constants.ZSTD_c_compressionLevel]: 12,
  [constants.ZSTD_c_windowLog]: 19,
  [constants.ZSTD_c_hashLog]: 17,
  [constants.ZSTD_c_chainLog]: 17,
}

/** Compresses in this thread. A megabyte takes about 10 ms. */
export function pack(bytes: Uint8Array): Uint8Array {
  return zstdCompressSync(bytes, { params: bytes.length > SMALL_BYTES ? QUICK : WELL })
}

/** Compresses in the thread pool, for messages to one member. */
export function packQuickly(bytes: Uint8Array): Promise<Uint8Array> {
  return compress(bytes, { params: QUICK })
}

/** Compresses in the thread pool, for messages to many members. Repetitive content becomes a third smaller. */
export function packWell(bytes: Uint8Array): Promise<Uint8Array> {
  return compress(bytes, { params: WELL })
}

/**
 * Largest window that a frame may demand for decompression: 8 MiB, more than any message of ours needs. Without this
 * limit zstd would allocate 128 MiB for a frame of a few bytes.
 */
const BOUNDED = { [constants.ZSTD_d_windowLogMax]: 23 }

/** Throws CodecError if the input is not zstd, or exceeds `maxBytes` when decompressed. */
export function unpack(zstd: Uint8Array, maxBytes: number): Uint8Array {
  try {
    return zstdDecompressSync(zstd, { maxOutputLength: maxBytes, params: BOUNDED })
  } catch (error) {
    const why = (error as { code?: string }).code === 'ERR_BUFFER_TOO_LARGE' ? `more than ${maxBytes} bytes` : 'no zstd'
    throw new CodecError('packed', why)
  }
}

const WATCH_SKILLS: readonly WatchSkill[] = ['zstd', 'owners']

export function encodeWatchRequest({ resume, takes = [], followsAuthorities, interest }: WatchRequest): Uint8Array {
  const asked = interest === undefined ? undefined : interestToWire(interest)
  const skills = { takes: [...takes], followsAuthorities: followsAuthorities === true, interest: asked }
  const message = { resume: resume === undefined ? undefined : { ...resume }, ...skills }
  return wire.WatchRequest.encode(message).finish()
}

export function decodeWatchRequest(bytes: Uint8Array): WatchRequest {
  const request = check.parseWire('watch request', bytes, limits.MAX_WATCH_REQUEST_BYTES, (b) =>
    wire.WatchRequest.decode(b),
  )
  const { resume, interest } = request
  const known = WATCH_SKILLS.filter((skill) => request.takes.includes(skill))
  const takes = known.length === 0 ? {} : { takes: known }
  const skills = {
    ...takes,
    ...(request.followsAuthorities ? { followsAuthorities: true as const } : {}),
    ...(interest === undefined ? {} : { interest: interestFromWire(interest) }),
  }
  if (resume === undefined) return skills
  return {
    ...skills,
    resume: {
      epoch: check.text(resume.epoch, 'resume.epoch', limits.MAX_NAME, 1),
      revision: check.count(resume.revision, 'resume.revision'),
    },
  }
}

export function encodeWatchMessage(message: WatchMessage): Uint8Array {
  return limited(wire.WatchMessage.encode({ message: watchToWire(message) }).finish())
}

function watchToWire(message: WatchMessage): wire.WatchMessage['message'] {
  switch (message.t) {
    case 'reset':
      return {
        $case: 'reset',
        value: {
          epoch: message.epoch,
          resumed: message.resumed,
          addresses: [...(message.addresses ?? [])],
          keepsToInterest: message.keepsToInterest,
          accessDefault: message.accessDefault,
          relays: message.relays === undefined ? undefined : { addresses: [...message.relays] },
        },
      }
    case 'batch':
      return { $case: 'batch', value: { events: message.events.map(buffer), revision: message.revision } }
    case 'synced': {
      const { revision, complete, departed } = message
      return { $case: 'synced', value: { revision, complete: [...complete], departed: [...departed] } }
    }
    case 'ownersChanged':
      return { $case: 'ownersChanged', value: ownersToWire(message) }
    case 'added':
      return { $case: 'added', value: { events: message.events.map(buffer) } }
    case 'exportedNamespaces':
      return { $case: 'exportedNamespaces', value: exportedToWire(message) }
    case 'packed':
      return { $case: 'packed', value: { zstd: buffer(message.zstd) } }
    case 'contact':
      return { $case: 'contact', value: { silent: message.silent.map((one) => ({ ...one })), nowMs: message.nowMs } }
    case 'authorities':
      return { $case: 'authorities', value: authoritiesToWire(message) }
    case 'access':
      return { $case: 'access', value: { accessDefault: message.accessDefault } }
    case 'relays':
      return { $case: 'relays', value: { addresses: [...message.relays] } }
  }
}

/** Returns undefined for a message of a later version. The events of a batch stay encoded: see decodeRecordEvent(). */
export function decodeWatchMessage(bytes: Uint8Array): WatchMessage | undefined {
  return watchFromWire(bytes, true)
}

/** `unpacks` is false inside a packed message, so that nested messages cannot make a reader decompress without end. */
function watchFromWire(bytes: Uint8Array, unpacks: boolean): WatchMessage | undefined {
  const { message: known } = check.parseWire('watch message', bytes, limits.MAX_MESSAGE_BYTES, (b) =>
    wire.WatchMessage.decode(b),
  )
  switch (known?.$case) {
    case undefined:
      return undefined
    case 'reset':
      return {
        t: 'reset',
        epoch: check.text(known.value.epoch, 'epoch', limits.MAX_NAME, 1),
        resumed: known.value.resumed,
        // Invalid addresses do not end the watch. AddressBook ignores them (broker-addresses.ts).
        ...(known.value.addresses.length === 0 ? {} : { addresses: known.value.addresses }),
        ...(known.value.keepsToInterest === true ? { keepsToInterest: true as const } : {}),
        ...(known.value.accessDefault === undefined
          ? {}
          : { accessDefault: accessFromWire(known.value.accessDefault) }),
        // Invalid addresses do not end the watch.
        ...(known.value.relays === undefined ? {} : { relays: usableRelays(known.value.relays.addresses) }),
      }
    case 'batch':
      return {
        t: 'batch',
        events: check.list(known.value.events, 'events', limits.MAX_BATCH_EVENTS, (event) => event),
        revision: check.count(known.value.revision, 'revision'),
      }
    case 'synced':
      return {
        t: 'synced',
        revision: check.count(known.value.revision, 'revision'),
        complete: check.texts(known.value.complete, 'complete', MAX_OWNERS, limits.MAX_NAME),
        departed: check.texts(known.value.departed, 'departed', limits.MAX_CLUSTERS, limits.MAX_NAME),
      }
    case 'ownersChanged':
      return ownersFromWire(known.value)
    case 'added':
      return {
        t: 'added',
        events: check.list(known.value.events, 'events', limits.MAX_BATCH_EVENTS, (event) => event),
      }
    case 'exportedNamespaces':
      return exportedFromWire(known.value)
    case 'packed':
      if (!unpacks) throw new CodecError('packed', 'packed twice')
      return watchFromWire(unpack(known.value.zstd, limits.MAX_MESSAGE_BYTES), false)
    case 'contact':
      return {
        t: 'contact',
        silent: check.list(known.value.silent, 'silent', limits.MAX_CLUSTERS, ({ cluster, forMs }, path) => ({
          cluster: check.text(cluster, `${path}.cluster`, limits.MAX_NAME, 1),
          forMs: check.count(forMs, `${path}.forMs`),
        })),
        ...(known.value.nowMs === undefined ? {} : { nowMs: check.count(known.value.nowMs, 'nowMs') }),
      }
    case 'authorities':
      return { t: 'authorities', ...authoritiesFromWire(known.value) }
    case 'access':
      return { t: 'access', accessDefault: accessFromWire(known.value.accessDefault) }
    case 'relays':
      return { t: 'relays', relays: usableRelays(known.value.addresses) }
  }
}

/** A word of a later release must not open more than its author meant. */
function accessFromWire(word: string): AccessDefault {
  return word === 'allow' ? 'allow' : 'deny'
}

// The authorities that the broker reports.

function authoritiesToWire({ bundle, signing, withinMs }: Authorities): wire.WatchMessage_Authorities {
  return { bundle: bundle.map(fromHex), signing: fromHex(signing), withinMs }
}

/** Throws CodecError. */
function authoritiesFromWire({ bundle, signing, withinMs }: wire.WatchMessage_Authorities): Authorities {
  return {
    bundle: check.list(bundle, 'bundle', MAX_CA_BUNDLE, hex),
    signing: hex(signing, 'signing'),
    withinMs: check.count(withinMs, 'withinMs'),
  }
}

function fromHex(text: string): Buffer {
  return Buffer.from(text, 'hex')
}

function hex(value: Uint8Array, path: string): string {
  return Buffer.from(check.bytes(value, path, HASH_BYTES, HASH_BYTES)).toString('hex')
}

// The namespaces that a member requests, and those in which a member exports a service.

type Exported = Extract<WatchMessage, { t: 'exportedNamespaces' }>

function interestToWire({ namespaces, missing }: AskedInterest): WireInterest {
  const sorted = [...namespaces].sort()
  return { namespaces: sorted, missing: sorted.flatMap((name, i) => (missing.has(name) ? [i] : [])) }
}

/** Throws CodecError. The order is checked so that equal interests have equal bytes. */
function interestFromWire({ namespaces, missing }: WireInterest): AskedInterest {
  const names = check.list(namespaces, 'interest.namespaces', MAX_INTEREST, (name, path) => {
    return check.text(name, path, MAX_NAME, 1)
  })
  const asked = new Set(ascending(names, 'interest.namespaces'))
  const problem = interestProblem(asked)
  if (problem !== undefined) throw new CodecError('interest.namespaces', problem)
  const positions = check.list(missing, 'interest.missing', names.length, (at) => at)
  const lacking = ascending(positions, 'interest.missing').map((at, i) => {
    const name = names[at]
    if (name === undefined) throw new CodecError(`interest.missing[${i}]`, `${at}: expected less than ${names.length}`)
    return name
  })
  return { namespaces: asked, missing: new Set(lacking) }
}

function exportedToWire({ whole, added, removed }: Exported): WireExported {
  return { whole, added: [...added], removed: [...removed] }
}

function exportedFromWire({ whole, added, removed }: WireExported): Exported {
  const names = (list: string[], field: string): string[] => check.texts(list, field, MAX_EXPORTED_PART, MAX_NAME)
  return { t: 'exportedNamespaces', whole, added: names(added, 'added'), removed: names(removed, 'removed') }
}

function ascending<T extends string | number>(list: readonly T[], field: string): readonly T[] {
  const wrong = list.findIndex((one, i) => i > 0 && one <= (list[i - 1] as T))
  if (wrong >= 0) throw new CodecError(`${field}[${wrong}]`, 'expected ascending order, each once')
  return list
}

// The changes in the lists of owners.

type OwnersChanged = Extract<WatchMessage, { t: 'ownersChanged' }>

function ownersToWire({ revision, complete, departed }: OwnersChanged): Wire {
  return {
    revision,
    completeAdded: [...complete.added],
    completeRemoved: [...complete.removed],
    departedAdded: [...departed.added],
    departedRemoved: [...departed.removed],
  }
}

function ownersFromWire(value: Wire): OwnersChanged {
  const ids = (field: Exclude<keyof Wire, 'revision'>): string[] =>
    check.texts(value[field], field, MAX_OWNERS, MAX_NAME)
  return {
    t: 'ownersChanged',
    revision: check.count(value.revision, 'revision'),
    complete: { added: ids('completeAdded'), removed: ids('completeRemoved') },
    departed: { added: ids('departedAdded'), removed: ids('departedRemoved') },
  }
}
