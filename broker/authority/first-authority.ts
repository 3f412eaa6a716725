/**
 * Which authority a clusterset has when its broker starts: as the store says; else, once, the one in the state
 * directory, where earlier releases have it, or the one that an operator gives; else a new one.
 */
import { join } from 'node:path'
import { createCa } from '../../protocol/identity/x509.ts'
import { certificateToPem, fingerprint } from '../../protocol/identity/pem.ts'
import { readCertificate } from '../../protocol/identity/read-certificate.ts'
import type { Clock } from '../../reconcile/clock.ts'
import { type RecordLog, StateError } from '../log/record-log.ts'
import { AUTHORITY_KEY, type AuthorityRow, type KnownAuthority } from '../state/state.ts'
import { CA_CERTIFICATE, CA_KEY, caFromPem, isPair, openKey, readKey, settleFiles } from './authority-files.ts'
import type { AuthorityKeys, SharedKeys } from './authority-keys.ts'
import { certificateOf, certificateProblem, knownAuthority } from './known-authority.ts'
import { readIfThere, writeSafely } from '../state/state-files.ts'

interface Deps {
  readonly clock: Clock
  readonly log: RecordLog
}

interface Init {
  readonly stateDir: string
  readonly clusterset: string
  readonly givenDir?: string
  readonly shared?: SharedKeys
}

/** Throws StateError where there is none that can be used, naming the file. */
export async function firstAuthority(deps: Deps, init: Init, keys: AuthorityKeys): Promise<AuthorityRow> {
  const { clock, log } = deps
  const stored = log.get('authority', AUTHORITY_KEY)
  const own = init.shared === undefined ? undefined : await ownAuthority(init.stateDir)
  if (stored !== undefined) refuseOther(own, stored, init)
  const current = stored?.current ?? knownAuthority(await found(deps, init, keys), clock.now())
  // Its key is where other replicas find it before they hear of it.
  await check(current, init, { keys, nowMs: clock.now() })
  const row = await log.transact((tx) => {
    // Another replica may have been first.
    const row = tx.get('authority', AUTHORITY_KEY)
    if (row !== undefined) return row
    const made = { current, removed: [] }
    tx.put('authority', AUTHORITY_KEY, made)
    return made
  })
  refuseOther(own, row, init)
  if (row.current.fingerprint !== current.fingerprint) {
    // Another replica was first. Only what was made a moment ago makes way.
    await init.shared?.remove(current.fingerprint)
    await check(row.current, init, { keys, nowMs: clock.now() })
  }
  if (init.shared !== undefined) await settleFiles(init.stateDir, { current: certificateOf(row.current), removed: [] })
  return row
}

/** Fingerprint of the authority in the state directory. */
async function ownAuthority(stateDir: string): Promise<string | undefined> {
  const file = join(stateDir, CA_CERTIFICATE)
  const text = await readIfThere(file)
  return text === undefined ? undefined : fingerprint(caFromPem(file, text))
}

/** Throws StateError where the directory is of another clusterset, whose key would be written over. */
function refuseOther(
  own: string | undefined,
  { current, next, removed }: AuthorityRow,
  { stateDir, shared }: Init,
): void {
  const known = [current, ...(next === undefined ? [] : [next]), ...removed]
  if (own === undefined || known.some((one) => one.fingerprint === own)) return
  const file = join(stateDir, CA_CERTIFICATE)
  const text = `${file} is another certificate authority than that of ${shared?.where}: choose an empty state directory, or another prefix`
  throw new StateError('Foreign', file, text)
}

/** DER. */
async function found({ clock }: Deps, init: Init, keys: AuthorityKeys): Promise<Uint8Array> {
  const { stateDir, clusterset, givenDir } = init
  const file = join(stateDir, CA_CERTIFICATE)
  const text = await readIfThere(file)
  if (text !== undefined) return caFromPem(file, text)
  const { certificates } = await keys.given()
  const [certificate, ...others] = certificates
  if (certificate === undefined) {
    // A key without certificate is a first start that was interrupted.
    const key = await openKey(join(stateDir, CA_KEY))
    const made = await createCa({ clusterset, key, nowMs: clock.now() })
    await writeSafely(file, certificateToPem(made.certificate))
    return made.certificate
  }
  if (others.length > 0) {
    const message = `${givenDir} has ${certificates.length} certificates: expected one of a CA at the first start`
    throw new StateError('Failed', givenDir ?? '', message)
  }
  const problem = certificateProblem(knownAuthority(certificate, 0), clusterset, clock.now())
  if (problem === undefined) return certificate
  throw new StateError(
    'Failed',
    givenDir ?? '',
    `${givenDir}: the certificate in it cannot be the authority: ${problem}`,
  )
}

async function check(
  current: KnownAuthority,
  init: Init,
  { keys, nowMs }: { readonly keys: AuthorityKeys; readonly nowMs: number },
): Promise<void> {
  const { stateDir, clusterset } = init
  const file = join(stateDir, CA_CERTIFICATE)
  const certificate = certificateOf(current)
  if ((await keys.load([current])).get(current) === undefined) await refuseWithoutKey(certificate, init)
  const facts = readCertificate(certificate)
  if (facts.clusterset !== clusterset) {
    throw new StateError(
      'Failed',
      file,
      `${file} belongs to clusterset "${facts.clusterset ?? ''}", not "${clusterset}": a clusterset cannot be renamed`,
    )
  }
  if (facts.notAfterMs > nowMs) return
  const at = new Date(facts.notAfterMs).toISOString()
  throw new StateError('Failed', file, `${file} expired at ${at}: check this machine's clock`)
}

async function refuseWithoutKey(certificate: Uint8Array, { stateDir, givenDir, shared }: Init): Promise<never> {
  const [file, keyFile] = [join(stateDir, CA_CERTIFICATE), join(stateDir, CA_KEY)]
  const text = await readIfThere(file)
  const key = await readKey(keyFile)
  if (text !== undefined && key === undefined) {
    const message = `${keyFile} is missing, but ${file} is there: restore the key from a backup`
    throw new StateError('Failed', keyFile, message)
  }
  if (text !== undefined && key !== undefined && !isPair(caFromPem(file, text), key)) {
    const message = `${keyFile} does not belong to ${file}: restore both from one backup`
    throw new StateError('Failed', keyFile, message)
  }
  const others = [givenDir, shared?.where].flatMap((one) => (one === undefined ? [] : [`, nor in ${one}`]))
  const short = knownAuthority(certificate, 0).fingerprint.slice(0, 16)
  const message = `the key of authority ${short}, which this clusterset has, is not in ${stateDir}${others.join('')}: restore it`
  throw new StateError('Failed', keyFile, message)
}
