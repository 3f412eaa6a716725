/**
 * Parses the output of `nft --json list ruleset` as far as it decides whether a packet passes: base chains, rules with
 * an action, and their conditions. A condition that is not understood is marked as such, never left out. Pure.
 */

export interface PacketMatch {
  readonly inDevice?: string
  readonly outDevice?: string
  readonly protocol?: string
  readonly dports?: readonly (readonly [number, number])[]
  readonly sports?: readonly (readonly [number, number])[]
  readonly states?: readonly string[]
  /** True if the rule has conditions besides these. */
  readonly other: boolean
}

export type RuleAction = 'accept' | 'drop' | 'reject' | 'jump' | 'goto' | 'return' | 'none'

export interface RuleLook {
  readonly match: PacketMatch
  readonly action: RuleAction
  readonly to?: string
}

export interface ChainLook {
  readonly family: string
  readonly table: string
  readonly name: string
  readonly hook?: string
  readonly priority?: number
  readonly policy?: 'accept' | 'drop'
  readonly rules: readonly RuleLook[]
  readonly omitted: number
}

export interface RulesetLook {
  /** For example `ip sealane_gateway`. */
  readonly tables: readonly string[]
  readonly chains: readonly ChainLook[]
}

/** The load balancer of a cluster may have tens of thousands of rules. */
const MOST_RULES = 2000
const MOST_CHAINS = 500
/** Hooks at which packets can be dropped. Chains at other hooks are not considered. */
const HOOKS = ['ingress', 'prerouting', 'input', 'forward', 'output', 'postrouting']

type Json = Readonly<Record<string, unknown>>

/** Tables whose name begins with `ours` are listed, but their chains are not parsed. */
export function parseRuleset(ruleset: unknown, ours: string): RulesetLook {
  const entries = listOf(objectOf(ruleset)['nftables']).map(objectOf)
  const of = (kind: string): Json[] => entries.flatMap((entry) => (kind in entry ? [objectOf(entry[kind])] : []))
  const tables = of('table').map(({ family, name }) => `${wordOf(family)} ${wordOf(name)}`)
  const chains = of('chain').filter(({ table }) => !wordOf(table).startsWith(ours))
  const rules = new Map<string, Json[]>()
  for (const rule of of('rule')) {
    const key = chainKey(rule, wordOf(rule['chain']))
    const known = rules.get(key)
    if (known === undefined) rules.set(key, [rule])
    else known.push(rule)
  }
  const all = chains.map((chain) => chainLook(chain, rules.get(chainKey(chain, wordOf(chain['name']))) ?? []))
  return { tables, chains: reachable(all).slice(0, MOST_CHAINS) }
}

function chainKey(one: Json, chain: string): string {
  return [wordOf(one['family']), wordOf(one['table']), chain].join(' ')
}

function chainLook(chain: Json, rules: readonly Json[]): ChainLook {
  const { hook, prio, policy } = chain
  const looks = rules.flatMap((rule) => ruleLooks(listOf(rule['expr']).map(objectOf)))
  return {
    family: wordOf(chain['family']),
    table: wordOf(chain['table']),
    name: wordOf(chain['name']),
    ...(typeof hook === 'string' ? { hook } : {}),
    ...(typeof prio === 'number' ? { priority: prio } : {}),
    ...(policy === 'accept' || policy === 'drop' ? { policy } : {}),
    rules: looks.slice(0, MOST_RULES),
    omitted: Math.max(0, looks.length - MOST_RULES),
  }
}

/** Returns the base chains at HOOKS, and the chains that their rules jump to. */
function reachable(all: readonly ChainLook[]): readonly ChainLook[] {
  const byName = new Map(all.map((chain) => [`${chain.family} ${chain.table} ${chain.name}`, chain]))
  const kept = new Set(all.filter(({ hook }) => hook !== undefined && HOOKS.includes(hook)))
  for (const chain of kept) {
    for (const { to } of chain.rules) {
      const next = to === undefined ? undefined : byName.get(`${chain.family} ${chain.table} ${to}`)
      if (next !== undefined) kept.add(next)
    }
  }
  return [...kept]
}

