/**
 * Edits Sealane's server block in a Corefile of another owner. The block is between two marker comments at the top
 * level. Every other byte stays unchanged, and removing the block restores the previous text to the byte.
 */
import {
  type Corefile,
  CorefileError,
  type CorefileItem,
  type Directive,
  type ServerBlock,
  type Token,
  directivesOf,
  parseCorefile,
} from './parse-corefile.ts'

const BEGIN = 'sealane begin'
const END = 'sealane end'

/**
 * In seconds. A missing name may exist a moment later, so neither positive nor negative answers are cached for longer.
 */
const CACHE_SECONDS = 5

/**
 * The key of Sealane's block in a ConfigMap of additions. A Corefile imports keys with this suffix, and only Sealane
 * uses the name, so the removal needs no markers.
 */
export const ADDITION_KEY = 'sealane.server'

const NOTE = 'Written by sealane; "sealane leave" removes it. Changes between these two lines are lost.'

/**
 * Regular expressions of RE2 without groups that capture. They take no text that CoreDNS would refuse to start with. Go
 * refuses nested counts whose product exceeds 1,000.
 */
const PORT = '(?:[1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5])'
const OCTET = '(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])'
const IPV4 = `${OCTET}(?:[.]${OCTET}){3}`
const HEX = '[0-9a-fA-F]{1,4}'
/** RFC 4291 section 2.2, forms 1 and 2: eight groups, or fewer with `::` among them. */
const IPV6 = `(?:${[
  `(?:${HEX}:){7}${HEX}`,
  ...[1, 2, 3, 4, 5, 6].map((before) => `(?:${HEX}:){${before}}(?::${HEX}){1,${7 - before}}`),
  `(?:${HEX}:){1,7}:`,
  `:(?::${HEX}){1,7}`,
].join('|')})`
const UPSTREAM = `(?:${IPV4}(?::${PORT})?|${IPV6}|\\[${IPV6}\\](?::${PORT})?)`
/** An address, the placeholder of one in NodeLocal DNSCache, or the name of a network device. */
const PLACE = `(?:${IPV4}|${IPV6}|__PILLAR__[A-Z_]{1,40}__|[A-Za-z][A-Za-z0-9._-]{0,14})`
const KEY = `clusterset[.]local(?::${PORT})?`

/**
 * Matches exactly the texts that addForwardBlock() adds to a Corefile and formatForwardBlock() gives, with or without
 * the line break before or after: keys of the domain alone, `bind` lines of addresses and devices, then the plugins in
 * their order, and one upstream that is an IP address. A `bind` line with options or quotes does not match. An admission
 * policy holds the agent to it, so it is a regular expression of RE2.
 */
export const BLOCK_PATTERN =
  `^\\n?# ${BEGIN}\\n# ${NOTE.replaceAll('.', '[.]')}\\n${KEY}(?: ${KEY})* [{]\\n` +
  `(?:    bind(?:[ \\t]+${PLACE})+\\n)*` +
  `    errors\\n    cache ${CACHE_SECONDS}\\n    loadbalance\\n` +
  `    forward [.] ${UPSTREAM} [{]\\n        max_fails 1\\n    [}]\\n[}]\\n# ${END}\\n?$`

export interface ForwardBlock {
  /** `clusterset.local` */
  readonly domain: string
  /** `IP` or `IP:port`, with IPv6 in brackets if a port follows. */
  readonly forwardTo: string
}

/** Where the Corefile serves its own names: the ports, and the `bind` lines, which every block of a server needs. */
export interface ListenOptions {
  /** As written after the names. Undefined if no port is written. */
  readonly ports: readonly (string | undefined)[]
  /** `bind …` as it is in the Corefile. */
  readonly binds: readonly string[]
}

/** Another part of the Corefile that already answers the domain. */
export interface ExistingServer {
  readonly line: number
  readonly what: string
}

/**
 * Adds Sealane's block, or updates an existing one. Throws CorefileError if the Corefile cannot be parsed, or if it has
 * no block for ordinary names.
 */
