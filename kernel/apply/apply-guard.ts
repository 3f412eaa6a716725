/**
 * Applies rules that drop packets. They come before the devices that they guard and go after them, and thus are applied
 * apart from other rules.
 */
import { RULE_NOT_ADMITTED, RULE_TO_NODE } from '../../model/model.ts'
import { isExists, isNotFound } from '../kernel.ts'
import { type RouteTable, type Rule, formatRule, formatRuleDeletion } from '../route/route.ts'
import type { Round } from './round.ts'

export interface GuardScope {
  /** True for a device whose packets the caller guards. No other caller guards them. */
  readonly guards: (device: string) => boolean
}

export interface Guard {
  /** All rules are in the kernel. */
  readonly complete: boolean
  /** Removes the rules of the caller that are not planned. Failures are in the round. */
  readonly removeOthers: () => Promise<void>
}

const DRIFT = 'guard'
const PRIORITIES: readonly number[] = [RULE_TO_NODE, RULE_NOT_ADMITTED]

/** Adds the rules that are missing; idempotent. Failures are in the round. */
export async function applyGuard(
  table: RouteTable,
  rules: readonly Rule[],
  { guards }: GuardScope,
  round: Round,
  signal: AbortSignal,
): Promise<Guard> {
  const listed = await round.attempt(() => table.rules(signal))
  if (listed === undefined) return { complete: false, removeOthers: () => Promise.resolve() }
  const observed = listed.value.filter(
    ({ inputDevice, priority }) => PRIORITIES.includes(priority) && inputDevice !== undefined && guards(inputDevice),
  )
  const there = new Set(observed.map(formatRule))
  const missing = rules.filter((rule) => !there.has(formatRule(rule)))
  const planned = new Set(rules.map(formatRule))
  const others = observed.filter((rule) => !planned.has(formatRule(rule)))
  const { drift } = round
  drift?.repaired('rule', 'Missing', drift.had(DRIFT, missing.map(formatRule)))
  drift?.repaired('rule', 'Foreign', drift.neverHad(DRIFT, others.map(formatRule)))
  let failed = 0
  for (const rule of missing) {
    const made = await round.change('rule', formatRule(rule), () => table.addRule(rule, signal), isExists)
    if (made) there.add(formatRule(rule))
    else failed += 1
  }
  drift?.settle(DRIFT, there)
  const removeOthers = async (): Promise<void> => {
    for (const rule of others)
      await round.change('rule', formatRuleDeletion(rule), () => table.deleteRule(rule, signal), isNotFound)
  }
  return { complete: failed === 0, removeOthers }
}
