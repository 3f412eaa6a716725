/**
 * Where a clusterset of a broker has its state: in a folder of the broker's state directory, made like that directory
 * itself, and with etcd below the broker's prefix. So whatever works on a state directory works on one clusterset.
 */
import { join } from 'node:path'
import type { BrokerConfig, EtcdStoreConfig } from '../config.ts'
import { etcdUrlBelow } from '../log/etcd/etcd-url.ts'
import type { NamedClusterset } from './clusterset-rows.ts'

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
