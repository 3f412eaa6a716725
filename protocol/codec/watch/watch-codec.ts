/** Watch between bytes and broker-api.ts. Decoders throw CodecError and nothing else. */
import type { WatchMessage, WatchRequest, WatchSkill } from '../../broker-api.ts'
import { authoritiesFromWire, authoritiesToWire } from './authorities-codec.ts'
import * as check from '../codec-checks.ts'
import { CodecError, buffer, limited } from '../codec-checks.ts'
import * as wire from '../../gen/broker.ts'
import * as limits from '../../limits.ts'
import { exportedFromWire, exportedToWire, interestFromWire, interestToWire } from './interest-codec.ts'
import { ownersFromWire, ownersToWire } from './owners-codec.ts'
import { unpack } from './pack.ts'

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
  }
}

/** Gives undefined for a message of a later version. The events of a batch stay bytes: see decodeRecordEvent. */
export function decodeWatchMessage(bytes: Uint8Array): WatchMessage | undefined {
  return watchFromWire(bytes, true)
}

/** What is packed is packed once: nobody can have a reader unpack without end. */
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
        // No reason to end the watch: what cannot be used of it is left out (broker-addresses.ts).
        ...(known.value.addresses.length === 0 ? {} : { addresses: known.value.addresses }),
        ...(known.value.keepsToInterest === true ? { keepsToInterest: true as const } : {}),
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
        complete: check.texts(known.value.complete, 'complete', limits.MAX_CLUSTERS, limits.MAX_NAME),
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
  }
}
