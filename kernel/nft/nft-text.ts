/**
 * Formats statements as input for `nft -f -`: one statement a line and one list element a line, so that the error
 * messages of nft, which quote the line, stay short. Everything is checked before it is formatted, so that no value can
 * end its statement and begin another.
 */
import { KernelError } from '../kernel.ts'
import type {
  CountedElement,
  NftBaseChain,
  NftElement,
  NftFamily,
  NftMapType,
  NftStatement,
  TableCounts,
} from './nft-transaction.ts'

/**
 * Keywords of the nft language (1.0.6), which cannot be names of chains, maps or tables. `nft --check` refuses them,
 * and so does the fake.
 */
const WORDS = `
  accept add ah all and arp bridge chain comment comp constant continue counter cpu create ct day dccp define
  delete describe device devices dnat drop dst dup dynamic ecn element elements eq esp ether exists expires
  export exthdr fib flags flow flowtable flush frag fwd gc-interval ge get goto gt handle hbh hook hour ibriport
  ibrname icmp icmpv6 igmp iif iifgroup iifname iiftype import include index inet insert interval ip ip6 ipsec
  jhash jump le limit list log lshift lt map mark masquerade meta meter mh missing monitor ne netdev nftrace not
  notrack numgen obriport obrname oif oifgroup oifname oiftype or osf pkttype policy position priority queue
  quota random redefine redirect reject rename replace reset return rshift rt rt0 rt2 rtclassid rule ruleset
  sctp secmark set size skgid skuid snat socket srh symhash synproxy table tcp th timeout tproxy type typeof udp
  udplite undefine update vlan vmap xor xt
`

const NFT_WORDS: ReadonlySet<string> = new Set(WORDS.trim().split(/\s+/))

