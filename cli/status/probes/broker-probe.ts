/** Connects to the broker at each address that this member knows, verifies its certificate, and sends no request. */
import type { BrokerCall, Fact } from '../../../explain/facts/facts.ts'
import type { MemberIdentity } from '../../../protocol/membership/membership.ts'
import { SystemClock } from '../../../reconcile/reconcile.ts'
import { messageOf } from '../../../runtime/runtime.ts'
import { askFor } from '../ask.ts'
import type { Progress } from './progress.ts'

const CALL_MS = 3000
const SOURCE = 'this machine'
/** The maximum number of addresses. A broker has few replicas, but the list of learned addresses may be longer. */
export const MOST_ADDRESSES = 12

/** The location of the member's identity. */
export interface IdentityPlace {
  /** The name of the location in facts. */
  readonly place: string
  /** The right that is needed to read it. */
  readonly right?: string
  /** Undefined if the member has not joined. */
  readonly read: (signal: AbortSignal) => Promise<MemberIdentity | undefined>
}

/** The identity in the state directory of a site. */
export function identityFolder(directory: string): IdentityPlace {
  return {
    place: directory,
    read: async () => (await import('../../../protocol/membership/member-files.ts')).readMemberIdentity(directory),
  }
}

export async function probeBroker(
  { place, read: readIdentity, right }: IdentityPlace,
  progress: Progress,
  signal: AbortSignal,
): Promise<readonly Fact[]> {
  let identity: MemberIdentity | undefined
  const read = askFor(
    {
      ...{ what: `Identity ${place}`, source: SOURCE, needed: false, ms: CALL_MS },
      ...(right === undefined ? {} : { right }),
      ask: async (limited) => {
        identity = await readIdentity(limited)
        return identity === undefined ? [] : [await identityFact(identity)]
      },
    },
    signal,
  )
  const facts = await read
  if (identity === undefined) return facts
  const { brokerAddresses, learnedAddresses = [], caBundle, clusterset } = identity
  const addresses = [...new Set([...brokerAddresses, ...learnedAddresses])].slice(0, MOST_ADDRESSES)
  const calls = addresses.map((address) => {
    const asked = { what: `Broker ${address}`, source: SOURCE, needed: false, ms: 1.5 * CALL_MS }
    const ask = async (limited: AbortSignal): Promise<readonly Fact[]> => [
      callFact(await call(address, { ca: caBundle, clusterset }, limited)),
    ]
    return progress.follow(`broker ${address}`, askFor({ ...asked, ask }, signal))
  })
  return [...facts, ...(await Promise.all(calls)).flat()]
}

async function identityFact({ certificate, observedAddress }: MemberIdentity): Promise<Fact> {
  const { readCertificate } = await import('../../../protocol/identity/certificates.ts')
  const { notBeforeMs, notAfterMs } = readCertificate(certificate)
  const item = {
    begins: new Date(notBeforeMs).toISOString(),
    ends: new Date(notAfterMs).toISOString(),
    ...(observedAddress === '' ? {} : { observedAddress }),
  }
  return { t: 'probe', kind: 'identity', source: 'the identity of this cluster', at: now(), items: [item] }
}

async function call(
  text: string,
  { ca, clusterset }: { readonly ca: readonly Uint8Array[]; readonly clusterset: string },
  signal: AbortSignal,
): Promise<BrokerCall> {
  const { parseBrokerAddress } = await import('../../../protocol/broker-addresses.ts')
  const { probeServer } = await import('../../../protocol/transport/probe-server.ts')
  const { reasonField, stageOf } = await import('../../../protocol/transport/error-reason.ts')
  const began = performance.now()
  const done = (rest: Pick<BrokerCall, 'stage' | 'reason' | 'message'>): BrokerCall => {
    return { address: text, ms: performance.now() - began, ...rest }
  }
  try {
    const address = parseBrokerAddress(text)
    await probeServer({ address, ca, clusterset, clock: new SystemClock(), timeoutMs: CALL_MS }, signal)
    return done({ stage: 'tls' })
  } catch (error) {
    signal.throwIfAborted()
    return done({ stage: stageOf(error), ...reasonField(error), message: messageOf(error) })
  }
}

function callFact(item: BrokerCall): Fact {
  return { t: 'probe', kind: 'broker-call', source: SOURCE, at: now(), items: [item] }
}

function now(): string {
  return new Date().toISOString()
}
