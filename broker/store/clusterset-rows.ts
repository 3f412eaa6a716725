/**
 * The clustersets that a broker serves in addition to its own, as rows of its own store. Pure. A removed clusterset
 * keeps its row and its store: if it is created again, it continues with its previous members.
 */
import { join } from 'node:path'
import { isDnsLabel } from '../../model/model.ts'
import { RefusedError } from '../../protocol/protocol.ts'
import type { BrokerConfig, EtcdStoreConfig } from '../config/config.ts'
import { etcdUrlBelow } from './etcd/etcd-url.ts'
import type { LogView, Transaction } from './record-log.ts'
import { type ClustersetRow, SETTINGS_KEY } from './rows.ts'

/** Limit of rows, including removed ones: each is a label of metrics, a few files, and with etcd a connection. */
export const MAX_CLUSTERSETS = 32

export interface ClustersetInit {
  readonly name: string
  readonly globalRange: string
  readonly clustersetIpRange: string
}

export interface NamedClusterset extends ClustersetRow {
  readonly name: string
}

/** All rows, by name. Rows whose names no release could have written are left out. */
export function clustersetRows(view: LogView): readonly NamedClusterset[] {
  const rows = view.list('clusterset').filter(({ key }) => isDnsLabel(key))
  return rows.map(({ key, value }) => ({ ...value, name: key }))
}

/** The clustersets that are to be served. */
export function servedClustersets(view: LogView): readonly NamedClusterset[] {
  const own = ownName(view)
  return clustersetRows(view).filter(({ name, removedAtMs }) => removedAtMs === undefined && name !== own)
}

/**
 * Returns false if it exists with the same ranges. Throws RefusedError if the name is that of the broker's own, if the
 * clusterset exists with other ranges, or if there are too many.
 */
export function createClusterset(tx: Transaction, { name, ...ranges }: ClustersetInit, nowMs: number): boolean {
  if (!isDnsLabel(name)) throw invalid(name, 'an RFC 1123 label: 1 to 63 of a-z, 0-9 and -')
  if (name === ownName(tx))
    throw invalid(name, "a name other than that of the broker's own clusterset, which always exists")
  const known = tx.get('clusterset', name)
  if (known === undefined && tx.count('clusterset') >= MAX_CLUSTERSETS) {
    const text = `clusterset ${JSON.stringify(name)}: the limit of ${MAX_CLUSTERSETS} besides the broker's own is reached, including removed ones`
    throw new RefusedError('ClustersetLimit', 'clusterset', text)
  }
  if (known !== undefined) checkRanges(name, known, ranges)
  if (known !== undefined && known.removedAtMs === undefined) return false
  const { removedAtMs: _, ...before } = known ?? { createdAtMs: nowMs }
  tx.put('clusterset', name, { ...before, ...ranges })
  return true
}

/** Returns false if it had been removed before. Throws RefusedError if there is none of this name. */
export function removeClusterset(tx: Transaction, name: string, nowMs: number): boolean {
  if (name === ownName(tx)) throw invalid(name, "a clusterset other than the broker's own, which cannot be removed")
  const known = tx.get('clusterset', name)
  if (known === undefined) throw unknownClusterset(tx, name)
  if (known.removedAtMs !== undefined) return false
  tx.put('clusterset', name, { ...known, removedAtMs: nowMs })
  return true
}

/** Notes that the store of the clusterset exists. */
export function noteOpened(tx: Transaction, name: string, nowMs: number): void {
  const known = tx.get('clusterset', name)
  if (known !== undefined && known.openedAtMs === undefined) tx.put('clusterset', name, { ...known, openedAtMs: nowMs })
}

/** The refusal for a command that names an unknown clusterset: it names the existing ones. */
export function unknownClusterset(view: LogView, name: string): RefusedError {
  const names = [ownName(view) ?? '', ...servedClustersets(view).map((one) => one.name)]
  const text = `clusterset ${JSON.stringify(name.slice(0, 100))}: expected a clusterset that this broker serves: ${names.join(', ')}`
  return new RefusedError('ClustersetUnknown', 'clusterset', text)
}

/**
 * Name of the broker's own clusterset, whose files are directly in the state directory rather than in the folder of the
 * others.
 */
export function ownName(view: LogView): string | undefined {
  return view.get('settings', SETTINGS_KEY)?.clusterset
}

function checkRanges(name: string, known: ClustersetRow, given: Omit<ClustersetInit, 'name'>): void {
  for (const field of ['globalRange', 'clustersetIpRange'] as const) {
    if (known[field] === given[field]) continue
    const text = `${field} ${given[field]} of clusterset ${JSON.stringify(name)}: expected ${known[field]}, as at its creation, because members rely on it`
    throw new RefusedError('InvalidValue', field, text)
  }
}

function invalid(name: string, expected: string): RefusedError {
  const text = `clusterset ${JSON.stringify(name.slice(0, 100))}: expected ${expected}`
  return new RefusedError('InvalidValue', 'clusterset', text)
}

// The state of a clusterset: a folder in the broker's state directory with the same structure as that directory, and
// with etcd a prefix below the broker's. So everything that works on a state directory works on one clusterset.

const FOLDER = 'clustersets'

/** Takes a name that is a DNS label: other names must not become part of a path. */
export function clustersetDir(stateDir: string, name: string): string {
  return join(stateDir, FOLDER, name)
}

/** The etcd URL of a clusterset of the broker with this URL. Throws UserError that names `field`. */
export function clustersetUrl(url: string, field: string, name: string): string {
  return etcdUrlBelow(url, field, `${FOLDER}/${name}`)
}

/** The configuration of a broker that would serve only this clusterset. */
export function clustersetConfig(config: BrokerConfig, row: NamedClusterset): BrokerConfig {
  const { store, authorityDir } = config
  const { name, globalRange, clustersetIpRange } = row
  return {
    ...config,
    ...{ clusterset: name, globalRange, clustersetIpRange },
    // The object is about the broker's own clusterset.
    followsTopology: false,
    stateDir: clustersetDir(config.stateDir, name),
    ...(store === undefined ? {} : { store: belowStore(store, name) }),
    // An authority names its clusterset, so each clusterset has a directory of its own.
    ...(authorityDir === undefined ? {} : { authorityDir: join(authorityDir, name) }),
  }
}

function belowStore(store: EtcdStoreConfig, name: string): EtcdStoreConfig {
  return { ...store, url: clustersetUrl(store.url, '--store', name) }
}
