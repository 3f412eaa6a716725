/**
 * Whose a WireGuard key is: of the member that stated it first, until that leaves. Others read it as soon as it is
 * stored, and could state it themselves while its gateway is away; the owner would then be refused. Runs inside a
 * transaction.
 */
import type { EndpointBody } from '../../model/records.ts'
import type { LogView, Transaction } from '../log/record-log.ts'
import type { RecordRow } from '../state/state.ts'

/** Of one member, kept beside those that its Endpoints have now: gateways that come back, nodes that are made anew. */
const MAX_FORMER_KEYS = 64

export function publicKeyOwner(view: LogView, publicKey: string): string | undefined {
  return view.get('publicKey', publicKey)?.cluster
}

/** The row is written anew each time: candidatesOf() in addresses/ remembers by it. */
export function claimPublicKey(tx: Transaction, cluster: string, endpoint: string, publicKey: string): void {
  const row = tx.get('publicKey', publicKey)
  if (row?.endpoints.length === 0) writeFormer(tx, cluster, without(formerKeys(tx, cluster), publicKey))
  const endpoints = new Set(row?.endpoints).add(endpoint)
  tx.put('publicKey', publicKey, { cluster, endpoints: [...endpoints].sort() })
}

/** The key in use, and the one that is announced. */
export function statedKeys({ spec: { publicKey, nextPublicKey } }: EndpointBody): readonly string[] {
  return nextPublicKey === undefined || nextPublicKey === publicKey ? [publicKey] : [publicKey, nextPublicKey]
}

/** The Endpoint has its keys no more. They stay the member's, as some of its latest. */
export function releasePublicKey(tx: Transaction, endpoint: string, old: RecordRow | undefined): void {
  if (old?.body.kind !== 'Endpoint') return
  for (const publicKey of statedKeys(old.body)) releaseKey(tx, endpoint, publicKey)
}

function releaseKey(tx: Transaction, endpoint: string, publicKey: string): void {
  const row = tx.get('publicKey', publicKey)
  if (row === undefined) return
  const { cluster } = row
  const endpoints = row.endpoints.filter((name) => name !== endpoint)
  tx.put('publicKey', publicKey, { cluster, endpoints })
  if (endpoints.length > 0) return
  const former = [...without(formerKeys(tx, cluster), publicKey), publicKey]
  for (const oldest of former.slice(0, -MAX_FORMER_KEYS)) tx.remove('publicKey', oldest)
  writeFormer(tx, cluster, former.slice(-MAX_FORMER_KEYS))
}

/** Who has left by itself, or is remembered no more, keeps nothing. */
export function forgetPublicKeys(tx: Transaction, clusters: ReadonlySet<string>): void {
  if (clusters.size === 0) return
  for (const { key, value } of tx.list('publicKey')) if (clusters.has(value.cluster)) tx.remove('publicKey', key)
  for (const cluster of clusters) writeFormer(tx, cluster, [])
}

/**
 * In a row of their own: a member may give up very many keys at once, and who looked for them among all would hold up
 * all.
 */
function formerKeys(view: LogView, cluster: string): readonly string[] {
  return view.get('formerKeys', cluster)?.keys ?? []
}

function writeFormer(tx: Transaction, cluster: string, keys: readonly string[]): void {
  if (keys.length > 0) tx.put('formerKeys', cluster, { keys })
  else if (tx.get('formerKeys', cluster) !== undefined) tx.remove('formerKeys', cluster)
}

function without(keys: readonly string[], one: string): readonly string[] {
  return keys.filter((key) => key !== one)
}
