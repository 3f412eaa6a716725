/**
 * How a cluster becomes a member, and what its join would change for other members: the calls of callers that are not
 * members yet.
 */
import {
  type Prefix,
  classifyAddress,
  containsAddress,
  formatAddress,
  formatPrefix,
  parseAddress,
  parsePrefix,
} from '../../model/addresses/addresses.ts'
import { type ClusterId, InvalidNameError, LANE_ADDRESS_RANGE, parseClusterId } from '../../model/model.ts'
import {
  type JoinLook,
  type JoinRequest,
  type JoinResponse,
  MAX_RENUMBERED,
  RefusedError,
} from '../../protocol/protocol.ts'
import { fingerprint, hashTokenSecret } from '../../protocol/identity/identity.ts'
import { reasonField } from '../../protocol/transport/transport.ts'
import type { Clock } from '../../reconcile/reconcile.ts'
import { messageOf, reasonOf } from '../../runtime/runtime.ts'
import type { Logger } from '../../runtime/logging/logging.ts'
import { ipv4Ranges } from '../addresses/addresses.ts'
import {
  type Audit,
  accepted,
  fieldOf,
  outcomeOf,
  renumberedDetail,
  strangerSource,
  tokenSource,
} from '../audit/audit.ts'
import type { BrokerMetrics } from '../config/config.ts'
import { type CertificateAuthority, normalSerial } from '../identity/identity.ts'
import { type WriteContext, type WriteRules, admitFacts, refusedFacts } from '../records/records.ts'
import { type AuditInit, type RecordLog, isLive, timeText } from '../store/store.ts'
import { Approval, isWaiting, lookNeedsApproval } from './approval.ts'
import {
  JoinGate,
  checkSecretForm,
  checkToken,
  hasSecretForm,
  isKnownToken,
  spendToken,
  tokenId,
  unknownToken,
} from './join-tokens.ts'
import { type JoinOutcome, checkNewId, joinMember, lookAtJoin } from './membership.ts'

// Whether the address from which a member called at its join is its own. A hop in between may have replaced it: a
// kube-proxy, a load balancer, the bridge of this pod. Whether other members appear under the same address is not
// checked here: they may join later, so the gateways compare the addresses. Pure.

const LANES = parsePrefix(LANE_ADDRESS_RANGE)

export interface ObservedView {
  /**
   * Whether packets reach the broker with their original source address. False behind a Service that replaces it with
   * that of a node.
   */
  readonly sourcesKept: boolean
  /** Addresses of this machine or pod, and of the next hops of its routes. */
  readonly near: readonly string[]
  /** Ranges of the members' pods and Services, and those from which the broker allocates. */
  readonly ranges: readonly Prefix[]
}

/** Why the observed address is not used, as text. Undefined if it is used. */
export function observedAddressProblem(text: string, { sourcesKept, near, ranges }: ObservedView): string | undefined {
  const address = readable(() => parseAddress(text))
  if (address === undefined || formatAddress(address) !== text) return 'it is not a valid address'
  if (address.family !== 4) return 'gateways need an IPv4 address'
  const kind = classifyAddress(address)
  if (kind !== 'usable') return `it is ${kind}`
  if (!sourcesKept) return 'the Service of this broker replaces source addresses with those of nodes'
  if (near.includes(text)) return 'it belongs to this machine or to a next hop that forwards to it'
  const holder = [...ranges, LANES].find((prefix) => containsAddress(prefix, address))
  return holder === undefined ? undefined : `it is in ${formatPrefix(holder)}, a range of this clusterset`
}

function readable<T>(read: () => T): T | undefined {
  try {
    return read()
  } catch {
    return undefined
  }
}

/** With a larger difference, certificates, tokens and conflicts would be judged by the wrong time. */
const MAX_CLOCK_SKEW_MS = 5 * 60_000
/** For a look at a join, which is rolled back. */
const NO_KEY = ''
const NO_CERTIFICATE = { serial: '', expiresAtMs: 0 }
const NOTHING_HANDED_OUT = { serial: '', expiresAtMs: 0, authority: '', bundle: [] }
/** Refused joins that are logged between two calls of forget(). All are counted. */
const MAX_LOGGED_JOINS = 100

export interface JoiningDeps {
  readonly log: RecordLog
  readonly authority: CertificateAuthority
  readonly clock: Clock
  readonly logger: Logger
  readonly metrics: Pick<BrokerMetrics, 'joins'>
  readonly audit: Audit
  /** See nearAddresses(). */
  readonly near?: () => Promise<readonly string[]>
  /** Whether a member has a stream open now. */
  readonly isConnected: (cluster: ClusterId) => boolean
}

