/**
 * Keeps the XFRM policies of plan-forward-policies.ts in the kernel, and reports in the RouteAgent if that is not
 * possible. A failure stops nothing else: the nft tables decide as long as they exist.
 */
import { Round } from '../../kernel/apply/apply.ts'
import { type Drift, isExists, isNotFound, isNotSupported } from '../../kernel/kernel.ts'
import type { Sysctl } from '../../kernel/tuning/tuning.ts'
import {
  BLOCK_SECONDS,
  type EarlierPolicy,
  type ForwardPolicies,
  type ForwardPolicy,
  type ListedPolicy,
  formatPolicy,
  formatPolicyDeletion,
  policyFamily,
} from '../../kernel/xfrm/xfrm.ts'
import { type Family, overlaps, parsePrefix } from '../../model/addresses/addresses.ts'
import {
  CONDITION_CLOSED_WITHOUT_TABLES,
  type Condition,
  MAX_FAILURE_LENGTH,
  NFT_TABLE_NODE,
  fitText,
  setCondition,
} from '../../model/model.ts'
import type { ReasonCode } from '../../model/reasons/reasons.ts'
import type { Clock } from '../../reconcile/reconcile.ts'
import type { Logger } from '../../runtime/logging/logging.ts'
import type { ForwardPoliciesPlan } from './plan-forward-policies.ts'

const DRIFT = 'forward-policy'
const REASON = 'ForwardPoliciesMissing' satisfies ReasonCode
/** How often policies get their whole lifetime again. Two thirds of it are left for failures. */
const REFRESH_MS = (BLOCK_SECONDS * 1000) / 3

export interface ForwardGuardInit {
  readonly policies: ForwardPolicies
  readonly logger: Logger
  readonly drift: Drift
  readonly clock: Pick<Clock, 'monotonic'>
  readonly sysctl: Pick<Sysctl, 'read'>
  /** Whether the table of the family is in the kernel: without it, no packet has the mark. */
  readonly isGuarding: (family: Family) => boolean
}

export class ForwardGuard {
  readonly #init: ForwardGuardInit
  /** Undefined until the first run. The condition of an earlier process stays until then. */
  #known: { readonly why: string | undefined } | undefined
  /** When all policies were last refreshed, monotonic. Undefined: when those of an earlier process end is not known. */
  #refreshedMs: number | undefined

  constructor(init: ForwardGuardInit) {
    this.#init = init
  }

  /**
   * Adds what is missing, and then removes the others. What is left out and failures are in the condition and in the
   * log. Throws on abort.
   */
  async apply({ policies, leftOut }: ForwardPoliciesPlan, signal: AbortSignal): Promise<void> {
    const { logger, drift } = this.#init
    const round = new Round({ logger, drift })
    const obstacles = await this.#apply(policies, round, signal)
    signal.throwIfAborted()
    if (round.changes > 0) logger.info('XFRM policies changed', { commands: round.changes })
    const before = this.#known?.why
    const failed = round.failure === undefined ? [] : [round.failure.message]
    const all = [...leftOut, ...failed, ...obstacles]
    const why = all.length === 0 ? undefined : all.join('; ')
    this.#known = { why }
    if (why !== undefined && why !== before)
      logger.warn('pods are open while nft tables are missing', { reason: REASON, why })
  }

