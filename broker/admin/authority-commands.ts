/** The commands of operators on the certificate authority of a clusterset. */
import type { KeyObject } from 'node:crypto'
import { stat } from 'node:fs/promises'
import { quote } from '../../model/grammar/grammar.ts'
import type { AuthorityStatus, AuthorityStep, RotateInit } from '../../protocol/admin/admin.ts'
import { createCa, createKey } from '../../protocol/identity/identity.ts'
import { RefusedError } from '../../protocol/protocol.ts'
import { type AuditedCommandDeps, auditedCommand } from '../audit/audit.ts'
import {
  type StepDone,
  abortRotation,
  announce,
  authorityStatus,
  caFromPem,
  finishRotation,
  knownAuthority,
  requireAuthority,
  sharedKeys,
  writeSecond,
} from '../identity/identity.ts'
import { type AuditAct, type AuthorityRow, type Transaction, readIfThere } from '../store/store.ts'
import { type CommandInit, settingsOf } from './command-state.ts'

/** A chain of a few certificates has a few KiB. */
const MAX_CERTIFICATE_FILE = 256 << 10

export class AuthorityCommands {
  readonly #init: CommandInit
  readonly #audited: AuditedCommandDeps

  constructor(init: CommandInit) {
    this.#init = init
    this.#audited = { log: init.state.log, clock: init.clock, who: init.who }
  }

  async status(): Promise<AuthorityStatus> {
    const { log } = this.#init.state
    await log.refresh()
    return this.#statusOf(requireAuthority(log))
  }

  /** Throws as announce() does, and StateError for a file that cannot be read or written. */
  async rotate({ certificate: file, force }: RotateInit): Promise<AuthorityStep> {
    const { state, clock } = this.#init
    await state.log.refresh()
    const made = file === undefined ? await this.#make(force) : await readCertificateFile(file)
    const wanted = made === undefined ? undefined : knownAuthority(made, clock.now())
    const { clusterset } = settingsOf(state)
    const step = (tx: Transaction): StepDone => announce(tx, wanted, { clusterset, nowMs: clock.now(), force })
    const subject = wanted?.fingerprint ?? this.#next()
    return this.#step('authority.rotate', subject, { outside: file !== undefined, force }, step)
  }

  /** Throws as finishRotation() does. */
  finish({ force }: { readonly force: boolean }): Promise<AuthorityStep> {
    const step = (tx: Transaction): StepDone => finishRotation(tx, { force }, this.#init.clock.now())
    return this.#step('authority.finish', this.#next(), { force }, step)
  }

  /** Throws as abortRotation() does. */
  abort(): Promise<AuthorityStep> {
    const step = (tx: Transaction): StepDone => abortRotation(tx, this.#init.clock.now())
    return this.#step('authority.abort', this.#next(), {}, step)
  }

  async #step(
    act: AuditAct,
    subject: string | undefined,
    details: Readonly<Record<string, boolean>>,
    decide: (tx: Transaction) => StepDone,
  ): Promise<AuthorityStep> {
    const { row, repeated } = await auditedCommand(
      this.#audited,
      { act, ...(subject === undefined ? {} : { subject }), details },
      decide,
      ({ repeated }) => ({ details: { ...details, repeated } }),
    )
    return { ...this.#statusOf(row), repeated }
  }

  /**
   * A new key and its certificate, which are stored before they are announced. Undefined if an authority is announced
   * already. If the broker is killed in between, the stored authority is never announced and signs nothing.
   */
  async #make(force: boolean): Promise<Uint8Array | undefined> {
    const { state, clock, signal } = this.#init
    const row = requireAuthority(state.log)
    if (row.next !== undefined || force) return undefined
    const key: KeyObject = createKey()
    const { clusterset } = settingsOf(state)
    const { certificate } = await createCa({ clusterset, key, nowMs: clock.now() })
    await writeSecond(state.stateDir, certificate, key)
    // Other replicas must find the key when they learn of the authority.
    if (state.etcd !== undefined) await sharedKeys(state.etcd, signal).put(certificate, key)
    return certificate
  }

  #next(): string | undefined {
    return requireAuthority(this.#init.state.log).next?.fingerprint
  }

  #statusOf(row: AuthorityRow): AuthorityStatus {
    return authorityStatus(this.#init.state.log, row, this.#init.clock.now())
  }
}

async function readCertificateFile(file: string): Promise<Uint8Array> {
  // Another one, such as a pipe or a device, might never end.
  const isFile = await stat(file).then(
    (one) => one.isFile() && one.size <= MAX_CERTIFICATE_FILE,
    () => true,
  )
  if (!isFile) {
    const text = `certificate ${quote(file)}: expected a file of at most ${MAX_CERTIFICATE_FILE} bytes`
    throw new RefusedError('AuthorityUnusable', 'certificate', text)
  }
  const found = await readIfThere(file)
  if (found !== undefined) return caFromPem(file, found)
  const where =
    'on the machine or in the pod of the broker; a pod has Secret sealane-broker-authority at /etc/sealane/authority'
  const text = `certificate ${JSON.stringify(file)}: the file does not exist ${where}`
  throw new RefusedError('AuthorityUnusable', 'certificate', text)
}