const NAME = /^[A-Za-z_][A-Za-z0-9_.-]{0,127}$/
/** Keys and values: addresses, prefixes, ranges, ports, protocol names, quoted device names, `goto name`. */
const ELEMENT = /^[A-Za-z0-9_./*" -]+$/
const ELEMENT_FORM = 'letters, digits, spaces and . / * - ", or IPv6 addresses'
/** A word of an element that is an IPv6 address, prefix or range. Any other colon would begin the value. */
const IPV6 = /^(?=[^:]*:[^:]*:)[0-9a-fA-F:.]+(?:\/\d{1,3}|-(?=[^:]*:[^:]*:)[0-9a-fA-F:.]+)?$/
const TYPE = /^[a-z0-9_]+(?: \. [a-z0-9_]+)*$/
const TYPE_EXPRESSION = /^[a-z0-9]+(?: [a-z0-9]+)*(?: \. [a-z0-9]+(?: [a-z0-9]+)*)*$/
const COMMENT = /^[^"\\\p{Cc}]{1,120}$/u
/** `[` and `]` enclose an IPv6 address that is followed by a port. */
const EXPRESSION = /^[\p{L}\p{N} _.,:/*@&|!=<>^(){}[\]"+-]+$/u

/**
 * Formats statements for tables of `family`. Throws KernelError EINVAL if a name or an expression could add anything
 * beyond its statement.
 */
export function formatNft(statements: readonly NftStatement[], family: NftFamily): string {
  const lines: string[] = []
  for (const statement of statements) {
    const line = formatStatement(statement, family)
    if (line !== '') lines.push(line)
  }
  return lines.length === 0 ? '' : `${lines.join('\n')}\n`
}

/** Returns one statement without a final newline, or '' for an element list without elements. */
export function formatStatement(statement: NftStatement, family: NftFamily): string {
  const table = `${family} ${checkName('table', statement.table)}`
  switch (statement.verb) {
    case 'add-table':
    case 'delete-table':
    case 'flush-table':
      return `${verbWord(statement.verb)} table ${table}${statement.owned === true ? ' { flags owner; }' : ''}`
    case 'add-chain': {
      const base = statement.base === undefined ? '' : ` { ${formatBase(statement.base)} }`
      return `add chain ${table} ${checkName('chain', statement.chain)}${base}`
    }
    case 'flush-chain':
    case 'delete-chain':
      return `${verbWord(statement.verb)} chain ${table} ${checkName('chain', statement.chain)}`
    case 'add-rule':
      return `add rule ${table} ${checkName('chain', statement.chain)} ${formatRule(statement.rule, statement.comment)}`
    case 'add-counter':
      return `add counter ${table} ${checkName('counter', statement.counter)}`
    case 'add-map':
      return `add ${statement.type.kind} ${table} ${checkName('map', statement.map)} { ${formatMapType(statement.type)} }`
    case 'flush-map':
    case 'delete-map':
      return `${verbWord(statement.verb)} ${statement.kind} ${table} ${checkName('map', statement.map)}`
    case 'add-elements':
    case 'delete-elements': {
      if (statement.elements.length === 0) return ''
      const add = statement.verb === 'add-elements'
      const list = formatElements(statement.elements, add)
      return `${add ? 'add' : 'delete'} element ${table} ${checkName('map', statement.map)} {\n${list}\n}`
    }
  }
}

/** For example `type filter hook forward priority 0; policy accept;`. */
export function formatBase(base: NftBaseChain): string {
  if (!Number.isInteger(base.priority)) throw invalid('priority', String(base.priority), 'a whole number')
  return `type ${base.type} hook ${base.hook} priority ${base.priority}; policy accept;`
}

/** For example `type ipv4_addr . inet_service : verdict; flags interval;`. Throws KernelError EINVAL. */
export function formatMapType(type: NftMapType): string {
  if (!TYPE.test(type.key)) throw invalid('key type', type.key, 'nft type names joined by " . "')
  if (type.value !== undefined && !TYPE.test(type.value))
    throw invalid('value type', type.value, 'nft type names joined by " . "')
  if ((type.kind === 'map') !== (type.value !== undefined)) {
    throw invalid(
      'value type',
      type.value ?? '',
      type.kind === 'map' ? 'a type, as this is a map' : 'none, as this is a set',
    )
  }
  const size = type.size === undefined ? '' : ` size ${checkSize(type.size)};`
  const flags = type.flags === undefined || type.flags.length === 0 ? '' : ` flags ${type.flags.join(',')};`
  return `${formatTypes(type)};${size}${flags}`
}

function formatTypes({ key, value, typeOf }: NftMapType): string {
  if (typeOf === undefined) return `type ${key}${value === undefined ? '' : ` : ${value}`}`
  for (const text of [typeOf.key, typeOf.value ?? typeOf.key])
    if (!TYPE_EXPRESSION.test(text)) throw invalid('type expression', text, 'expressions joined by " . "')
  return `typeof ${typeOf.key}${typeOf.value === undefined ? '' : ` : ${typeOf.value}`}`
}

function checkSize(size: number): number {
  if (!Number.isInteger(size) || size < 1) throw invalid('size', String(size), 'a whole number from 1')
  return size
}

/** Returns the expression of a rule with its comment. */
export function formatRule(rule: string, comment?: string): string {
  checkExpression(rule)
  if (comment === undefined) return rule
  if (!COMMENT.test(comment))
    throw invalid('comment', comment, 'up to 120 characters without quotes, backslashes or line ends')
  return `${rule} comment "${comment}"`
}

// Elements are deleted by key alone: the kernel ignores the value, and the text is half as long.
function formatElements(elements: readonly NftElement[], withValue: boolean): string {
  const lines: string[] = new Array<string>(elements.length)
  for (let i = 0; i < elements.length; i++) {
    const { key, value } = elements[i] as NftElement
    if (!isElementPart(key)) throw invalid('element key', key, ELEMENT_FORM)
    if (value === undefined || !withValue) {
      lines[i] = key
      continue
    }
    if (!isElementPart(value)) throw invalid('element value', value, ELEMENT_FORM)
    lines[i] = `${key} : ${value}`
  }
  return lines.join(',\n')
}

function isElementPart(text: string): boolean {
  return ELEMENT.test(text) || text.split(' ').every((word) => ELEMENT.test(word) || IPV6.test(word))
}

function checkName(what: string, name: string): string {
  if (!NAME.test(name)) throw invalid(`${what} name`, name, 'a letter or _, then letters, digits, _ . or -')
  if (NFT_WORDS.has(name)) throw invalid(`${what} name`, name, 'a name that is not a word of the nft language')
  return name
}

function checkExpression(rule: string): void {
  if (!EXPRESSION.test(rule)) throw invalid('rule', rule, 'one nft rule without ; # $ \\ or line ends')
  if (rule.trim() !== rule) throw invalid('rule', rule, 'no space at either end')
  let depth = 0
  let quoted = false
  for (const char of rule) {
    if (char === '"') quoted = !quoted
    else if (!quoted && (char === '{' || char === '(' || char === '[')) depth += 1
    else if (!quoted && (char === '}' || char === ')' || char === ']')) depth -= 1
    if (depth < 0) break
  }
  if (depth !== 0 || quoted) throw invalid('rule', rule, 'brackets and quotes in pairs')
}

function verbWord(verb: string): string {
  return verb.slice(0, verb.indexOf('-'))
}

function invalid(field: string, value: string, expected: string): KernelError {
  return new KernelError('EINVAL', 'nft', `${field} ${JSON.stringify(value.slice(0, 200))}: expected ${expected}`)
}

// Parses the output of `nft list`.

/**
 * Returns the elements in the output of `nft list set` or `nft list map`, sorted by key. Quoted device names keep their
 * quotes.
 */
export function parseElements(listing: string): readonly NftElement[] {
  const start = listing.indexOf('elements = {')
  if (start < 0) return []
  const from = start + 'elements = {'.length
  const body = listing.slice(from, listing.indexOf('}', from))
  const elements: NftElement[] = []
  // No key or value contains a comma, even in quotes: formatNft() refuses such device names.
  for (const part of body.split(',')) {
    const text = part.trim()
    if (text === '') continue
    const colon = text.indexOf(' : ')
    elements.push(colon < 0 ? { key: text } : { key: text.slice(0, colon), value: text.slice(colon + 3) })
  }
  return elements.sort((a, b) => (a.key < b.key ? -1 : a.key > b.key ? 1 : 0))
}

/** Returns the packet counts by counter name, from the output of `nft list counters`. */
export function parseCounters(listing: string): ReadonlyMap<string, number> {
  const found = listing.matchAll(/\bcounter (\S+) \{\s+packets (\d+) bytes \d+/g)
  return new Map([...found].map(([, name = '', packets]) => [name, Number(packets)]))
}

/** Returns what sets of a table have counted, from the outputs of `nft list set`, or that of `nft list table`. */
export function parseCounts(listing: string): TableCounts {
  const steps = countsInSlices(listing)
  let step = steps.next()
  while (step.done !== true) step = steps.next()
  return step.value
}

/** Elements that are parsed without a break. */
const SLICE = 1000

/** As parseCounts(). Yields now and then, so that a caller may let others run. */
export function* countsInSlices(listing: string): Generator<undefined, TableCounts> {
  const sets = new Map<string, readonly CountedElement[]>()
  // The content of a set begins after its name, and ends with the first closing brace behind its elements.
  for (const [head, name = ''] of listing.matchAll(/^\tset (\S+) \{$/gm)) {
    const from = listing.indexOf(`${head}\n`)
    const end = listing.indexOf('\n\t}', from)
    const elements = listing.indexOf('elements = {', from)
    sets.set(name, elements < 0 || elements > end ? [] : yield* countedElements(listing.slice(elements + 12, end)))
  }
  return { sets }
}

const COUNTED = /^\s*(\S+(?: \. \S+)*)(?= ).*? counter packets (\d+) bytes (\d+)/

function* countedElements(body: string): Generator<undefined, readonly CountedElement[]> {
  const found: CountedElement[] = []
  for (const [i, part] of body.split(',').entries()) {
    if (i % SLICE === SLICE - 1) yield undefined
    const [, key, packets, bytes] = COUNTED.exec(part) ?? []
    if (key !== undefined) found.push({ key, packets: Number(packets), bytes: Number(bytes) })
  }
  return found
}