  /** The conditions of the RouteAgent, with the one about this. One of this type for another reason stays. */
  conditions(list: readonly Condition[], nowMs: number): readonly Condition[] {
    if (this.#known === undefined) return list
    const { why } = this.#known
    const isOurs = ({ type, reason }: Condition): boolean =>
      type === CONDITION_CLOSED_WITHOUT_TABLES && reason === REASON
    const others = list.filter((one) => !isOurs(one))
    if (why === undefined) return others
    const message = fitText(why, MAX_FAILURE_LENGTH)
    const about = { type: CONDITION_CLOSED_WITHOUT_TABLES, status: 'False', reason: REASON } as const
    return setCondition(list, { ...about, message }, nowMs)
  }

  /** Returns why policies are missing or have no effect, besides failures. */
  async #apply(wanted: readonly ForwardPolicy[], round: Round, signal: AbortSignal): Promise<readonly string[]> {
    const { policies, isGuarding, drift } = this.#init
    const listed = await round.attempt(() => policies.list(signal))
    if (listed === undefined) return []
    const { ours, earlier } = listed.value
    const present = new Map(ours.map((policy) => [formatPolicy(policy), policy]))
    const planned = new Set(wanted.map(formatPolicy))
    const absent = wanted.filter((policy) => !present.has(formatPolicy(policy)))
    const missing = absent.filter((policy) => isGuarding(policyFamily(policy)))
    const others = ours.filter((policy) => !planned.has(formatPolicy(policy)))
    const kept = wanted.filter((policy) => present.has(formatPolicy(policy)))
    await this.#refresh(kept, round, signal)
    drift.repaired(DRIFT, 'Missing', drift.had(DRIFT, missing.map(formatPolicy)))
    drift.repaired(DRIFT, 'Foreign', drift.neverHad(DRIFT, others.map(formatPolicy)))
    const obstacles = [...withoutTable(absent, isGuarding), ...overruled(wanted, earlier)]
    obstacles.push(...(await this.#disabled(wanted, round)))
    let foreign = false
    for (const policy of missing) {
      const text = formatPolicy(policy)
      const isForeign = (error: unknown): boolean => {
        if (!isExists(error)) return false
        if (!foreign) obstacles.push(`another program has the policy: ${text}`)
        foreign = true
        return true
      }
      // A packet that is admitted must never meet the second policy without the first one, so nothing more is added.
      // What blocks and is not planned any more, such as for a range that another cluster has now, still goes.
      if (!(await round.change(DRIFT, text, () => policies.add(policy, signal), isForeign))) {
        const blocking = others.filter(({ action }) => action === 'block')
        await removePolicies(policies, blocking, round, signal)
        return obstacles
      }
    }
    drift.settle(DRIFT, [...[...present.keys()].filter((text) => planned.has(text)), ...missing.map(formatPolicy)])
    await removePolicies(policies, others, round, signal)
    return obstacles
  }

  /** The setting of all devices. Undefined settings are those of a kernel without the family. */
  async #disabled(wanted: readonly ForwardPolicy[], round: Round): Promise<readonly string[]> {
    const disabled: string[] = []
    for (const family of new Set(wanted.map(policyFamily))) {
      const name = `net.ipv${family}.conf.all.disable_policy`
      const value = (await round.attempt(() => this.#init.sysctl.read(name)))?.value?.trim()
      if (value !== undefined && value !== '0') disabled.push(`${name} is ${value}: the kernel looks at no policy`)
    }
    return disabled
  }

  /** As in a plan, what is admitted comes first: it must not end before what blocks. */
  async #refresh(present: readonly ForwardPolicy[], round: Round, signal: AbortSignal): Promise<void> {
    const { policies, clock } = this.#init
    const nowMs = clock.monotonic()
    if (this.#refreshedMs !== undefined && nowMs < this.#refreshedMs + REFRESH_MS) return
    for (const policy of present)
      if ((await round.attempt(() => policies.refresh(policy, signal))) === undefined) return
    this.#refreshedMs = nowMs
  }
}

/** Without the table, no packet would be admitted. Policies that exist already stay. */
function withoutTable(absent: readonly ForwardPolicy[], isGuarding: ForwardGuardInit['isGuarding']): readonly string[] {
  const families = [...new Set(absent.map(policyFamily))].filter((family) => !isGuarding(family))
  return families.map((family) => `IPv${family}: table ${NFT_TABLE_NODE}, which admits packets, is missing`)
}

/** A policy of other software that the kernel asks instead of ours for some of our packets. */
function overruled(wanted: readonly ForwardPolicy[], earlier: readonly EarlierPolicy[]): readonly string[] {
  const prefixes = (of: 'source' | 'destination') =>
    [...new Set(wanted.map((one) => one[of]))].map((one) => parsePrefix(one))
  // The plan has each source with each destination of its family.
  const [sources, destinations] = [prefixes('source'), prefixes('destination')]
  const found = earlier.find(({ source, destination }) => {
    const [from, to] = [parsePrefix(source), parsePrefix(destination)]
    return sources.some((one) => overlaps(one, from)) && destinations.some((one) => overlaps(one, to))
  })
  if (found === undefined) return []
  const { source, destination, priority } = found
  return [`an XFRM policy of another program counts first: src ${source} dst ${destination} priority ${priority}`]
}

/**
 * Removes all policies of ours. A kernel without XFRM has none. Failures are in the round. Returns whether one may be
 * left: it drops everything from other clusters once the tables are gone.
 */
export async function removeForwardPolicies(
  policies: ForwardPolicies,
  round: Round,
  signal: AbortSignal,
): Promise<boolean> {
  const listed = await round.attempt(() => listOrNone(policies, signal))
  if (listed === undefined) return true
  return !(await removePolicies(policies, listed.value, round, signal))
}

async function listOrNone(policies: ForwardPolicies, signal: AbortSignal): Promise<readonly ListedPolicy[]> {
  try {
    return (await policies.list(signal)).ours
  } catch (error) {
    if (isNotSupported(error)) return []
    throw error
  }
}

/** What blocks goes first, so that no admitted packet is dropped in between. Returns whether all have gone. */
async function removePolicies(
  policies: ForwardPolicies,
  removed: readonly ListedPolicy[],
  round: Round,
  signal: AbortSignal,
): Promise<boolean> {
  const sorted = [...removed].sort((a, b) => Number(a.action === 'allow') - Number(b.action === 'allow'))
  let gone = true
  for (const policy of sorted) {
    // What admits stays as long as something blocks.
    if (!gone && policy.action === 'allow') break
    const text = formatPolicyDeletion(policy)
    const done = await round.change(DRIFT, text, () => policies.remove(policy, signal), isNotFound)
    gone &&= done
  }
  return gone
}
