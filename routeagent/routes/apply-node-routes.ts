/** Applies a route plan to the kernel: the overlay device, then sysctls, then routes and rules. */
import {
  HASH_POLICY,
  IPV6_FORWARDING,
  IPV6_HASH_POLICY,
  IP_FORWARDING,
  SOURCE_VALID_MARK,
  NEXT_HOP_IDS_NODE,
  ROUTE_TABLE_FROM_LANES,
  ROUTE_TABLE_HANDED_ON,
  ROUTE_TABLE_LANES,
  ROUTE_TABLE_MAIN,
  ROUTE_TABLE_NODE,
  ROUTE_TABLE_NODE_PUBLIC,
  ROUTE_TABLE_NODE_SENDS,
  ROUTE_TABLE_NO_POD,
  ROUTE_TABLE_PROBES,
  RULE_NODE,
  RULE_NODE_BEFORE,
  VXLAN_DEVICE,
} from '../../model/model.ts'
import { NO_ROUTING, type Round, type RoutingScope, applyGuard, applyRouting } from '../../kernel/apply/apply.ts'
import { isExists, isNotFound } from '../../kernel/kernel.ts'
import {
  type Link,
  type NewAddress,
  type NextHopTable,
  type RouteTable,
  type Rule,
  type VxlanLink,
  formatAddress,
  formatLink,
  formatLinkChange,
  formatLinkDeletion,
} from '../../kernel/route/route.ts'
import { type Sysctl, ensureForwarding, restoreForwarding } from '../../kernel/tuning/tuning.ts'
import type { ForwardPolicies } from '../../kernel/xfrm/xfrm.ts'
import { removeForwardPolicies } from './forward-guard.ts'
import type { NodeRoutes } from './plan-node-routes.ts'

export interface ApplyRoutesDeps {
  readonly routes: RouteTable
  /** Absent: routes have next hops of their own. */
  readonly nextHops?: NextHopTable
  readonly sysctl: Sysctl
  /** Absent: there are no XFRM policies. */
  readonly forwardPolicies?: ForwardPolicies | undefined
  /** File that records that the route agent switched IPv4 forwarding on. The file for IPv6 is beside it. */
  readonly forwardingMarker: string
}

const TABLES: ReadonlySet<number> = new Set([
  ROUTE_TABLE_FROM_LANES,
  ROUTE_TABLE_HANDED_ON,
  ROUTE_TABLE_NODE,
  ROUTE_TABLE_NODE_PUBLIC,
  ROUTE_TABLE_NODE_SENDS,
  ROUTE_TABLE_PROBES,
  ROUTE_TABLE_NO_POD,
  // Only for the rules that use this table. It contains no route of the route agent.
  ROUTE_TABLE_MAIN,
])

const GUARD = { guards: (device: string): boolean => device === VXLAN_DEVICE }

function scopeOf({ nextHops }: Pick<ApplyRoutesDeps, 'nextHops'>, device?: string): RoutingScope {
  return {
    tables: TABLES,
    ...(device === undefined ? {} : { device }),
    ...(nextHops === undefined ? {} : { nextHops: { table: nextHops, ids: NEXT_HOP_IDS_NODE } }),
  }
}

/** Settings that are restored on leaving. */
const SWITCHES: readonly string[] = [IP_FORWARDING, IPV6_FORWARDING, HASH_POLICY, IPV6_HASH_POLICY, SOURCE_VALID_MARK]

/** Idempotent. Failures are in the round, and the next round reads the kernel again. */
export async function applyNodeRoutes(
  deps: ApplyRoutesDeps,
  plan: NodeRoutes,
  round: Round,
  signal: AbortSignal,
): Promise<void> {
  const { routes } = deps
  const links = await round.attempt(() => routes.links(signal))
  if (links === undefined) return
  const found = links.value.find(({ name }) => name === plan.link.name)
  const guard = await applyGuard(routes, plan.guard, GUARD, round, signal)
  if (found === undefined && !guard.complete) return
  await ensureLink({ routes, link: plan.link, found, round, signal })
  await ensureAddress(routes, plan.address, round, signal)
  await ensureSysctls(deps, plan, round)
  const rules = await round.attempt(async () => afterLanes(plan.rules, await routes.rules(signal)))
  if (rules !== undefined)
    await applyRouting(routes, { ...plan, rules: rules.value }, scopeOf(deps, VXLAN_DEVICE), round, signal)
  await guard.removeOthers()
}

/**
 * Removes everything that the loop of the routes may have created. What depends on the device is removed with it. Returns
 * whether the XFRM policies have gone.
 */
