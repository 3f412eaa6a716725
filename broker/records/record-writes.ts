/**
 * What storing and removing a member's record entails: the stamp of an export, the clusterset IP of a service, the
 * claim on a public key. Runs inside a transaction, so that either all of it is written or nothing.
 */
import { PoolFullError, allocateAddress, formatAddress, parsePrefix } from '../../model/addresses/addresses.ts'
import {
  type ClusterId,
  type EndpointBody,
  type MemberQuota,
  type MemberRecord,
  type RecordKey,
  bodyBytes,
  recordKeyText,
} from '../../model/model.ts'
import { offeredClusters } from '../../model/access/access.ts'
import { MAX_ENDPOINTS_PER_CLUSTER } from '../../model/lanes/lanes.ts'
import type { MemberKey } from '../../protocol/protocol.ts'
import { contentHash, memberKey } from '../../protocol/codec/codec.ts'
import { clusterSpec } from '../addresses/addresses.ts'
import { type LogView, type RecordRow, SETTINGS_KEY, type Transaction, parseRecordKey } from '../store/store.ts'
import { type AdmissionContext, type ClustersetRanges, type Refusal, admitRecord, refusal } from './admission.ts'
import { checkQuota } from './quota.ts'

// Ownership of WireGuard keys: a key belongs to the member that stated it first, until that member leaves. Other
// members can read a key as soon as it is stored, and could state it while its gateway is not connected, so that the
// owner would be refused. Runs inside a transaction.

/**
 * Limit of former keys per member, in addition to those of its current Endpoints: for gateways that return and nodes
 * that are replaced.
 */
const MAX_FORMER_KEYS = 64

function publicKeyOwner(view: LogView, publicKey: string): string | undefined {
  return view.get('publicKey', publicKey)?.cluster
}

/** The row is always replaced, since candidatesOf() in addresses/address-claims.ts caches by its identity. */
function claimPublicKey(tx: Transaction, cluster: string, endpoint: string, publicKey: string): void {
  const row = tx.get('publicKey', publicKey)
  if (row?.endpoints.length === 0) writeFormer(tx, cluster, without(formerKeys(tx, cluster), publicKey))
  const endpoints = new Set(row?.endpoints).add(endpoint)
  tx.put('publicKey', publicKey, { cluster, endpoints: [...endpoints].sort() })
}

/** The key in use, and the announced key if there is one. */
export function statedKeys({ spec: { publicKey, nextPublicKey } }: EndpointBody): readonly string[] {
  return nextPublicKey === undefined || nextPublicKey === publicKey ? [publicKey] : [publicKey, nextPublicKey]
}

/** Releases the keys of the Endpoint. They stay the member's as former keys. */
function releasePublicKey(tx: Transaction, endpoint: string, old: RecordRow | undefined): void {
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

/** Removes the keys of members that left by themselves or are no longer stored. */
export function forgetPublicKeys(tx: Transaction, clusters: ReadonlySet<string>): void {
  if (clusters.size === 0) return
  for (const { key, value } of tx.list('publicKey')) if (clusters.has(value.cluster)) tx.remove('publicKey', key)
  for (const cluster of clusters) writeFormer(tx, cluster, [])
}

/**
 * Former keys have a row of their own. A member may give up many keys at once, and a search among all keys would delay
 * other members.
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

export interface WriteRules extends ClustersetRanges {
  readonly allowedNamespaces: readonly string[]
  /** The quota of members without one of their own. See quotaOf(). */
  readonly quota: MemberQuota
  /** Whether an operator decides about every join, and about ranges that a member states later. */
  readonly approve?: boolean
}

export interface WriteContext {
  readonly cluster: ClusterId
  readonly rules: WriteRules
  readonly nowMs: number
}