export function addForwardBlock(text: string, block: ForwardBlock): string {
  const corefile = parseCorefile(text)
  const own = findOwn(text, corefile)
  const others = own === undefined ? corefile.items : outside(corefile.items, own)
  const kept = own === undefined ? undefined : placeOfOwn(text, inside(corefile.items, own), block.domain)
  const lines = formatForwardBlock(block, placeOf(text, others, kept))
  if (own !== undefined) {
    const newline = text.slice(own.start, own.end).endsWith('\n') ? '\n' : ''
    return text.slice(0, own.start) + lines + newline + text.slice(own.end)
  }
  // If the file does not end with a line break, the block does not either. So the removal can distinguish the two
  // cases.
  return text.endsWith('\n') ? `${text}${lines}\n` : `${text}\n${lines}`
}

/**
 * Removes Sealane's block. Returns the same text if there is none. Throws CorefileError if the bounds of the block
 * cannot be found.
 */
export function removeForwardBlock(text: string): string {
  if (!text.includes(BEGIN) && !text.includes(END)) return text
  const own = findOwn(text, parseCorefile(text))
  if (own === undefined) return text
  const closed = text.slice(own.start, own.end).endsWith('\n')
  const start = !closed && text[own.start - 1] === '\n' ? own.start - 1 : own.start
  return text.slice(0, start) + text.slice(own.end)
}

/** Whether the Corefile has Sealane's block. Throws CorefileError if it cannot be parsed. */
export function hasForwardBlock(text: string): boolean {
  return findOwn(text, parseCorefile(text)) !== undefined
}

/** The block with its markers, without a line break at the end. */
export function formatForwardBlock({ domain, forwardTo }: ForwardBlock, place: ListenOptions): string {
  const keys = place.ports.map((port) => (port === undefined ? domain : `${domain}:${port}`))
  // Uses only settings that every CoreDNS since 1.5 supports, because an unknown setting would stop all DNS at the next
  // start. There is no `loop`, because it ends the server process when it detects a loop. max_fails is 1: if no
  // endpoint is behind the address, older versions retry until the first health check has failed, and with 1 that is
  // immediately.
  const plugins = [
    ...place.binds,
    'errors',
    `cache ${CACHE_SECONDS}`,
    'loadbalance',
    `forward . ${forwardTo} {`,
    '    max_fails 1',
    '}',
  ]
  return [
    `# ${BEGIN}`,
    `# ${NOTE}`,
    `${keys.join(' ')} {`,
    ...plugins.map((line) => `    ${line}`),
    '}',
    `# ${END}`,
  ].join('\n')
}

/** The other parts of this Corefile that answer the domain or a part of it. Sealane's own block does not count. */
export function claimsOn(text: string, domain: string): readonly ExistingServer[] {
  const corefile = parseCorefile(text)
  const own = findOwn(text, corefile)
  const items = own === undefined ? corefile.items : outside(corefile.items, own)
  return items.flatMap((item) => claimsOfItem(item, domain.toLowerCase()))
}

/** True if a CoreDNS with this Corefile detects changes of the Corefile and its imports by itself. */
export function reloadsItself(text: string): boolean {
  return parseCorefile(text).items.some(
    (item) =>
      (item.kind === 'server' && item.directives.some((directive) => directive.name === 'reload')) ||
      (item.kind === 'snippet' && hasPlugin(item.tokens, 'reload')),
  )
}

/**
 * True if the body of a snippet has this plugin. An option of the same name inside the braces of another plugin does
 * not count.
 */
function hasPlugin(tokens: readonly Token[], plugin: string): boolean {
  let depth = 0
  for (const { text } of tokens) {
    if (depth === 0 && text === plugin) return true
    if (text === '{') depth += 1
    if (text === '}') depth -= 1
  }
  return false
}

/** The patterns of the top-level imports of a Corefile, where other files may add server blocks. */
export function topImports(text: string): readonly string[] {
  return parseCorefile(text).items.flatMap((item) => (item.kind === 'import' ? [item.pattern] : []))
}

/** The ports and addresses of the block that answers ordinary names. Throws CorefileError if there is none. */
export function placeOfText(text: string): ListenOptions {
  return placeOf(text, parseCorefile(text).items)
}