export async function removeNodeRoutes(deps: ApplyRoutesDeps, round: Round, signal: AbortSignal): Promise<boolean> {
  const { routes, sysctl, forwardPolicies, forwardingMarker } = deps
  // Without the tables, which are removed later, these would drop everything.
  const blocks = forwardPolicies !== undefined && (await removeForwardPolicies(forwardPolicies, round, signal))
  await applyRouting(routes, NO_ROUTING, scopeOf(deps), round, signal)
  const links = await round.attempt(() => routes.links(signal))
  let gone = links !== undefined
  if (links?.value.some(({ name }) => name === VXLAN_DEVICE) === true) {
    const text = formatLinkDeletion(VXLAN_DEVICE)
    gone = await round.change('device', text, () => routes.deleteLink(VXLAN_DEVICE, signal), isNotFound)
  }
  if (gone) await (await applyGuard(routes, [], GUARD, round, signal)).removeOthers()
  for (const name of SWITCHES) {
    const restored = await round.attempt(() => restoreForwarding(sysctl, forwardingMarker, name))
    if (restored?.value === true) round.note('sysctl', settingText(name, '0'))
  }
  return !blocks
}

interface LinkAtHand {
  readonly routes: RouteTable
  readonly link: NodeRoutes['link']
  readonly found: Link | VxlanLink | undefined
  readonly round: Round
  readonly signal: AbortSignal
}

async function ensureLink({ routes, link, found, round, signal }: LinkAtHand): Promise<void> {
  const { name, mtu } = link
  const keep = found !== undefined && isSameOverlay(found, link)
  reportLink(link, found, keep, round)
  const failures = round.failures
  if (found !== undefined && !keep) {
    await round.change('device', formatLinkDeletion(name), () => routes.deleteLink(name, signal), isNotFound)
  }
  if (!keep) await round.change('device', formatLink(link), () => routes.addLink(link, signal), isExists)
  const changes = [
    ...(keep && found.mtu !== mtu ? [{ mtu }] : []),
    ...(!keep || !found.up ? [{ up: true } as const] : []),
  ]
  for (const change of changes) {
    await round.change('device', formatLinkChange(name, change), () => routes.setLink(name, change, signal))
  }
  if (round.failures === failures) round.drift?.settle('link', [linkText(link)])
}

/** The address is added before the setting that needs it, so that no packet is dropped in between. */
async function ensureAddress(routes: RouteTable, wanted: NewAddress, round: Round, signal: AbortSignal): Promise<void> {
  const all = await round.attempt(() => routes.addresses(signal))
  if (all === undefined) return
  const { device, address } = wanted
  const text = formatAddress(wanted)
  if (!all.value.some((entry) => entry.device === device && entry.address === address)) {
    round.drift?.repaired('address', 'Missing', round.drift.had('address', [text]))
    if (!(await round.change('address', text, () => routes.addAddress(wanted, signal), isExists))) return
  }
  round.drift?.settle('address', [text])
}

function reportLink(link: NodeRoutes['link'], found: Link | undefined, keep: boolean, { drift }: Round): void {
  const text = linkText(link)
  // The plan has a different device, and what depended on the old one was removed with it.
  if (!keep && drift?.had('link', [text]).length === 0) {
    drift.forget('link', 'address', 'neighbour', 'forwarding-entry', 'route')
  }
  const isChanged = found !== undefined && (!keep || !found.up)
  drift?.repaired('link', 'Missing', drift.had('link', found === undefined ? [text] : []))
  drift?.repaired('link', 'Changed', drift.had('link', isChanged ? [text] : []))
}

/** The MTU follows that of the underlay and does not identify the device. */
function linkText(link: NodeRoutes['link']): string {
  return formatLink({ ...link, mtu: 0 })
}

function isSameOverlay(found: Link | VxlanLink, link: NodeRoutes['link']): boolean {
  if (found.kind !== 'vxlan' || !('vni' in found)) return false
  return found.vni === link.vni && found.port === link.port && found.local === link.local && found.mac === link.mac
}

async function ensureSysctls(deps: ApplyRoutesDeps, plan: NodeRoutes, round: Round): Promise<void> {
  const { sysctl, forwardingMarker } = deps
  for (const { name, value, insteadOf, ifPresent } of plan.sysctls) {
    const present = await round.attempt(() => sysctl.read(name))
    if (present === undefined || present.value?.trim() === value) continue
    if (ifPresent === true && present.value === undefined) continue
    if (insteadOf !== undefined && present.value?.trim() !== insteadOf) continue
    await round.change('sysctl', settingText(name, value), () =>
      SWITCHES.includes(name) ? ensureForwarding(sysctl, forwardingMarker, name) : sysctl.write(name, value),
    )
  }
}

function settingText(name: string, value: string): string {
  return `sysctl -w ${name}=${value}`
}

// A gateway process of an earlier release, which knows only IPv4, has its rule at a lower precedence. This node's own
// lanes must come before the routes over the other gateway nodes, so the rule for those routes stays where that release
// had it until the gateway is updated.
function afterLanes(desired: readonly Rule[], all: readonly Rule[]): Rule[] {
  const waits = all.some((rule) => rule.table === ROUTE_TABLE_LANES && rule.priority > RULE_NODE)
  return desired.map((rule) =>
    waits && rule.table === ROUTE_TABLE_NODE && rule.family !== 6 ? { ...rule, priority: RULE_NODE_BEFORE } : rule,
  )
}