/** Stores a record of the cluster, or returns the reason for a refusal, in which case nothing was written. */
export function putRecord(tx: Transaction, record: MemberRecord, context: WriteContext): Refusal | undefined {
  const { cluster } = context
  const key = recordKeyText({ cluster, ...memberKey(record) })
  const old = tx.get('record', key)
  const hash = Buffer.from(contentHash(record)).toString('hex')
  if (old?.hash === hash) return undefined
  const bytes = bodyBytes(record.body)
  const refused =
    admitRecord(record, admissionContext(tx, context)) ??
    checkEndpoints(tx, record, old, context) ??
    checkQuota(tx, { record, old, bytes }, context)
  if (refused !== undefined) return refused
  let createdAtMs = old?.createdAtMs ?? context.nowMs
  if (record.body.kind === 'ServiceExport') {
    const service = `${record.namespace}/${record.name}`
    const noAddress = updateServiceIp(tx, service, record.body.type === 'ClusterSetIP', context)
    if (noAddress !== undefined) return noAddress
    createdAtMs = claimStamp(tx, service, record.body.uid, context)
  }
  if (record.body.kind === 'Endpoint') {
    releasePublicKey(tx, record.name, old)
    for (const publicKey of statedKeys(record.body)) claimPublicKey(tx, cluster, record.name, publicKey)
  }
  const readers = readersOf(record.body)
  if (readers !== undefined) noteOffers(tx)
  tx.put('record', key, {
    createdAtMs,
    body: record.body,
    hash,
    bytes,
    ...(readers === undefined ? {} : { readers }),
  })
  return undefined
}

/** Undefined: all members. */
function readersOf(body: MemberRecord['body']): readonly string[] | undefined {
  if (body.kind === 'ServiceExport') return offeredClusters(body.offeredTo)
  return body.kind === 'EndpointSlice' ? body.offeredTo : undefined
}

function noteOffers(tx: Transaction): void {
  const settings = tx.get('settings', SETTINGS_KEY)
  if (settings !== undefined && settings.offers !== true)
    tx.put('settings', SETTINGS_KEY, { ...settings, offers: true })
}

/** Removes a record of the cluster and what depended on it. Does nothing if there is no such record. */
export function removeRecord(tx: Transaction, key: MemberKey, context: WriteContext): void {
  const text = recordKeyText({ cluster: context.cluster, ...key })
  const row = tx.get('record', text)
  if (row === undefined) return
  if (row.body.kind === 'ServiceExport') {
    const service = `${key.namespace}/${key.name}`
    const stamp = tx.get('stamp', `${context.cluster}/${service}`)
    if (stamp !== undefined) {
      tx.put('stamp', `${context.cluster}/${service}`, { ...stamp, withdrawnAtMs: context.nowMs })
    }
    updateServiceIp(tx, service, false, context)
  }
  if (row.body.kind === 'Endpoint') releasePublicKey(tx, key.name, row)
  tx.remove('record', text)
}

/**
 * All records that the cluster has published, without its Cluster and MemberStatus records, which the broker writes.
 */
export function memberRecords(
  view: LogView,
  cluster: ClusterId,
): { readonly key: RecordKey; readonly row: RecordRow }[] {
  return view
    .list('record', cluster)
    .map(({ key, value }) => ({ key: parseRecordKey(key), row: value }))
    .filter(({ key }) => key.kind !== 'Cluster' && key.kind !== 'MemberStatus')
}

/** The context against which the cluster's records are validated now. */
export function admissionContext(tx: Transaction, { cluster, rules }: WriteContext): AdmissionContext {
  return {
    cluster,
    // Not the pod CIDRs of its facts: IPv6 may be left out because of another member's.
    podCIDRs: (clusterSpec(tx, cluster)?.podCIDRs ?? []).map((text) => parsePrefix(text)),
    allowedNamespaces: rules.allowedNamespaces,
    ranges: rules,
    publicKeyOwner: (publicKey) => publicKeyOwner(tx, publicKey),
  }
}

