/** How a cluster becomes a member, and what it would change for others: the calls of those who are none yet. */
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

// Whether the address that a member called from when it joined is its own. Something on the way may have put its own
// there: a kube-proxy, a load balancer, the bridge of this pod. Whether others are seen under the same address is not
// asked here: they may come later, so the gateways compare. Pure.

const LANES = parsePrefix(LANE_ADDRESS_RANGE)

export interface ObservedView {
  /** Addresses reach the broker as they were sent; false behind a Service that puts the node's own in their place. */
  readonly sourcesKept: boolean
  /** Of this machine or pod, and of the next hops of its routes. */
  readonly near: readonly string[]
  /** Of the members' pods and Services, and those that the broker gives out. */
  readonly ranges: readonly Prefix[]
}

/** Why the address does not count, in words; undefined when it does. */
export function observedDoubt(text: string, { sourcesKept, near, ranges }: ObservedView): string | undefined {
  const address = readable(() => parseAddress(text))
  if (address === undefined || formatAddress(address) !== text) return 'it is no address'
  if (address.family !== 4) return 'gateways are called over IPv4'
  const kind = classifyAddress(address)
  if (kind !== 'usable') return `it is ${kind}`
  if (!sourcesKept) return 'the Service in front of this broker puts addresses of nodes in place of the callers’ own'
  if (near.includes(text)) return 'it is of this machine, or of the next hop that hands on to it'
  const holder = [...ranges, LANES].find((prefix) => containsAddress(prefix, address))
  return holder === undefined ? undefined : `it is inside ${formatPrefix(holder)}, a range of this clusterset`
}

function readable<T>(read: () => T): T | undefined {
  try {
    return read()
  } catch {
    return undefined
  }
}

/** More than this and certificates, tokens and conflicts would go by the wrong time. */
const MAX_CLOCK_SKEW_MS = 5 * 60_000
/** Of a look: it ends before it is written. */
const NO_KEY = ''
const NO_CERTIFICATE = { serial: '', expiresAtMs: 0 }
const NOTHING_HANDED_OUT = { serial: '', expiresAtMs: 0, authority: '', bundle: [] }
/** Refused joins logged between two calls of forget(); all are counted. */
const MAX_LOGGED_JOINS = 100

export interface JoiningDeps {
  readonly log: RecordLog
  readonly authority: CertificateAuthority
  readonly clock: Clock
  readonly logger: Logger
  readonly metrics: Pick<BrokerMetrics, 'joins'>
  readonly audit: Audit
  /** nearAddresses() */
  readonly near?: () => Promise<readonly string[]>
  /** Whether a member has a stream open now. */
  readonly isConnected: (cluster: ClusterId) => boolean
}

export interface JoiningInit {
  readonly clusterset: string
  readonly globalRange: string
  readonly clustersetIpRange: string
  readonly sourcesKept: boolean
  /** Every join waits for an operator, whatever its token says. */
  readonly approve: boolean
  readonly limits: { readonly membersPerClusterset: number }
  readonly rules: WriteRules
}

/** Who calls, and since when. */
interface Call {
  readonly address: string
  readonly startedMs: number
}

export class Joining {
  /** Whether an operator is asked, and what he said. */
  readonly approval: Approval
  readonly #deps: JoiningDeps
  readonly #init: JoiningInit
  readonly #gate: JoinGate
  /** By token: a look does not spend it, and costs as much as a join. */
  readonly #lookGate: JoinGate
  /** By token: joins that did not spend it. Each may have cost a signature. */
  readonly #tokenGate: JoinGate
  /** Since the last forget(). */
  #refused = 0

  constructor(deps: JoiningDeps, init: JoiningInit) {
    this.#deps = deps
    this.#init = init
    this.approval = new Approval(deps, init.approve)
    this.#gate = new JoinGate(deps.clock)
    this.#lookGate = new JoinGate(deps.clock, () => 'too many looks at joins with it')
    this.#tokenGate = new JoinGate(deps.clock, () => 'too many joins with it were refused or repeated')
  }

  /** To be called now and then: refusals are logged again from here. */
  forget(): void {
    this.#refused = 0
  }