interface OwnSpan {
  readonly start: number
  readonly end: number
}

/** From the start of the first marker's line to the end of the last marker's line, including its line break. */
function findOwn(text: string, corefile: Corefile): OwnSpan | undefined {
  const markers = corefile.comments.filter((comment) => comment.text === BEGIN || comment.text === END)
  if (markers.length === 0) return undefined
  const [begin, end] = markers
  for (const marker of markers) {
    const inside = corefile.items.some((item) => item.start < marker.start && marker.start < item.end)
    if (inside || !marker.alone)
      throw new CorefileError(marker.line, `the comment "${marker.text}" is not on a line of its own between blocks`)
  }
  if (begin?.text !== BEGIN || end?.text !== END || markers.length > 2) {
    const line = (markers[2] ?? begin)?.line ?? 1
    throw new CorefileError(line, `expected one comment "${BEGIN}" and one "${END}" after it; remove the rest by hand`)
  }
  const newline = text.indexOf('\n', end.start)
  return { start: text.lastIndexOf('\n', begin.start) + 1, end: newline === -1 ? text.length : newline + 1 }
}

function outside(items: readonly CorefileItem[], { start, end }: OwnSpan): readonly CorefileItem[] {
  return items.filter((item) => item.end <= start || item.start >= end)
}

function inside(items: readonly CorefileItem[], { start, end }: OwnSpan): readonly CorefileItem[] {
  return items.filter((item) => item.start >= start && item.end <= end)
}

/** Where Sealane's block listens now. Undefined if that cannot be read. */
function placeOfOwn(text: string, items: readonly CorefileItem[], domain: string): ListenOptions | undefined {
  const [block, ...more] = items
  if (block?.kind !== 'server' || more.length > 0) return undefined
  const keys = block.keys.map(parseKey)
  if (!keys.every(({ zone, plain }) => plain && zone === domain)) return undefined
  return { ports: keys.map(({ port }) => port), binds: bindsOf(text, block.directives) }
}

function bindsOf(text: string, directives: readonly Directive[]): readonly string[] {
  const binds = directives.filter(({ name }) => name === 'bind')
  return binds.map(({ tokens }) => text.slice(tokens[0]?.start, tokens.at(-1)?.end))
}

interface Key {
  readonly zone: string
  readonly port: string | undefined
  readonly plain: boolean
}

/** Parses `dns://example.org.:53`, `.` or `example.org`. */
function parseKey(key: string): Key {
  const scheme = /^([a-z0-9]+):\/\//i.exec(key)?.[1]?.toLowerCase()
  const rest = scheme === undefined ? key : key.slice(scheme.length + 3)
  const [, zone = '', port] = /^(.*?)(?::(\d+))?$/s.exec(rest) ?? []
  return { zone: normalZone(zone), port, plain: scheme === undefined || scheme === 'dns' }
}

function normalZone(name: string): string {
  return name.toLowerCase().replace(/\.$/, '')
}

