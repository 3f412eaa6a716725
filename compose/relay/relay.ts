/** Assembles a relay on port 443: certificate, authorities, process. */
import { createPrivateKey, createPublicKey, X509Certificate } from 'node:crypto'
import { chmodSync } from 'node:fs'
import { mkdir, readFile } from 'node:fs/promises'
import { join } from 'node:path'
import {
  certificateToPem,
  certificatesFromPem,
  createCa,
  createKey,
  createServerCertificate,
  keyFromPem,
  keyToPem,
} from '../../protocol/identity/identity.ts'
import type { ReasonCode } from '../../model/reasons/reasons.ts'
import { SystemClock } from '../../reconcile/reconcile.ts'
import { runRelay } from '../../relay/main.ts'
import {
  type ComponentDeps,
  UserError,
  checkReadable,
  messageOf,
  parseHostPort,
  replaceFile,
} from '../../runtime/runtime.ts'
import type { SharedPort } from '../../runtime/shared-port/shared-port.ts'
import type { LogThreshold } from '../../runtime/logging/logging.ts'
import { withProcess } from '../compose.ts'

export interface RelayProcessInit {
  readonly listen: string
  /** Files with authorities of the clustersets that are served, in PEM. */
  readonly ca: readonly string[]
  /** Certificate and key, in PEM. Absent: the relay makes its own. */
  readonly tls?: { readonly certificate: string; readonly key: string }
  /** A proxy on this machine ends TLS. */
  readonly plain: boolean
  /** Private folder with the key that the relay made. */
  readonly state: string
  readonly memberMbit?: number
  readonly pairMbit?: number
  readonly statusListen: readonly string[]
  readonly logLevel: LogThreshold
  /** Called with the pin when gateways can connect: undefined without TLS, and with a certificate of the operator. */
  readonly onListening?: (pin: string | undefined) => void
}

const KEY_FILE = 'relay.key'

/** A relay on the port of a broker, in its process. */
export interface RelayHereInit {
  /** Private folder with the key of the relay. */
  readonly state: string
  readonly shared: SharedPort
  /** The authorities of the clustersets that the broker serves, in DER. */
  readonly authorities: () => readonly Uint8Array[]
}

/**
 * What gateways may send through a relay in a broker's process, whose only thread also serves the members: a relay that
 * is to carry more runs by itself (`sealane relay serve`). What a member sends counts with what each datagram costs:
 * 100 Mbit/s in packets of 1400 octets.
 */
const HERE_LIMITS = {
  ends: 1024,
  pairBytesPerSecond: 12_500_000,
  memberBytesPerSecond: 17_000_000,
  totalBytesPerSecond: 50_000_000,
}

/** The pin of the relay that has its key in this folder. Makes the key if there is none. Throws UserError. */
export async function relayPin(state: string): Promise<string> {
  return (await ownIdentity(state)).pin
}

/** Serves until the signal. Throws UserError for a key that cannot be used. */
export async function serveRelayHere(deps: ComponentDeps, init: RelayHereInit, signal: AbortSignal): Promise<void> {
  const { tls } = await ownIdentity(init.state)
  const authorities = (): Promise<readonly Uint8Array[]> => Promise.resolve(init.authorities())
  const config = { host: 'the port of the broker', port: 0, tls, authorities, limits: HERE_LIMITS, shared: init.shared }
  await runRelay(deps, config, signal)
}

/** Throws UserError for files that cannot be used. */
export async function serveRelayProcess(init: RelayProcessInit, signal: AbortSignal): Promise<void> {
  const { host, port } = parseHostPort(init.listen, '--listen', true)
  const { tls, pin } = await identityOf(init)
  const authorities = (): Promise<readonly Uint8Array[]> => readAuthorities(init.ca)
  await authorities()
  await withProcess({ name: 'relay', ...init }, async (deps, started) => {
    const ownsKey = init.tls === undefined && !init.plain
    using lock = ownsKey ? await lockRelayFolder(init.state) : undefined
    if (lock?.isElsewhere === true) warnOfSharedFolder(deps, init.state)
    const onListening = (): void => {
      started()
      init.onListening?.(pin)
    }
    const limits = {
      ...(init.memberMbit === undefined ? {} : { memberBytesPerSecond: init.memberMbit * 125_000 }),
      ...(init.pairMbit === undefined ? {} : { pairBytesPerSecond: init.pairMbit * 125_000 }),
    }
    const config = { host, port, authorities, limits, ...(tls === undefined ? {} : { tls }) }
    await runRelay({ ...deps, onListening }, config, signal)
  })
}

