/** The way to the etcd that a broker is configured with. */
import { readFile } from 'node:fs/promises'
import type { Clock } from '../../reconcile/clock.ts'
import type { Logger } from '../../runtime/logging/logger.ts'
import { messageOf } from '../../runtime/thrown.ts'
import type { EtcdStoreConfig } from '../config.ts'
import { EtcdClient, type EtcdLogin } from '../log/etcd/client/etcd-client.ts'
import { EtcdStore } from '../log/etcd/etcd-store.ts'
import { parseEtcdUrl } from '../log/etcd/etcd-url.ts'
import { StateError } from '../log/record-log.ts'

export { openEtcdLog } from '../log/etcd/etcd-log.ts'
export { emptyAgain } from '../log/etcd/open-store.ts'

export interface ConnectEtcdDeps {
  readonly clock: Clock
  readonly logger: Logger
}

/** Reads the files that the configuration names; connects with the first call. Throws StateError or UserError. */
export async function connectEtcd({ clock, logger }: ConnectEtcdDeps, config: EtcdStoreConfig): Promise<EtcdStore> {
  const { endpoints, prefix, user } = parseEtcdUrl(config.url, '--store')
  const { caFile, certificateFile, keyFile, passwordFile } = config
  checkPairs(config, user)
  const [ca, certificate, key, password] = await Promise.all(
    [caFile, certificateFile, keyFile, passwordFile].map((file) => readGiven(file)),
  )
  const login: EtcdLogin | undefined =
    user === undefined || password === undefined ? undefined : { user, password: password.replace(/\r?\n$/, '') }
  const tls = {
    ...(ca === undefined ? {} : { ca }),
    ...(certificate === undefined ? {} : { certificate }),
    ...(key === undefined ? {} : { key }),
  }
  return new EtcdStore(new EtcdClient({ endpoints, tls, login, clock, logger }), prefix)
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

async function readGiven(file: string | undefined): Promise<string | undefined> {
  if (file === undefined) return undefined
  try {
    return await readFile(file, 'utf8')
  } catch (error) {
    throw new StateError('Denied', file, `${file} cannot be read (${messageOf(error)})`, error)
  }
}
