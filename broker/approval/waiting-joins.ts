/**
 * Joins that wait for an operator, as rows of the store: they outlive the broker and the one that joins. A row binds its
 * token to one key, is bounded in number, and ends with its token. Each function runs inside a transaction.
 *
 *   (none) ──ask──► waits ──accept──► accepted ──ask──► joined: (none)
 *     ▲               │ ▲                │ other facts than those that were accepted
 *     │               │ └────────────────┘
 *     ├──withdraw─────┤
 *     └──token ends───┴──refuse──► refused: said to the same key until the token ends
 */
import type { ClusterFacts } from '../../protocol/broker-api.ts'
import { canonicalJson } from '../../protocol/codec/content-hash.ts'
import type { LogView, Transaction } from '../log/record-log.ts'
import type { WaitingRow } from './approval-rows.ts'

/** Rows, of all tokens together: 64 KiB each at most. */
export const MAX_WAITING = 128
/** Of one token, so that who has a token of many uses does not fill the list for all. */
export const MAX_WAITING_OF_TOKEN = 32
/** Who was accepted while its token ended has so long to hear of it. */
export const ACCEPTED_MS = 15 * 60_000
/** When it asked last is written this often. */
const NOTE_ASKED_MS = 60_000

export interface WaitingJoin {
  readonly cluster: string
  /** Id of the token. */
  readonly token: string
  readonly row: WaitingRow
}

export interface WaitingAsk {
  readonly cluster: string
  readonly token: { readonly id: string; readonly expiresAtMs: number }
  readonly keyHash: string
  readonly facts: ClusterFacts
  readonly address: string
  readonly renumbers: readonly string[]
  readonly nowMs: number
}

export type WaitingAnswer =
  /** `news`: it was not in the list before, or with other facts. */
  | { readonly t: 'waits'; readonly row: WaitingRow; readonly news: boolean }
  | { readonly t: 'accepted'; readonly row: WaitingRow }
  | { readonly t: 'refused'; readonly row: WaitingRow }
  /** Another key waits with this token under this id. */
  | { readonly t: 'otherKey'; readonly row: WaitingRow }
  /** There is no room. */
  | { readonly t: 'full'; readonly limit: number; readonly of: 'all' | 'token' }

export function waitingKey(cluster: string, token: string): string {
  return `${cluster}/${token}`
}

/** Those that count now, by cluster, then token. */
export function waitingJoins(view: LogView, nowMs: number, cluster?: string): WaitingJoin[] {
  return view.list('waiting', cluster).flatMap(({ key, value: row }) => {
    const slash = key.indexOf('/')
    return isOver(row, nowMs) ? [] : [{ cluster: key.slice(0, slash), token: key.slice(slash + 1), row }]
  })
}

export function waitingJoin(view: LogView, cluster: string, token: string, nowMs: number): WaitingRow | undefined {
  const row = view.get('waiting', waitingKey(cluster, token))
  return row === undefined || isOver(row, nowMs) ? undefined : row
}

/** Until when the row counts. */
export function waitingUntilMs({ expiresAtMs, acceptedAtMs }: WaitingRow): number {
  return acceptedAtMs === undefined ? expiresAtMs : Math.max(expiresAtMs, acceptedAtMs + ACCEPTED_MS)
}

/** Uses of a token that others than this bearer hold by waiting, or held when they were refused. */
export function usesHeld(
  view: LogView,
  token: string,
  { cluster, keyHash, nowMs }: { readonly cluster: string; readonly keyHash?: string; readonly nowMs: number },
): readonly WaitingJoin[] {
  return waitingJoins(view, nowMs).filter(
    (one) => one.token === token && !(one.cluster === cluster && one.row.keyHash === keyHash),
  )
}

/** Whether the operator has accepted this bearer; without a key: one that has this id and token. */
export function isAccepted(
  view: LogView,
  token: string,
  { cluster, keyHash, nowMs }: { readonly cluster: string; readonly keyHash?: string; readonly nowMs: number },
): boolean {
  const row = waitingJoin(view, cluster, token, nowMs)
  return row?.acceptedAtMs !== undefined && (keyHash === undefined || row.keyHash === keyHash)
}

/** Whether it was accepted with this key and these facts. */
export function isAcceptedAs(row: WaitingRow, keyHash: string, facts: ClusterFacts): boolean {
  return row.acceptedAtMs !== undefined && row.keyHash === keyHash && isSame(row.facts, facts)
}

/** Puts the join into the list, or finds it there. What was accepted are the facts that were shown: others wait anew. */
export function askForApproval(tx: Transaction, ask: WaitingAsk): WaitingAnswer {
  const { cluster, token, keyHash, facts, address, renumbers, nowMs } = ask
  const known = waitingJoin(tx, cluster, token.id, nowMs)
  if (known !== undefined && known.keyHash !== keyHash) return { t: 'otherKey', row: known }
  if (known?.refusedAtMs !== undefined) return { t: 'refused', row: known }
  const same = known !== undefined && isSame(known.facts, facts)
  if (known?.acceptedAtMs !== undefined && same) return { t: 'accepted', row: known }
  if (known === undefined) {
    const all = waitingJoins(tx, nowMs)
    if (all.length >= MAX_WAITING) return { t: 'full', limit: MAX_WAITING, of: 'all' }
    if (all.filter((one) => one.token === token.id).length >= MAX_WAITING_OF_TOKEN)
      return { t: 'full', limit: MAX_WAITING_OF_TOKEN, of: 'token' }
  }
  const isNoted = known !== undefined && same && known.address === address && nowMs - known.lastAskedMs < NOTE_ASKED_MS
  if (isNoted) return { t: 'waits', row: known, news: false }
  const { expiresAtMs } = token
  const sinceMs = same ? known.sinceMs : nowMs
  const shown = same ? known.renumbers : renumbers
  const row = { keyHash, facts, address, sinceMs, lastAskedMs: nowMs, expiresAtMs, renumbers: shown }
  tx.put('waiting', waitingKey(cluster, token.id), row)
  return { t: 'waits', row, news: !same }
}

/** Takes back what waits with this token and this key; what was refused stays refused. Gives what went. */
export function withdrawJoin(tx: Transaction, token: string, keyHash: string, nowMs: number): WaitingJoin | undefined {
  const found = waitingJoins(tx, nowMs).find((one) => one.token === token && one.row.keyHash === keyHash)
  if (found === undefined || found.row.refusedAtMs !== undefined) return undefined
  tx.remove('waiting', waitingKey(found.cluster, found.token))
  return found
}

/** Removes what counts no more, and gives of it what nobody has answered. */
export function pruneWaiting(tx: Transaction, nowMs: number): WaitingJoin[] {
  const over = tx.list('waiting').flatMap(({ key, value: row }): WaitingJoin[] => {
    const slash = key.indexOf('/')
    const [cluster, token] = [key.slice(0, slash), key.slice(slash + 1)]
    const lasts = tx.get('token', token)
    const isOf = lasts !== undefined && lasts.revokedAtMs === undefined
    return isOf && !isOver(row, nowMs) ? [] : [{ cluster, token, row }]
  })
  for (const { cluster, token } of over) tx.remove('waiting', waitingKey(cluster, token))
  return over.filter(({ row }) => row.refusedAtMs === undefined)
}

function isOver(row: WaitingRow, nowMs: number): boolean {
  return waitingUntilMs(row) <= nowMs
}

/** The release may change while somebody waits. */
function isSame({ version: _before, ...a }: ClusterFacts, { version: _now, ...b }: ClusterFacts): boolean {
  return canonicalJson(a) === canonicalJson(b)
}