/** It may be the one that this process replaces. Gateways tell the processes of one key apart. */
function warnOfSharedFolder({ logger }: Pick<ComponentDeps, 'logger'>, folder: string): void {
  const reason: ReasonCode = 'InvalidValue'
  const why = 'expected a folder of its own for each relay that is to stay (--state)'
  logger.warn('another relay serves with the key in this folder', { reason, folder, why })
}

interface Served {
  readonly tls?: { readonly certificate: string; readonly key: string }
  readonly pin?: string
}

async function identityOf({ tls, plain, state }: RelayProcessInit): Promise<Served> {
  if (plain) return {}
  if (tls !== undefined) {
    const [certificate, key] = [await read(tls.certificate), await read(tls.key)]
    try {
      if (new X509Certificate(certificate).checkPrivateKey(createPrivateKey(key))) return { tls: { certificate, key } }
    } catch (cause) {
      throw new UserError(`${tls.certificate}, ${tls.key}: ${messageOf(cause)}`, { cause })
    }
    throw new UserError(`${tls.key}: expected the key of ${tls.certificate}`)
  }
  return await ownIdentity(state)
}

async function ownIdentity(state: string): Promise<Required<Served>> {
  const key = await ownKey(state)
  // The key counts, by its pin. The certificate is made at each start, and lasts longer than a process.
  const nowMs = new SystemClock().now()
  const issuer = await createCa({ clusterset: 'relay', key: createKey(), nowMs })
  const { certificate } = await createServerCertificate(issuer, { clusterset: 'relay', key, nowMs, hosts: [] })
  // Loaded late: ws evaluates Node's HTTP client and server.
  const { pinOf } = await import('../../runtime/datagrams/relay-connection.ts')
  const pin = pinOf(createPublicKey(key).export({ type: 'spki', format: 'der' }))
  return { tls: { certificate: certificateToPem(certificate), key: keyToPem(key) }, pin }
}

async function ownKey(state: string): Promise<ReturnType<typeof createKey>> {
  const file = join(state, KEY_FILE)
  try {
    const text = await readFile(file, 'utf8').catch((error: unknown) => {
      if ((error as NodeJS.ErrnoException).code === 'ENOENT') return undefined
      throw error
    })
    if (text !== undefined) return keyFromPem(text)
    const key = createKey()
    await mkdir(state, { recursive: true, mode: 0o700 })
    await replaceFile(file, keyToPem(key))
    return key
  } catch (cause) {
    throw new UserError(`${file}: ${messageOf(cause)}`, { cause })
  }
}

async function readAuthorities(files: readonly string[]): Promise<readonly Uint8Array[]> {
  const lists = await Promise.all(
    files.map(async (file) => {
      const text = await read(file)
      try {
        return certificatesFromPem(text)
      } catch (cause) {
        throw new UserError(`${file}: ${messageOf(cause)}`, { cause })
      }
    }),
  )
  return lists.flat()
}

async function read(file: string): Promise<string> {
  try {
    checkReadable(file)
    return await readFile(file, 'utf8')
  } catch (cause) {
    throw new UserError(`${file}: ${messageOf(cause)}`, { cause })
  }
}

// Two relays that serve with the key of one folder are noticed.

const LOCK_FILE = 'relay.lock'
/** Codes of SQLite: busy. */
const SQLITE_BUSY = 5

export interface FolderLock extends Disposable {
  /** Another process has the lock. */
  readonly isElsewhere: boolean
}

/**
 * Takes `<folder>/relay.lock` until disposed, or until the process ends for any reason, unless another process has it.
 * Never waits for that one. Undefined for a folder that cannot be locked, such as one that is mounted read-only.
 */
export async function lockRelayFolder(folder: string): Promise<FolderLock | undefined> {
  const { DatabaseSync } = await import('node:sqlite')
  const file = join(folder, LOCK_FILE)
  let lock: InstanceType<typeof DatabaseSync> | undefined
  try {
    await mkdir(folder, { recursive: true, mode: 0o700 })
    lock = new DatabaseSync(file, { timeout: 0 })
    // No other user may open the file and take the lock.
    chmodSync(file, 0o600)
    lock.exec('BEGIN EXCLUSIVE')
    const held = lock
    return { isElsewhere: false, [Symbol.dispose]: () => held.close() }
  } catch (cause) {
    lock?.close()
    if ((cause as { errcode?: number }).errcode !== SQLITE_BUSY) return undefined
    return { isElsewhere: true, [Symbol.dispose]: () => undefined }
  }
}
