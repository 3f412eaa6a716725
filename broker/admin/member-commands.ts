/** The commands of operators on join tokens and members of a clusterset. */
import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { DEFAULT_MEMBER_QUOTA, parseClusterId } from '../../model/model.ts'
import { parsePrefix } from '../../model/addresses/addresses.ts'
import type {
  AccessDefaultFacts,
  Answer,
  AnswerInit,
  DrainInit,
  DrainResult,
  EvictInit,
  Eviction,
  MadeToken,
  MemberSummary,
  QuotaInit,
  RekeyInit,
  TokenInit,
  TokenSummary,
  WaitingSummary,
} from '../../protocol/admin/admin.ts'
import { RefusedError } from '../../protocol/protocol.ts'
import { certificatesFromPem, createJoinToken, fingerprint, hashTokenSecret } from '../../protocol/identity/identity.ts'
import type { Clock } from '../../reconcile/reconcile.ts'
import { labelsText } from '../addresses/addresses.ts'
import { type AuditedCommand, type AuditedCommandDeps, auditedCommand } from '../audit/audit.ts'
import { DEFAULT_TOKEN_TTL_MS, DEFAULT_TOKEN_USES } from '../config/config.ts'
import { bundleOf, signingAuthority } from '../identity/identity.ts'
import {
  MAX_TOKENS,
  acceptWaiting,
  checkNewId,
  drainMember,
  evictMember,
  isTokenId,
  memberSummaries,
  rangesDetails,
  refuseWaiting,
  rekeyMember,
  revokeToken,
  waitingDetails,
  waitingJoin,
  waitingJoins,
  waitingSummaries,
} from '../members/members.ts'
import { admitLabels, changeQuota, refusedFacts } from '../records/records.ts'
import {
  AUTHORITY_KEY,
  DATABASE_FILE,
  type LogView,
  type RecordLog,
  SETTINGS_KEY,
  StateError,
  type TokenRow,
  type Transaction,
  absentState,
} from '../store/store.ts'
import { type CommandInit, settingsOf } from './command-state.ts'

const MAX_TTL_MS = 30 * 24 * 3_600_000
const MAX_USES = 1000
/** As many CIDRs as a cluster may state of both kinds. */
const MAX_ALLOWED = 32

export class MemberCommands {
  readonly #init: CommandInit
  readonly #log: RecordLog
  readonly #clock: Clock
  readonly #audited: AuditedCommandDeps

  constructor(init: CommandInit) {
    const { state, clock, who } = init
    this.#init = init
    this.#log = state.log
    this.#clock = clock
    this.#audited = { log: state.log, clock, who }
  }

  /** Throws RefusedError, also (TokenLabelsNotSupported) for labels while a replica of an earlier release runs. */
  create(init: TokenInit): Promise<MadeToken> {
    return this.#create('token.create', init, () => undefined)
  }

  /** Throws RefusedError as create() and rekeyMember() do. */
  rekey({ cluster, ttlMs }: RekeyInit): Promise<MadeToken> {
    const init = { cluster, ...(ttlMs === undefined ? {} : { ttlMs }) }
    return this.#create('cluster.rekey', init, (tx) => rekeyMember(tx, cluster, this.#clock.now()))
  }