/** Returns one rule, or one for each state of a verdict map over connection states. */
function ruleLooks(expressions: readonly Json[]): readonly RuleLook[] {
  let match: PacketMatch = { other: false }
  for (const expression of expressions) {
    const [kind = '', value] = Object.entries(expression)[0] ?? []
    switch (kind) {
      case 'accept':
      case 'drop':
      case 'reject':
      case 'return':
        return [{ match, action: kind }]
      case 'jump':
      case 'goto':
        return [{ match, action: kind, to: wordOf(objectOf(value)['target']) }]
      case 'vmap':
        return vmapLooks(match, objectOf(value))
      case 'match':
        match = narrowed(match, objectOf(value))
        break
      case 'counter':
      case 'log':
      case 'comment':
      case 'mangle':
        break
      default:
        match = { ...match, other: true }
    }
  }
  return []
}

/** In a verdict map over states, each state has its own action. For any other map the action of a packet is unknown. */
function vmapLooks(match: PacketMatch, { key, data }: Json): readonly RuleLook[] {
  const pairs = listOf(objectOf(data)['set']).map(listOf)
  const isState = objectOf(objectOf(key)['ct'])['key'] === 'state'
  if (!isState || pairs.length === 0) return [{ match: { ...match, other: true }, action: 'accept' }]
  return pairs.flatMap(([state, action]) => {
    const [rule] = ruleLooks([objectOf(action)])
    return rule === undefined ? [] : [{ ...rule, match: { ...match, states: [wordOf(state)] } }]
  })
}

function narrowed(match: PacketMatch, { op, left, right }: Json): PacketMatch {
  const unknown = { ...match, other: true }
  const key = objectOf(left)
  const meta = objectOf(key['meta'])['key']
  const state = objectOf(key['ct'])['key']
  if (state === 'state' && (op === 'in' || op === '==')) return { ...match, states: wordsOf(right) }
  if (op !== '==') return unknown
  if (meta === 'iifname' || meta === 'iif') return typeof right === 'string' ? { ...match, inDevice: right } : unknown
  if (meta === 'oifname' || meta === 'oif') return typeof right === 'string' ? { ...match, outDevice: right } : unknown
  if (meta === 'l4proto') return typeof right === 'string' ? { ...match, protocol: right } : unknown
  const { protocol, field } = objectOf(key['payload'])
  if (protocol === 'ip' && field === 'protocol' && typeof right === 'string') return { ...match, protocol: right }
  const ports = portsOf(right)
  if (typeof protocol !== 'string' || (field !== 'dport' && field !== 'sport')) return unknown
  // `th` matches any transport protocol. Other protocols restrict the match even if the ports are not understood.
  const asked = protocol === 'th' ? match : { ...match, protocol }
  if (ports === undefined) return { ...asked, other: true }
  return field === 'dport' ? { ...asked, dports: ports } : { ...asked, sports: ports }
}

/**
 * Accepts 4500, { range: [1, 9] } and { set: [1, { range: … }] }. Returns undefined for a named set or anything else.
 */
function portsOf(value: unknown): readonly (readonly [number, number])[] | undefined {
  if (typeof value === 'number') return [[value, value]]
  const { range, set } = objectOf(value)
  const [first, last] = listOf(range)
  if (typeof first === 'number' && typeof last === 'number') return [[first, last]]
  if (!Array.isArray(set) || set.length === 0) return undefined
  const all = set.map((one) => portsOf(one))
  return all.every((one) => one !== undefined) ? all.flat() : undefined
}

function wordsOf(value: unknown): readonly string[] {
  const { set } = objectOf(value)
  return typeof value === 'string' ? [value] : listOf(set ?? value).map(wordOf)
}

function wordOf(value: unknown): string {
  return typeof value === 'string' ? value.slice(0, 300) : ''
}

function listOf(value: unknown): readonly unknown[] {
  return Array.isArray(value) ? (value as readonly unknown[]) : []
}

function objectOf(value: unknown): Json {
  return typeof value === 'object' && value !== null && !Array.isArray(value) ? (value as Json) : {}
}