/** `kept` counts if the block that answers ordinary names imports a file, in which its `bind` may be. */
function placeOf(text: string, items: readonly CorefileItem[], kept?: ListenOptions): ListenOptions {
  const servers = items.filter((item) => item.kind === 'server')
  const unclear = servers.find(({ keys }) => keys.some((key) => /\{[$%]/.test(key)))
  if (unclear !== undefined) {
    throw new CorefileError(unclear.line, 'a name comes from an environment variable, so its owner is unknown')
  }
  const isRoot = ({ keys }: ServerBlock): boolean =>
    keys.some((key) => parseKey(key).plain && parseKey(key).zone === '')
  const snippets = snippetsOf(items)
  const plugins = (item: ServerBlock): readonly Directive[] => expanded(item.directives, snippets)
  const anchor =
    servers.find(
      (item) => item.keys.some((k) => parseKey(k).plain) && plugins(item).some(({ name }) => name === 'kubernetes'),
    ) ?? servers.find(isRoot)
  if (anchor === undefined) throw new CorefileError(1, 'there is no block for "." and none with the plugin kubernetes')
  const ports = anchor.keys.map(parseKey).flatMap((key) => (key.plain ? [key.port] : []))
  const directives = plugins(anchor)
  const unread = directives.find(({ name, tokens }) => name === 'import' && !ADDITIONS.test(tokens[1]?.text ?? ''))
  if (unread !== undefined && kept !== undefined) return kept
  if (unread !== undefined) {
    const [word, file] = unread.tokens
    throw new CorefileError(
      word?.line ?? anchor.line,
      `the block imports ${JSON.stringify(file?.text.slice(0, 60) ?? '')}, a file that may hold its bind`,
    )
  }
  return { ports: [...new Set(ports)], binds: bindsOf(text, directives) }
}

/**
 * The folders of additions of K3s and AKS are empty unless a user fills them, and no document of theirs sets `bind`
 * there. Any other file is a part of the configuration.
 */
const ADDITIONS = /[*]/

/** The plugins of a snippet; undefined if there is no such snippet. Throws CorefileError if it has other parts. */
type Snippets = (name: string) => readonly Directive[] | undefined

/** Parses only what is imported: a snippet may also hold server blocks, for an import between blocks. */
function snippetsOf(items: readonly CorefileItem[]): Snippets {
  const bodies = new Map(items.flatMap((item) => (item.kind === 'snippet' ? [[item.name, item.tokens] as const] : [])))
  const parsed = new Map<string, readonly Directive[]>()
  return (name) => {
    const body = bodies.get(name)
    if (body === undefined) return undefined
    const directives = parsed.get(name) ?? directivesOf(body)
    parsed.set(name, directives)
    return directives
  }
}

/** Snippets that import each next one twice double with each level. */
const MAX_IMPORTED = 1000

/**
 * The plugins with those of the imported snippets in place of their imports; imports of files stay. Throws
 * CorefileError for a snippet that imports itself, which CoreDNS does not start with either, and if the snippets have
 * more than 1,000 plugins together.
 */
function expanded(
  directives: readonly Directive[],
  snippets: Snippets,
  within: readonly string[] = [],
  room = { left: MAX_IMPORTED },
): readonly Directive[] {
  return directives.flatMap((directive) => {
    const [word, name] = directive.name === 'import' ? directive.tokens : []
    const body = name === undefined ? undefined : snippets(name.text)
    if (name === undefined || body === undefined) return [directive]
    if (within.includes(name.text)) {
      throw new CorefileError(word?.line ?? 1, `the snippet ${JSON.stringify(name.text.slice(0, 60))} imports itself`)
    }
    room.left -= body.length
    if (room.left < 0) {
      throw new CorefileError(word?.line ?? 1, `the imported snippets have more than ${MAX_IMPORTED} plugins`)
    }
    return expanded(body, snippets, [...within, name.text], room)
  })
}

/** Plugins that may name a domain without answering it. */
const ONLY_NAME_IT = new Set(['log', 'cache', 'acl', 'errors', 'debug', 'metadata', 'except'])

function claimsOfItem(item: CorefileItem, domain: string): ExistingServer[] {
  if (item.kind === 'import') return []
  if (item.kind === 'snippet') return claimsOfWords(`snippet (${item.name})`, item.tokens, domain)
  const key = item.keys.find((candidate) => isWithin(parseKey(candidate).zone, domain))
  if (key !== undefined) return [{ line: item.line, what: `server block ${key}` }]
  return item.directives
    .filter(({ name }) => !ONLY_NAME_IT.has(name))
    .flatMap(({ name, tokens }) => claimsOfWords(`plugin ${name}`, tokens, domain))
}

function claimsOfWords(what: string, tokens: readonly Token[], domain: string): ExistingServer[] {
  const found = tokens.find(({ text, line }, index) => {
    const first = tokens.slice(0, index + 1).find((token) => token.line === line)
    return isWithin(parseKey(text).zone, domain) && !ONLY_NAME_IT.has(first?.text ?? '')
  })
  return found === undefined ? [] : [{ line: found.line, what }]
}

function isWithin(zone: string, domain: string): boolean {
  return zone === domain || zone.endsWith(`.${domain}`)
}