  /** `also` runs in the same transaction. */
  async #create(
    act: 'token.create' | 'cluster.rekey',
    init: TokenInit,
    also: (tx: Transaction) => void,
  ): Promise<MadeToken> {
    const pin = await readPin(this.#log, this.#init.state.stateDir)
    const { cluster, ttlMs = DEFAULT_TOKEN_TTL_MS, uses = DEFAULT_TOKEN_USES, allowedCIDRs = [], approve } = init
    const labels = labelsOf(init)
    const asks = approve === undefined ? {} : { approve }
    const subject = act === 'cluster.rekey' && cluster !== undefined ? { subject: cluster } : {}
    const details = {
      ...(cluster === undefined ? {} : { cluster }),
      ttlSeconds: ttlMs / 1000,
      uses,
      allowedCIDRs,
      ...(labels === undefined ? {} : { labels: labelsText(labels) }),
      ...asks,
    }
    const careless = labels === undefined ? [] : await this.#ignoringLabels()
    return auditedCommand(
      this.#audited,
      { act, ...subject, details },
      (tx) => {
        if (careless.length > 0) throw labelsNotSupported(careless)
        return this.#make(tx, init, { also, pin })
      },
      ({ id, expiresAtMs }) => ({
        ...(act === 'token.create' ? { subject: id } : {}),
        details: { ...details, token: id, expires: new Date(expiresAtMs).toISOString() },
      }),
    )
  }

  /**
   * Replicas that would grant a join with the token and leave its labels out, so that the member could state others.
   * One that starts later is not noticed.
   */
  async #ignoringLabels(): Promise<readonly string[]> {
    const { state, signal } = this.#init
    if (state.etcd === undefined) return []
    const { replicasWithout } = await import('./etcd-status.ts')
    return replicasWithout('keepsTokenLabels', state.etcd, signal)
  }

  /** `pin` is for a state that no broker of this release has served yet. */
  #make(
    tx: Transaction,
    init: TokenInit,
    { also, pin }: { readonly also: (tx: Transaction) => void; readonly pin: string },
  ): MadeToken {
    const { ttlMs = DEFAULT_TOKEN_TTL_MS, uses = DEFAULT_TOKEN_USES, allowedCIDRs = [] } = init
    checkInit(ttlMs, uses)
    checkAllowed(allowedCIDRs)
    const labels = labelsOf(init)
    if (labels !== undefined) checkLabels(labels)
    const cluster = init.cluster === undefined ? undefined : parseClusterId(init.cluster, 'cluster')
    const nowMs = this.#clock.now()
    const { advertise, clusterset } = settingsOf(this.#init.state)
    const [caPin = pin, ...otherPins] = pinsOf(tx)
    const pins = { caPin, ...(otherPins.length === 0 ? {} : { otherPins }) }
    const token = createJoinToken({ addresses: advertise, ...pins, clusterset, expiresAtMs: nowMs + ttlMs })
    const row: TokenRow = {
      hash: hashTokenSecret(token.secret()),
      createdAtMs: nowMs,
      expiresAtMs: nowMs + ttlMs,
      usesLeft: uses,
      uses: [],
      pins: [caPin, ...otherPins],
      ...(cluster === undefined ? {} : { cluster }),
      ...(allowedCIDRs.length === 0 ? {} : { allowedCIDRs }),
      ...(labels === undefined ? {} : { labels }),
      ...(init.approve === true ? { approve: true } : {}),
    }
    if (cluster !== undefined) checkNewId(tx, cluster)
    also(tx)
    if (tx.count('token') >= MAX_TOKENS) {
      throw new RefusedError(
        'TokenLimit',
        'token',
        `token: the limit of ${MAX_TOKENS} tokens is reached; tokens are removed a week after they expire; ` +
          'to let many clusters join with one token: "sealane token create --uses"',
      )
    }
    tx.put('token', token.id, row)
    return { ...summary(tx, token.id, row, nowMs), text: token.text() }
  }

  async list(): Promise<TokenSummary[]> {
    // The broker may have written in the meantime.
    await this.#log.refresh()
    return this.#log
      .list('token')
      .map(({ key, value }) => summary(this.#log, key, value, this.#clock.now()))
      .sort((a, b) => b.createdAtMs - a.createdAtMs || (a.id < b.id ? -1 : 1))
  }

  /** Throws RefusedError if there is no such token. */
  async revoke({ id }: { readonly id: string }): Promise<TokenSummary> {
    const command: AuditedCommand = { act: 'token.revoke', ...(isTokenId(id) ? { subject: id } : {}) }
    const row = await auditedCommand(this.#audited, command, (tx) => revokeToken(tx, id, this.#clock.now()))
    return summary(this.#log, id, row, this.#clock.now())
  }

  async members(): Promise<MemberSummary[]> {
    await this.#log.refresh()
    return memberSummaries(this.#log, this.#clock.now())
  }

  /** Throws as evictMember() does. */
  evict(init: EvictInit): Promise<Eviction> {
    const { globalRange, clustersetIpRange } = settingsOf(this.#init.state)
    const rules = { globalRange, clustersetIpRange, allowedNamespaces: [], quota: DEFAULT_MEMBER_QUOTA }
    const details = { force: init.force }
    return auditedCommand(
      this.#audited,
      { act: 'cluster.evict', subject: init.cluster, details },
      (tx) => evictMember(tx, init, { rules, nowMs: this.#clock.now() }),
      ({ repeated }) => ({ details: { ...details, repeated } }),
    )
  }

  /** Throws as drainMember() does. */
  async drain(init: DrainInit): Promise<DrainResult> {
    const now = init.drained && init.now === true ? { now: true as const } : {}
    const act = init.drained ? 'cluster.drain' : 'cluster.undrain'
    const command = { act, subject: init.cluster, details: now } as const
    const changed = await auditedCommand(
      this.#audited,
      command,
      (tx) => drainMember(tx, init),
      (done) => ({ details: { ...now, repeated: !done } }),
    )
    return { changed, ...now }
  }

  /** Throws as changeQuota() does. */
  async changeQuota(init: QuotaInit): Promise<{ readonly changed: boolean }> {
    const set = Object.entries(init.change).filter(
      (pair): pair is [string, number | 'default'] => pair[1] !== undefined,
    )
    const details = Object.fromEntries(set)
    const changed = await auditedCommand(
      this.#audited,
      { act: 'cluster.quota', subject: init.cluster, details },
      (tx) => changeQuota(tx, init),
      (done) => ({ details: { ...details, repeated: !done } }),
    )
    return { changed }
  }

  async accessDefault(): Promise<AccessDefaultFacts> {
    await this.#log.refresh()
    const { accessDefault } = settingsOf(this.#init.state)
    return { accessDefault: accessDefault ?? 'allow', isSet: accessDefault !== undefined }
  }

  async setAccessDefault({ accessDefault }: Pick<AccessDefaultFacts, 'accessDefault'>): Promise<{
    readonly changed: boolean
  }> {
    const details = { default: accessDefault }
    const changed = await auditedCommand(
      this.#audited,
      { act: 'access.default', details },
      (tx) => {
        const settings = tx.get('settings', SETTINGS_KEY) ?? settingsOf(this.#init.state)
        if (settings.accessDefault === accessDefault) return false
        tx.put('settings', SETTINGS_KEY, { ...settings, accessDefault })
        return true
      },
      (done) => ({ details: { ...details, repeated: !done } }),
    )
    return { changed }
  }

  async waiting(): Promise<WaitingSummary[]> {
    await this.#log.refresh()
    return waitingSummaries(this.#log, this.#clock.now())
  }

  /** Throws as acceptWaiting() does. */
  accept(init: AnswerInit): Promise<Answer> {
    return this.#answer('cluster.accept', init, acceptWaiting)
  }

  /** Throws as refuseWaiting() does. */
  refuse(init: AnswerInit): Promise<Answer> {
    return this.#answer('cluster.refuse', init, refuseWaiting)
  }

  #answer(act: 'cluster.accept' | 'cluster.refuse', init: AnswerInit, answer: typeof acceptWaiting): Promise<Answer> {
    let details: AuditedCommand['details'] = init.fingerprint === undefined ? {} : { fingerprint: init.fingerprint }
    const command = { act, subject: init.cluster, details }
    return auditedCommand(
      this.#audited,
      command,
      (tx) => {
        const given = answer(tx, init, this.#clock.now())
        if (given.token === '') details = rangesDetails(tx, given.id) ?? details
        const row = waitingJoin(tx, given.id, given.token, this.#clock.now())
        if (row !== undefined) details = waitingDetails({ cluster: given.id, token: given.token, row })
        return given
      },
      ({ repeated }) => ({ details: { ...details, repeated } }),
    )
  }
}

function checkInit(ttlMs: number, uses: number): void {
  if (!Number.isFinite(ttlMs) || ttlMs < 1000 || ttlMs > MAX_TTL_MS) {
    throw new RefusedError('InvalidValue', 'ttl', `ttl ${ttlMs / 1000} s: expected 1 second to 30 days`)
  }
  if (!Number.isInteger(uses) || uses < 1 || uses > MAX_USES) {
    throw new RefusedError('InvalidValue', 'uses', `uses ${uses}: expected 1 to ${MAX_USES}`)
  }
}

/** Throws RefusedError for more CIDRs than a cluster can state, and for a text that is not a CIDR. */
function checkAllowed(cidrs: readonly string[]): void {
  if (cidrs.length > MAX_ALLOWED) {
    throw new RefusedError(
      'InvalidValue',
      'allowedCIDRs',
      `allowedCIDRs has ${cidrs.length} entries: expected at most ${MAX_ALLOWED}`,
    )
  }
  for (const cidr of cidrs) {
    try {
      parsePrefix(cidr, 'allowedCIDRs')
    } catch (error) {
      throw new RefusedError('InvalidValue', 'allowedCIDRs', (error as Error).message)
    }
  }
}

/** Undefined if there are none. */
function labelsOf({ labels = {} }: TokenInit): TokenInit['labels'] {
  return Object.keys(labels).length === 0 ? undefined : labels
}

function labelsNotSupported(replicas: readonly string[]): RefusedError {
  const why = 'while brokers that do not state that they keep labels serve this store'
  const text = `labels: expected none ${why}: ${replicas.join(', ')}`
  return new RefusedError('TokenLabelsNotSupported', 'labels', text)
}

/** Throws RefusedError for labels that a member could not have. */
function checkLabels(labels: NonNullable<TokenInit['labels']>): void {
  const problem = admitLabels(labels)
  if (problem !== undefined) throw refusedFacts(problem)
}

function summary(view: LogView, id: string, row: TokenRow, nowMs: number): TokenSummary {
  const { createdAtMs, expiresAtMs, usesLeft, cluster } = row
  const held = waitingJoins(view, nowMs).filter(({ token }) => token === id)
  const state = stateOf(row, nowMs)
  return {
    id,
    state: state === 'valid' && held.length >= usesLeft ? 'waiting' : state,
    createdAtMs,
    expiresAtMs,
    usesLeft,
    ...(cluster === undefined ? {} : { cluster }),
    allowedCIDRs: row.allowedCIDRs ?? [],
    ...(row.labels === undefined ? {} : { labels: row.labels }),
    approve: row.approve === true,
    usedBy: row.uses.map((use) => use.cluster),
    heldBy: held.map((one) => one.cluster),
  }
}

function stateOf(row: TokenRow, nowMs: number): TokenSummary['state'] {
  if (row.revokedAtMs !== undefined) return 'revoked'
  if (row.usesLeft <= 0) return 'used'
  return row.expiresAtMs <= nowMs ? 'expired' : 'valid'
}

/** The signing authority comes first: earlier releases read only the first pin. */
function pinsOf(view: LogView): readonly string[] {
  const row = view.get('authority', AUTHORITY_KEY)
  if (row === undefined) return []
  const signing = signingAuthority(row).fingerprint
  return [signing, ...bundleOf(row).flatMap(({ fingerprint }) => (fingerprint === signing ? [] : [fingerprint]))]
}

async function readPin(log: LogView, stateDir: string): Promise<string> {
  const [known] = pinsOf(log)
  if (known !== undefined) return known
  const file = join(stateDir, 'ca.crt')
  try {
    const certificate = certificatesFromPem(await readFile(file, 'utf8'))[0]
    if (certificate !== undefined) return fingerprint(certificate)
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ENOENT') {
      throw new StateError(
        'Damaged',
        file,
        `${file} cannot be read (${(error as Error).message}): restore it from a backup`,
        error,
      )
    }
  }
  throw absentState(join(stateDir, DATABASE_FILE))
}
