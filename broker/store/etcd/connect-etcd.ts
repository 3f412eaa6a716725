/** Connects to the etcd that a broker is configured with. */
import type { Clock } from '../../../reconcile/reconcile.ts'
import type { Logger } from '../../../runtime/logging/logging.ts'
import type { EtcdStoreConfig } from '../../config/config.ts'
import { CredentialFileError, CredentialFiles, type CredentialPaths, EtcdClient } from './client/etcd-client.ts'
import { EtcdStore } from './etcd-store.ts'
import { parseEtcdUrl } from './etcd-url.ts'
import { StateError } from '../record-log.ts'

export { openEtcdLog } from './etcd-log.ts'
export { emptyAgain } from './etcd-format.ts'

export interface ConnectEtcdDeps {
  readonly clock: Clock
  readonly logger: Logger
}

/** Reads the files that the configuration names. The first call connects. Throws StateError or UserError. */
export function connectEtcd({ clock, logger }: ConnectEtcdDeps, config: EtcdStoreConfig): EtcdStore {
  const { endpoints, prefix, user } = parseEtcdUrl(config.url, '--store')
  checkPairs(config, user)
  const { caFile: ca, certificateFile: certificate, keyFile: key, passwordFile: password } = config
  const files = openFiles({ ca, certificate, key, password }, user)
  const client = new EtcdClient({ endpoints, credentials: files, clock, logger })
  return new EtcdStore(client, prefix)
}

function openFiles(paths: CredentialPaths, user: string | undefined): CredentialFiles {
  try {
    return new CredentialFiles(paths, user)
  } catch (error) {
    if (error instanceof CredentialFileError) throw new StateError('Denied', error.file, error.message, error)
    throw error
  }
}

function checkPairs({ url, certificateFile, keyFile, passwordFile }: EtcdStoreConfig, user: string | undefined): void {
  const wrong = (text: string): StateError => new StateError('Denied', url, text)
  if ((certificateFile === undefined) !== (keyFile === undefined))
    throw wrong('--etcd-cert and --etcd-key: expected both, or none')
  if (user !== undefined && passwordFile === undefined)
    throw wrong(`--store names user ${JSON.stringify(user)}: expected the file with its password, --etcd-password-file`)
  if (user === undefined && passwordFile !== undefined)
    throw wrong('--etcd-password-file: expected a user in --store, as in etcd://USER@HOST:PORT/PREFIX')
}