export interface JoiningInit {
  readonly clusterset: string
  readonly globalRange: string
  readonly clustersetIpRange: string
  readonly sourcesKept: boolean
  /** Whether every join needs the approval of an operator, whatever its token says. */
  readonly approve: boolean
  readonly limits: { readonly membersPerClusterset: number }
  /** See BrokerConfig. */
  readonly renewalGraceMs: number
  readonly rules: WriteRules
}

/** The address of the caller, and when the call began by the monotonic clock. */
interface Call {
  readonly address: string
  readonly startedMs: number
}

export class Joining {
  /** Decides whether an operator must approve a join, and returns the answer. */
  readonly approval: Approval
  readonly #deps: JoiningDeps
  readonly #init: JoiningInit
  readonly #gate: JoinGate
  /** Limits looks by token: a look does not spend the token, but costs as much as a join. */
  readonly #lookGate: JoinGate
  /** By token: joins that did not spend the token. Each may have cost a signature. */
  readonly #tokenGate: JoinGate
  /** Refusals since the last forget(). */
  #refused = 0

  constructor(deps: JoiningDeps, init: JoiningInit) {
    this.#deps = deps
    this.#init = init
    this.approval = new Approval(deps, init.approve)
    this.#gate = new JoinGate(deps.clock)
    this.#lookGate = new JoinGate(deps.clock, () => 'too many previews of joins used it')
    this.#tokenGate = new JoinGate(deps.clock, () => 'too many joins that used it were refused or repeated')
  }

  /** The caller runs it regularly: from then on, refusals are logged again. */
  forget(): void {
    this.#refused = 0
  }

  /** See BrokerApi. */
  async join(request: JoinRequest, peerAddress: string): Promise<JoinResponse> {
    const { logger, metrics } = this.#deps
    const call = this.#call(peerAddress)
    try {
      const response = await this.#join(request, call)
      metrics.joins.inc({ result: 'ok' })
      const notCarried = request.facts.podCIDRs.filter((cidr) => !response.podCIDRs.includes(cidr)).join()
      const renumbered = (response.renumbered ?? []).map((one) => one.cluster).join()
      const more = { ...(notCarried === '' ? {} : { notCarried }), ...(renumbered === '' ? {} : { renumbered }) }
      logger.info('cluster joined', {
        cluster: request.cluster,
        address: peerAddress,
        index: response.clusterIndex,
        ...more,
      })
      return response
    } catch (error) {
      // The cluster is expected to repeat its request until it is answered.
      if (isWaiting(error)) throw error
      const result = error instanceof RefusedError ? error.code : 'failed'
      metrics.joins.inc({ result })
      if (error instanceof RefusedError) this.#gate.count(peerAddress)
      this.#reportRefused('join refused', request, call, error)
      throw error
    }
  }

  /** See BrokerApi: a cluster that waits for approval withdraws its join. */
  async withdraw(request: JoinRequest, peerAddress: string): Promise<void> {
    const { log } = this.#deps
    const call = this.#call(peerAddress)
    try {
      checkSecretForm(request.secret)
      await log.refresh()
      const token = tokenId(log, request.secret)
      if (token === undefined) this.#gate.check(peerAddress)
      if (token === undefined) throw unknownToken()
      await this.approval.withdraw(request, token, call)
    } catch (error) {
      if (error instanceof RefusedError) this.#gate.count(peerAddress)
      this.#reportRefused('withdrawal of a join refused', request, call, error)
      throw error
    }
  }

  /** See BrokerApi: what a join would change. Writes nothing. */
  async lookAtJoin(request: JoinRequest, peerAddress: string): Promise<JoinLook> {
    const call = this.#call(peerAddress)
    try {
      return await this.#lookAtJoin(request, peerAddress)
    } catch (error) {
      if (error instanceof RefusedError) this.#gate.count(peerAddress)
      this.#reportRefused('preview of a join refused', request, call, error)
      throw error
    }
  }

