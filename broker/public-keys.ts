/**
 * Whose a WireGuard key is: of the member that stated it first, until that leaves. Others read it as soon as it is stored,
 * and could state it themselves while its gateway is away; the owner would then be refused. Runs inside a transaction.
 */
import type { LogView, Transaction } from './log/record-log.ts'
import type { RecordRow } from './state.ts'

/** Of one member, kept beside those that its Endpoints have now: gateways that come back, nodes that are made anew. */
const MAX_FORMER_KEYS = 64

export function publicKeyOwner(view: LogView, publicKey: string): string | undefined {
  return view.get('publicKey', publicKey)?.cluster
}

export function claimPublicKey(tx: Transaction, cluster: string, endpoint: string, publicKey: string): void {
  const endpoints = new Set(tx.get('publicKey', publicKey)?.endpoints).add(endpoint)
  tx.put('publicKey', publicKey, { cluster, endpoints: [...endpoints].sort() })
}

/** The Endpoint has this key no more. It stays the member's, as one of its latest. */
export function releasePublicKey(tx: Transaction, endpoint: string, old: RecordRow | undefined, nowMs: number): void {
  if (old?.body.kind !== 'Endpoint') return
  const { publicKey } = old.body.spec
  const row = tx.get('publicKey', publicKey)
  if (row === undefined) return
  const endpoints = row.endpoints.filter((name) => name !== endpoint)
  tx.put('publicKey', publicKey, {
    cluster: row.cluster,
    endpoints,
    ...(endpoints.length === 0 ? { freeSinceMs: nowMs } : {}),
  })
  if (endpoints.length === 0) boundFormerKeys(tx, row.cluster)
}

/** Who has left by itself, or is remembered no more, keeps nothing. */
export function forgetPublicKeys(tx: Transaction, clusters: ReadonlySet<string>): void {
  if (clusters.size === 0) return
  for (const { key, value } of tx.list('publicKey')) if (clusters.has(value.cluster)) tx.remove('publicKey', key)
}

function boundFormerKeys(tx: Transaction, cluster: string): void {
  const former = tx
    .list('publicKey')
    .filter(({ value }) => value.cluster === cluster && value.endpoints.length === 0)
    .sort((a, b) => (b.value.freeSinceMs ?? 0) - (a.value.freeSinceMs ?? 0))
  for (const { key } of former.slice(MAX_FORMER_KEYS)) tx.remove('publicKey', key)
}
