/**
 * What `sealane join` wired in the cluster's own DNS, kept on the Membership, so that the agent can put it back after an
 * upgrade of the distribution has rewritten it. Pure.
 */
import { type ReasonCode, knownReason } from '../reasons/reasons.ts'
import { addForwardBlock, claimsOn, hasForwardBlock } from './forward-block.ts'
import { CorefileError } from './parse-corefile.ts'

/**
 * On the Membership: WiredDns as JSON. Without it the agent changes nothing, so a user who removes Sealane's block for
 * good also removes this annotation.
 */
export const ANNOTATION_WIRED_DNS = 'sealane.io/cluster-dns'

/** One value of a ConfigMap that Sealane wrote. */
export interface WiredMap {
  readonly namespace: string
  readonly name: string
  readonly key: string
  /** The whole value, if it is an addition that only Sealane uses. Absent: a block in a Corefile of another owner. */
  readonly text?: string
}

export interface WiredDns {
  /** The address of Service sealane-dns: `10.43.0.99`. */
  readonly forwardTo: string
  readonly maps: readonly WiredMap[]
  /** What could not be changed at the join. */
  readonly problems: readonly { readonly reason: ReasonCode; readonly message: string }[]
}

const MAX_MAPS = 16
const MAX_PROBLEMS = 4
const MAX_MESSAGE = 500

export function formatWiredDns({ forwardTo, maps, problems }: WiredDns): string {
  const said = problems.map(({ reason, message }) => ({ reason, message: message.slice(0, MAX_MESSAGE) }))
  return JSON.stringify({ forwardTo, maps: maps.slice(0, MAX_MAPS), problems: said.slice(0, MAX_PROBLEMS) })
}

/** Undefined if the annotation is missing or is not what formatWiredDns() writes. */
export function readWiredDns(annotations: Readonly<Record<string, string>> | undefined): WiredDns | undefined {
  const text = annotations?.[ANNOTATION_WIRED_DNS]
  if (text === undefined) return undefined
  let value: unknown
  try {
    value = JSON.parse(text)
  } catch {
    return undefined
  }
  const { forwardTo, maps, problems } = (value ?? {}) as Partial<Record<keyof WiredDns, unknown>>
  if (typeof forwardTo !== 'string' || !/^[0-9a-f.:[\]]{2,60}$/i.test(forwardTo)) return undefined
  if (!Array.isArray(maps) || !maps.every(isWiredMap)) return undefined
  const said = Array.isArray(problems) ? problems.flatMap(problemIn) : []
  return { forwardTo, maps: maps.slice(0, MAX_MAPS), problems: said.slice(0, MAX_PROBLEMS) }
}

function isWiredMap(value: unknown): value is WiredMap {
  const { namespace, name, key, text } = (value ?? {}) as Partial<Record<keyof WiredMap, unknown>>
  const isName = (each: unknown): boolean =>
    typeof each === 'string' && /^[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?$/.test(each)
  const isKey = typeof key === 'string' && /^[-._a-zA-Z0-9]{1,253}$/.test(key)
  return isName(namespace) && isName(name) && isKey && (text === undefined || typeof text === 'string')
}

function problemIn(value: unknown): WiredDns['problems'] {
  const { reason, message } = (value ?? {}) as { readonly reason?: unknown; readonly message?: unknown }
  const code = typeof reason === 'string' ? knownReason(reason) : undefined
  return code === undefined || typeof message !== 'string'
    ? []
    : [{ reason: code, message: message.slice(0, MAX_MESSAGE) }]
}

export type Mending =
  | { readonly state: 'holds' }
  /** The value is lost; `text` is the value that restores it. */
  | { readonly state: 'lost'; readonly text: string }
  /** It does not hold, and Sealane must not write it. */
  | { readonly state: 'stuck'; readonly why: string }

/** `data` is that of the ConfigMap now. Changes by hand inside Sealane's block stay. Never throws. */
export function planMending(
  wired: WiredMap,
  data: Readonly<Record<string, string>>,
  block: { readonly domain: string; readonly forwardTo: string },
): Mending {
  const now = Object.hasOwn(data, wired.key) ? data[wired.key] : undefined
  if (wired.text !== undefined) {
    if (now === undefined) return { state: 'lost', text: wired.text }
    return now === wired.text ? { state: 'holds' } : { state: 'stuck', why: `${wired.key} was changed by hand` }
  }
  if (now === undefined) return { state: 'stuck', why: `it has no key ${wired.key}` }
  try {
    if (hasForwardBlock(now)) return { state: 'holds' }
    const [claim] = claimsOn(now, block.domain)
    if (claim !== undefined) return { state: 'stuck', why: `something else answers ${block.domain} (${claim.what})` }
    return { state: 'lost', text: addForwardBlock(now, block) }
  } catch (error) {
    if (!(error instanceof CorefileError)) throw error
    return { state: 'stuck', why: `its ${wired.key} cannot be read: ${error.message}` }
  }
}