  /** Any client can send such requests, so the number of log lines is limited. */
  #reportRefused(message: string, request: JoinRequest, call: Call, error: unknown): void {
    const { cluster } = request
    const { address } = call
    const why = messageOf(error)
    this.#refused += 1
    const level = this.#refused <= MAX_LOGGED_JOINS ? 'warn' : 'debug'
    const reason = reasonField(error).reason ?? reasonOf(error) ?? 'InternalError'
    this.#deps.logger[level](message, { reason, cluster: cluster.slice(0, 63), address, why })
    this.#auditRefused(request, call, error)
  }

  #auditRefused({ cluster, secret, look, withdraw }: JoinRequest, { address, startedMs }: Call, error: unknown): void {
    const { audit, log, clock } = this.#deps
    if (!audit.isOn) return
    // Only a well-formed secret is searched for: any client could cause the work of comparing every token.
    const token = hasSecretForm(secret) ? tokenId(log, secret) : undefined
    if (!audit.allows(token === undefined ? strangerSource(address) : tokenSource(token))) return
    audit.report({
      act: look === true ? 'join.look' : withdraw === true ? 'join.withdraw' : 'join',
      ...outcomeOf(error),
      who: { kind: 'joining', cluster, ...(token === undefined ? {} : { token }), address },
      subject: cluster,
      details: fieldOf(error),
      tookMs: clock.monotonic() - startedMs,
    })
  }

  #call(address: string): Call {
    return { address, startedMs: this.#deps.clock.monotonic() }
  }

  async #join(request: JoinRequest, call: Call): Promise<JoinResponse> {
    const { address: observedAddress } = call
    const { log } = this.#deps
    const { globalRange, clustersetIpRange, clusterset } = this.#init
    const cluster = await this.#admitJoin(request, observedAddress)
    const { certificate, caBundle, spec, renumbered } = await this.#issue(cluster, request, call)
    return {
      certificate,
      caBundle,
      clusterset,
      clusterIndex: spec.index,
      podCIDRs: spec.podCIDRs,
      serviceCIDRs: spec.serviceCIDRs,
      globalCIDRs: spec.globalCIDRs,
      globalRange,
      clustersetIpRange,
      observedAddress,
      observedCounts: await this.#counts(cluster, observedAddress),
      notes: log.get('member', cluster)?.notes ?? [],
      renumbered: renumbered.slice(0, MAX_RENUMBERED),
    }
  }

  /** Limits how often a join may use a token without spending it. */
  async #issue(cluster: ClusterId, request: JoinRequest, call: Call) {
    const token = hashTokenSecret(request.secret)
    const limit = (): void => this.#tokenGate.check(token)
    try {
      const asked = { cluster, request, ...call }
      const renumbered = (keyHash: string) => this.#wouldRenumber(cluster, request, keyHash)
      if (!(await this.approval.require(asked, { limit, renumbered }))) limit()
      const { repeated, ...issued } = await this.#signAndWrite(cluster, request, call)
      if (repeated) this.#tokenGate.count(token)
      return issued
    } catch (error) {
      const isCounted = error instanceof RefusedError && !isWaiting(error) && error.reason !== 'TooManyAttempts'
      if (isCounted) this.#tokenGate.count(token)
      throw error
    }
  }

  async #signAndWrite(cluster: ClusterId, request: JoinRequest, call: Call) {
    const { address, startedMs } = call
    const { log, authority, clock, audit } = this.#deps
    const issued = await authority.issue(cluster, request.csr)
    const { certificate, keyHash, serial, issuedAtMs, expiresAtMs } = issued
    const joined = await log.transact((tx) => {
      const { handedOut, caBundle } = authority.handOut(tx, issued)
      const bearer = { cluster, keyHash, nowMs: clock.now() }
      const token = checkToken(tx, request.secret, bearer)
      const isApproved = this.approval.take(tx, { cluster, request, ...call }, token, keyHash)
      spendToken(tx, token, bearer)
      const { row, repeated } = token
      const join = {
        cluster,
        facts: request.facts,
        allowedCIDRs: row.allowedCIDRs ?? [],
        tokenLabels: row.labels,
        certificate: { serial: normalSerial(serial), expiresAtMs, issuedAtMs, authority: issued.authority },
        handedOut,
        keyHash,
        entitled: repeated || row.cluster === cluster,
        connected: this.#deps.isConnected(cluster),
        membersLimit: this.#init.limits.membersPerClusterset,
        renewalGraceMs: this.#init.renewalGraceMs,
        accepted: isApproved,
        approve: row.approve === true,
      }
      const outcome = joinMember(tx, join, this.#context(cluster))
      const { podCIDRs, globalCIDRs } = outcome.spec
      const { podCIDRs: stated, serviceCIDRs, version } = request.facts
      const renumbered = outcome.renumbered.map((one) => one.cluster)
      const event: AuditInit = {
        act: 'join',
        result: 'ok',
        who: { kind: 'joining', cluster, fingerprint: fingerprint(certificate), token: token.id, address },
        subject: cluster,
        details: {
          ...{ podCIDRs: stated, serviceCIDRs, carried: podCIDRs, globalCIDRs, version, repeated },
          ...renumberedDetail(renumbered),
        },
        tookMs: clock.monotonic() - startedMs,
      }
      // A client can repeat a granted request as often as it likes, so the audit lines of repetitions are limited.
      if (!repeated || audit.allows(accepted(tokenSource(token.id)))) audit.keep(tx, event)
      return { ...outcome, caBundle, repeated }
    })
    return { certificate, ...joined }
  }

  /** Returns the parsed id. Throws RefusedError if the join can be refused before anything is signed or written. */
  async #admitJoin(request: JoinRequest, observedAddress: string): Promise<ClusterId> {
    const { log, clock } = this.#deps
    checkSecretForm(request.secret)
    if (!isKnownToken(log, request.secret)) this.#gate.check(observedAddress)
    // The token is checked first: a caller without one learns nothing else and causes no signature check.
    await log.transact((tx) => checkToken(tx, request.secret, { cluster: request.cluster, nowMs: clock.now() }))
    checkClock(request.nowMs, clock.now())
    const cluster = clusterId(request.cluster)
    const refused = admitFacts(request.facts, this.#init.rules)
    if (refused !== undefined) {
      throw refusedFacts(refused)
    }
    checkNewId(log, cluster)
    return cluster
  }

  async #lookAtJoin(request: JoinRequest, observedAddress: string): Promise<JoinLook> {
    const { log, clock } = this.#deps
    const cluster = await this.#admitJoin(request, observedAddress)
    const token = hashTokenSecret(request.secret)
    this.#lookGate.check(token)
    this.#lookGate.count(token)
    const { row } = checkToken(log, request.secret, { cluster, nowMs: clock.now() })
    if (this.approval.isNeeded(row)) throw lookNeedsApproval()
    // No key is passed: neither a spent token nor a member that was evicted can look.
    const { spec, renumbered } = await this.#tryJoin(cluster, request, NO_KEY)
    return { globalCIDRs: spec.globalCIDRs, renumbered: renumbered.slice(0, MAX_RENUMBERED) }
  }

  async #wouldRenumber(cluster: ClusterId, request: JoinRequest, keyHash: string): Promise<readonly string[]> {
    const { renumbered } = await this.#tryJoin(cluster, request, keyHash)
    return renumbered.map((one) => one.cluster)
  }

  /** Runs the join in a transaction that is rolled back. Throws RefusedError if the join would be refused. */
  #tryJoin(cluster: ClusterId, request: JoinRequest, keyHash: string): Promise<JoinOutcome> {
    const { log, clock, isConnected } = this.#deps
    const { renewalGraceMs } = this.#init
    const { membersPerClusterset: membersLimit } = this.#init.limits
    return lookAtJoin(log, (tx) => {
      const { row } = checkToken(tx, request.secret, { cluster, keyHash, nowMs: clock.now() })
      const { allowedCIDRs = [], labels: tokenLabels } = row
      const { facts } = request
      const given = { allowedCIDRs, tokenLabels, certificate: NO_CERTIFICATE }
      const join = { cluster, ...given, facts, keyHash, membersLimit, renewalGraceMs }
      const may = { entitled: row.cluster === cluster, connected: isConnected(cluster) }
      const handedOut = NOTHING_HANDED_OUT
      return joinMember(tx, { ...join, ...may, handedOut }, this.#context(cluster))
    })
  }

  /** Whether the address is the member's own, as far as the broker can determine. */
  async #counts(cluster: ClusterId, address: string): Promise<boolean> {
    const { log, logger, near } = this.#deps
    const { globalRange, clustersetIpRange, sourcesKept } = this.#init
    const members = log.list('member').filter(({ value }) => isLive(value))
    const claimed = members.flatMap(({ value: { facts } }) => [
      ...ipv4Ranges(facts.podCIDRs),
      ...ipv4Ranges(facts.serviceCIDRs),
    ])
    const given = [globalRange, clustersetIpRange].map((range) => parsePrefix(range))
    const ranges = [...claimed.map(({ prefix }) => prefix), ...given]
    const reason = observedAddressProblem(address, { sourcesKept, near: (await near?.()) ?? [], ranges })
    if (reason !== undefined)
      logger.info('the observed address of a member is not published', { cluster, address, why: reason })
    return reason === undefined
  }

  #context(cluster: ClusterId): WriteContext {
    return { cluster, rules: this.#init.rules, nowMs: this.#deps.clock.now() }
  }
}

function checkClock(memberMs: number, brokerMs: number): void {
  if (Math.abs(memberMs - brokerMs) <= MAX_CLOCK_SKEW_MS) return
  throw new RefusedError(
    'ClockDiffers',
    'clock',
    `clock: the time is ${clockText(memberMs)} on this machine and ${clockText(brokerMs)} on the broker: ` +
      'correct the clock that is wrong (the maximum difference is 5 minutes)',
  )
}

/** The value from the member may be outside the range of Date. */
function clockText(ms: number): string {
  return Math.abs(ms) <= 8.64e15 ? timeText(ms) : String(ms)
}

function clusterId(text: string): ClusterId {
  try {
    return parseClusterId(text, 'cluster')
  } catch (error) {
    if (error instanceof InvalidNameError) throw new RefusedError('InvalidValue', 'cluster', error.message)
    throw error
  }
}