  /** As BrokerApi has it. */
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
      // It asks again and again, as it is to do.
      if (isWaiting(error)) throw error
      const result = error instanceof RefusedError ? error.code : 'failed'
      metrics.joins.inc({ result })
      if (error instanceof RefusedError) this.#gate.count(peerAddress)
      this.#reportRefused('join refused', request, call, error)
      throw error
    }
  }

  /** As BrokerApi has it: the one that waits for approval wants to join no more. */
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

  /** As BrokerApi has it: what a join would bring. Changes nothing. */
  async lookAtJoin(request: JoinRequest, peerAddress: string): Promise<JoinLook> {
    const call = this.#call(peerAddress)
    try {
      return await this.#lookAtJoin(request, peerAddress)
    } catch (error) {
      if (error instanceof RefusedError) this.#gate.count(peerAddress)
      this.#reportRefused('look at a join refused', request, call, error)
      throw error
    }
  }

  /** Anybody can ask: strangers must not fill the log. */
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
    // To look at every token for what can be none would be work that any stranger may ask for.
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

  /** A token that this does not spend is good for few more. */
  async #issue(cluster: ClusterId, request: JoinRequest, call: Call) {
    const token = hashTokenSecret(request.secret)
    const pace = (): void => this.#tokenGate.check(token)
    try {
      const asked = { cluster, request, ...call }
      const renumbered = (keyHash: string) => this.#wouldRenumber(cluster, request, keyHash)
      if (!(await this.approval.require(asked, { pace, renumbered }))) pace()
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
        certificate: { serial: normalSerial(serial), expiresAtMs, issuedAtMs, authority: issued.authority },
        handedOut,
        keyHash,
        entitled: repeated || row.cluster === cluster,
        connected: this.#deps.isConnected(cluster),
        membersLimit: this.#init.limits.membersPerClusterset,
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
      // Who repeats a request that was granted gets the same answer, as often as it asks.
      if (!repeated || audit.allows(accepted(tokenSource(token.id)))) audit.keep(tx, event)
      return { ...outcome, caBundle, repeated }
    })
    return { certificate, ...joined }
  }

  /** Gives the id. Throws RefusedError where it is clear before anything is signed or written. */
  async #admitJoin(request: JoinRequest, observedAddress: string): Promise<ClusterId> {
    const { log, clock } = this.#deps
    checkSecretForm(request.secret)
    if (!isKnownToken(log, request.secret)) this.#gate.check(observedAddress)
    // First the token alone: who has none learns nothing else and costs no signature check.
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
    // Of no key: a token that is spent cannot look, nor can a member that was evicted.
    const { spec, renumbered } = await this.#tryJoin(cluster, request, NO_KEY)
    return { globalCIDRs: spec.globalCIDRs, renumbered: renumbered.slice(0, MAX_RENUMBERED) }
  }

  async #wouldRenumber(cluster: ClusterId, request: JoinRequest, keyHash: string): Promise<readonly string[]> {
    const { renumbered } = await this.#tryJoin(cluster, request, keyHash)
    return renumbered.map((one) => one.cluster)
  }

  /** What a join would write is thrown away. Throws RefusedError where it would be refused. */
  #tryJoin(cluster: ClusterId, request: JoinRequest, keyHash: string): Promise<JoinOutcome> {
    const { log, clock, isConnected } = this.#deps
    const { membersPerClusterset: membersLimit } = this.#init.limits
    return lookAtJoin(log, (tx) => {
      const { row } = checkToken(tx, request.secret, { cluster, keyHash, nowMs: clock.now() })
      const { allowedCIDRs = [] } = row
      const { facts } = request
      const join = { cluster, allowedCIDRs, facts, certificate: NO_CERTIFICATE, keyHash, membersLimit }
      const may = { entitled: row.cluster === cluster, connected: isConnected(cluster) }
      const handedOut = NOTHING_HANDED_OUT
      return joinMember(tx, { ...join, ...may, handedOut }, this.#context(cluster))
    })
  }

  /** Whether the address is the member's own, as far as can be known. */
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
    const reason = observedDoubt(address, { sourcesKept, near: (await near?.()) ?? [], ranges })
    if (reason !== undefined)
      logger.info('the address of a member is not sent to others', { cluster, address, why: reason })
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
    `clock: this machine says ${clockText(memberMs)}, the broker says ${clockText(brokerMs)}: ` +
      'set the clock of the one that is wrong (they may differ by 5 minutes)',
  )
}

/** What a member claims may be no time at all. */
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