/** Limits the number of Endpoints. Existing ones may change, even if an earlier release accepted more. */
function checkEndpoints(
  tx: Transaction,
  { body }: MemberRecord,
  old: RecordRow | undefined,
  { cluster }: WriteContext,
): Refusal | undefined {
  const limit = MAX_ENDPOINTS_PER_CLUSTER
  if (body.kind !== 'Endpoint' || old !== undefined || tx.recordCount(cluster, 'Endpoint') < limit) return undefined
  return refusal('records', `cluster "${cluster}" has ${limit} Endpoints already, which is the limit`, 'RecordLimit')
}

/**
 * Returns the time that decides conflicts. It depends on the uid: an export that was created again is younger, and one
 * that returns unchanged keeps its age.
 */
function claimStamp(tx: Transaction, service: string, uid: string, { cluster, nowMs }: WriteContext): number {
  const key = `${cluster}/${service}`
  const stamp = tx.get('stamp', key)
  const createdAtMs = stamp?.uid === uid ? stamp.createdAtMs : nowMs
  if (stamp?.uid !== uid || stamp.withdrawnAtMs !== undefined) tx.put('stamp', key, { uid, createdAtMs })
  return createdAtMs
}

/** Stamps of withdrawn exports are kept for a day. */
const KEEP_WITHDRAWN_MS = 24 * 3_600_000

export function pruneStamps(tx: Transaction, nowMs: number): void {
  for (const { key, value } of tx.list('stamp')) {
    if (value.withdrawnAtMs !== undefined && value.withdrawnAtMs < nowMs - KEEP_WITHDRAWN_MS) tx.remove('stamp', key)
  }
}

/** Adds the cluster to, or removes it from, the clusters that need an address for the service. */
function updateServiceIp(tx: Transaction, service: string, wants: boolean, context: WriteContext): Refusal | undefined {
  const { cluster, nowMs, rules } = context
  const row = tx.get('serviceIp', service)
  const others = (row?.exporters ?? []).filter((exporter) => exporter !== cluster)
  const exporters = wants ? [...others, cluster].sort() : others
  // With the same number, the set is the same: only this cluster can be added or removed.
  if (exporters.length === (row?.exporters.length ?? 0)) return undefined
  const ip = row?.ip ?? freeAddress(tx, service, rules.clustersetIpRange)
  if (ip === undefined) {
    return refusal(
      'clustersetIP',
      `all addresses of the range ${rules.clustersetIpRange} are in use: withdraw exports, or export as headless; ` +
        'a larger range can be set only at the first start of a broker, with --clusterset-ip-range',
      'ClusterSetIPsExhausted',
    )
  }
  const record = recordKeyText(clustersetIpKey(service))
  if (exporters.length === 0) {
    tx.put('serviceIp', service, { ip, exporters, releasedAtMs: nowMs })
    tx.remove('record', record)
    return undefined
  }
  tx.put('serviceIp', service, { ip, exporters })
  tx.put('address', ip, { service })
  if (tx.get('record', record) === undefined) {
    tx.put('record', record, { createdAtMs: nowMs, body: { kind: 'ClusterSetIP', ips: [ip] } })
  }
  return undefined
}

/** A free address, or the one that was released longest ago. Undefined if all are in use. */
function freeAddress(tx: Transaction, service: string, range: string): string | undefined {
  const pool = parsePrefix(range)
  try {
    return formatAddress(
      allocateAddress(pool, (address) => tx.get('address', formatAddress(address)) !== undefined, service),
    )
  } catch (error) {
    if (!(error instanceof PoolFullError)) throw error
  }
  const released = tx.list('serviceIp').filter(({ value }) => value.releasedAtMs !== undefined)
  const oldest = released.sort((a, b) => (a.value.releasedAtMs ?? 0) - (b.value.releasedAtMs ?? 0))[0]
  if (oldest === undefined) return undefined
  tx.remove('serviceIp', oldest.key)
  return oldest.value.ip
}

function clustersetIpKey(service: string): RecordKey {
  const [namespace = '', name = ''] = service.split('/')
  return { cluster: '', kind: 'ClusterSetIP', namespace, name }
}
