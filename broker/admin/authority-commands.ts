/** The authority for `sealane broker ca`: works on the store, whether the broker runs or not. */
import type { KeyObject } from 'node:crypto'
import { RefusedError } from '../../protocol/protocol.ts'
import { createCa, createKey } from '../../protocol/identity/identity.ts'
import type { Clock } from '../../reconcile/reconcile.ts'
import {
  type AuditAct,
  type AuthorityRow,
  type OpenedState,
  type Transaction,
  openBeside,
  readIfThere,
} from '../store/store.ts'
import { type AuditedCommandDeps, auditedCommand, localOperator } from '../audit/audit.ts'
import {
  type AuthorityStatus,
  type SharedKeys,
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

export interface RotateInit {
  /**
   * Certificate file of an authority whose key the broker has from elsewhere. If absent, a new authority is created.
   */
  readonly certificate?: string
  /** Makes an announced authority sign and serve at once. */
  readonly force: boolean
}

/** `repeated`: the step was done before, and nothing was changed. */
export type AuthorityStep = AuthorityStatus & { readonly repeated: boolean }

export interface AuthorityStore {
  status(): Promise<AuthorityStatus>
  /** Throws as announce() does, and StateError for a file that cannot be read or written. */
  rotate(init: RotateInit): Promise<AuthorityStep>
  /** Throws as finishRotation() does. */
  finish(init: { readonly force: boolean }): Promise<AuthorityStep>
  /** Throws as abortRotation() does. */
  abort(): Promise<AuthorityStep>
  close(): Promise<void>
}

/** Throws StateError if there is no broker state yet, or if it cannot be used. */
export async function openAuthorityStore(stateDir: string, clock: Clock): Promise<AuthorityStore> {
  return new LogAuthorityStore(await openBeside(stateDir, clock), clock, stateDir)
}

class LogAuthorityStore implements AuthorityStore {
  readonly #opened: OpenedState
  readonly #clock: Clock
  readonly #stateDir: string
  readonly #shared: SharedKeys | undefined
  readonly #stop = new AbortController()
  readonly #audited: AuditedCommandDeps

  constructor(opened: OpenedState, clock: Clock, stateDir: string) {
    const { log, etcd } = opened
    this.#opened = opened
    this.#clock = clock
    this.#stateDir = stateDir
    this.#shared = etcd === undefined ? undefined : sharedKeys(etcd, this.#stop.signal)
    this.#audited = { log, clock, who: localOperator() }
  }

  async status(): Promise<AuthorityStatus> {
    await this.#opened.log.refresh()
    return this.#statusOf(requireAuthority(this.#opened.log))
  }

  async rotate({ certificate: file, force }: RotateInit): Promise<AuthorityStep> {
    await this.#opened.log.refresh()
    const made = file === undefined ? await this.#make(force) : await readCertificateFile(file)
    const wanted = made === undefined ? undefined : knownAuthority(made, this.#clock.now())
    const { clusterset } = this.#opened.settings
    const step = (tx: Transaction): StepDone => announce(tx, wanted, { clusterset, nowMs: this.#clock.now(), force })
    const subject = wanted?.fingerprint ?? this.#next()
    return this.#step('authority.rotate', subject, { outside: file !== undefined, force }, step)
  }

  finish({ force }: { readonly force: boolean }): Promise<AuthorityStep> {
    const step = (tx: Transaction): StepDone => finishRotation(tx, { force }, this.#clock.now())
    return this.#step('authority.finish', this.#next(), { force }, step)
  }

  abort(): Promise<AuthorityStep> {
    const step = (tx: Transaction): StepDone => abortRotation(tx, this.#clock.now())
    return this.#step('authority.abort', this.#next(), {}, step)
  }

  close(): Promise<void> {
    this.#stop.abort(new Error('the command has ended'))
    return this.#opened.close()
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
   * already. If the command is killed in between, the stored authority is never announced and signs nothing.
   */
  async #make(force: boolean): Promise<Uint8Array | undefined> {
    const row = requireAuthority(this.#opened.log)
    if (row.next !== undefined || force) return undefined
    const key: KeyObject = createKey()
    const { clusterset } = this.#opened.settings
    const { certificate } = await createCa({ clusterset, key, nowMs: this.#clock.now() })
    await writeSecond(this.#stateDir, certificate, key)
    // Other replicas must find the key when they learn of the authority.
    await this.#shared?.put(certificate, key)
    return certificate
  }

  #next(): string | undefined {
    return requireAuthority(this.#opened.log).next?.fingerprint
  }

  #statusOf(row: AuthorityRow): AuthorityStatus {
    return authorityStatus(this.#opened.log, row, this.#clock.now())
  }
}

async function readCertificateFile(file: string): Promise<Uint8Array> {
  const found = await readIfThere(file)
  if (found !== undefined) return caFromPem(file, found)
  const where = 'where the broker runs; a pod has Secret sealane-broker-authority in /etc/sealane/authority'
  const text = `certificate ${JSON.stringify(file)}: there is no such file ${where}`
  throw new RefusedError('AuthorityUnusable', 'certificate', text)
}
