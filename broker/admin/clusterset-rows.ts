/**
 * The clustersets that a broker serves beside its own, as rows of its own store. Pure. One that is removed keeps its row
 * and its store: created again, it goes on with its members as they were.
 */
import { join } from 'node:path'
import { isDnsLabel } from '../../model/model.ts'
import { RefusedError } from '../../protocol/protocol.ts'
import type { BrokerConfig, EtcdStoreConfig } from '../config/config.ts'
import { type ClustersetRow, type LogView, SETTINGS_KEY, type Transaction, etcdUrlBelow } from '../store/store.ts'

/** Rows, removed ones included: each is a label of metrics, a few files, and with etcd a connection. */
export const MAX_CLUSTERSETS = 32

export interface ClustersetInit {
  readonly name: string
  readonly globalRange: string
  readonly clustersetIpRange: string
}

export interface NamedClusterset extends ClustersetRow {
  readonly name: string
}

/** All that there are, by name. A row that no release of ours has written counts as none. */
export function clustersetRows(view: LogView): readonly NamedClusterset[] {
  const rows = view.list('clusterset').filter(({ key }) => isDnsLabel(key))
  return rows.map(({ key, value }) => ({ ...value, name: key }))
}

/** Those that are to be served. */
export function servedClustersets(view: LogView): readonly NamedClusterset[] {
  const own = ownName(view)
  return clustersetRows(view).filter(({ name, removedAtMs }) => removedAtMs === undefined && name !== own)
}

/**
 * False: it is there already, just so. Throws RefusedError: the name is taken by the broker's own, the clusterset is
 * there with other ranges, or there are too many.
 */
export function createClusterset(tx: Transaction, { name, ...ranges }: ClustersetInit, nowMs: number): boolean {
  if (!isDnsLabel(name)) throw invalid(name, 'an RFC 1123 label: 1 to 63 of a-z, 0-9 and -')
  if (name === ownName(tx)) throw invalid(name, "another name: this is the broker's own, which is always there")
  const known = tx.get('clusterset', name)
  if (known === undefined && tx.count('clusterset') >= MAX_CLUSTERSETS) {
    const text = `clusterset ${JSON.stringify(name)}: there are ${MAX_CLUSTERSETS} beside the broker's own already, removed ones included`
    throw new RefusedError('ClustersetLimit', 'clusterset', text)
  }
  if (known !== undefined) checkRanges(name, known, ranges)
  if (known !== undefined && known.removedAtMs === undefined) return false
  const { removedAtMs: _, ...before } = known ?? { createdAtMs: nowMs }
  tx.put('clusterset', name, { ...before, ...ranges })
  return true
}

/** False: it was removed before. Throws RefusedError where there is none of this name. */
export function removeClusterset(tx: Transaction, name: string, nowMs: number): boolean {
  if (name === ownName(tx)) throw invalid(name, "another one: this is the broker's own, which is always there")
  const known = tx.get('clusterset', name)
  if (known === undefined) throw unknownClusterset(tx, name)
  if (known.removedAtMs !== undefined) return false
  tx.put('clusterset', name, { ...known, removedAtMs: nowMs })
  return true
}

/** Its store is there. */
export function noteOpened(tx: Transaction, name: string, nowMs: number): void {
  const known = tx.get('clusterset', name)
  if (known !== undefined && known.openedAtMs === undefined) tx.put('clusterset', name, { ...known, openedAtMs: nowMs })
}

/** For a command that names one: which ones there are. */
export function unknownClusterset(view: LogView, name: string): RefusedError {
  const names = [ownName(view) ?? '', ...servedClustersets(view).map((one) => one.name)]
  const text = `clusterset ${JSON.stringify(name.slice(0, 100))}: expected one that this broker serves: ${names.join(', ')}`
  return new RefusedError('ClustersetUnknown', 'clusterset', text)
}

/** Of the broker's own, which has all of its state directory but the folder of the others. */
export function ownName(view: LogView): string | undefined {
  return view.get('settings', SETTINGS_KEY)?.clusterset
}

function checkRanges(name: string, known: ClustersetRow, given: Omit<ClustersetInit, 'name'>): void {
  for (const field of ['globalRange', 'clustersetIpRange'] as const) {
    if (known[field] === given[field]) continue
    const text = `${field} ${given[field]} of clusterset ${JSON.stringify(name)}: expected ${known[field]}, as it was created: members rely on it`
    throw new RefusedError('InvalidValue', field, text)
  }
}

function invalid(name: string, expected: string): RefusedError {
  const text = `clusterset ${JSON.stringify(name.slice(0, 100))}: expected ${expected}`
  return new RefusedError('InvalidValue', 'clusterset', text)
}

// Where a clusterset of a broker has its state: in a folder of the broker's state directory, made like that directory
// itself, and with etcd below the broker's prefix. So whatever works on a state directory works on one clusterset.

const FOLDER = 'clustersets'

/** Takes a name that is a DNS label: nothing else becomes part of a path. */
export function clustersetDir(stateDir: string, name: string): string {
  return join(stateDir, FOLDER, name)
}

/** The place in etcd of a clusterset of the broker that has this one. Throws UserError that names `field`. */
export function clustersetUrl(url: string, field: string, name: string): string {
  return etcdUrlBelow(url, field, `${FOLDER}/${name}`)
}

/** The configuration of a broker that would serve this clusterset alone. */
export function clustersetConfig(config: BrokerConfig, row: NamedClusterset): BrokerConfig {
  const { store, authorityDir } = config
  const { name, globalRange, clustersetIpRange } = row
  return {
    ...config,
    ...{ clusterset: name, globalRange, clustersetIpRange },
    stateDir: clustersetDir(config.stateDir, name),
    ...(store === undefined ? {} : { store: belowStore(store, name) }),
    // An authority names its clusterset, so those of several are apart.
    ...(authorityDir === undefined ? {} : { authorityDir: join(authorityDir, name) }),
  }
}

function belowStore(store: EtcdStoreConfig, name: string): EtcdStoreConfig {
  return { ...store, url: clustersetUrl(store.url, '--store', name) }
}
